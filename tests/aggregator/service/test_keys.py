"""A token or key of the service can stand behind an option of a command, whatever was drawn."""

from __future__ import annotations

import pytest

from aggregator.service.administration import accounts


def test_a_key_never_begins_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["-Sh2BMAOB", "--at", "aSh2-BMAOB"])
    monkeypatch.setattr(accounts.secrets, "token_urlsafe", lambda count: next(drawn))
    assert accounts.draw_key() == "aSh2-BMAOB"
