"""`Method.fixed` of methods in which devices that come or leave have to wait for the next run: each says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def always_fixed(why: str) -> Callable[[Any], str]:
    """A method whose devices are those with which a run begins."""
    return lambda settings: why


def fixed_while_unseen(settings: Any) -> str:
    """A method that keeps some devices out of training, whom it draws once among those with which a run begins."""
    why = "unseen > 0: who is kept out of training is drawn once, among the devices of the start"
    return why if settings.unseen > 0 else ""
