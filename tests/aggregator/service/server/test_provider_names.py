"""Names of people whom a provider has signed in: each is one person's, whatever they call themselves there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aggregator.service.administration.accounts import SignInError
from aggregator.service.database.problems import NotFoundError


def test_who_changes_a_name_at_the_provider_is_no_second_person(make_service: Callable[..., Any]) -> None:
    """Where people choose their `preferred_username`, one alone asked for a run and approved it, as somebody else."""
    people = make_service().people
    assert people.know("https://id.example 17", "ada (id.example)") == "ada (id.example)"
    assert people.know("https://id.example 17", "bob (id.example)") == "ada (id.example)"
    assert people.know("https://id.example 18", "bob (id.example)") == "bob (id.example)"
    with pytest.raises(SignInError, match=r"ada \(id.example\) was somebody else at the provider"):
        people.know("https://id.example 19", "ada (id.example)")
    people.remove("ada (id.example)", "test")  # who has left, and whose name is another one's now
    assert people.know("https://id.example 19", "ada (id.example)") == "ada (id.example)"
    with pytest.raises(NotFoundError):
        people.remove("nobody (id.example)", "test")
