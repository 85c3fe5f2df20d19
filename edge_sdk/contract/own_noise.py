"""Noise of a method whose devices send what is not added up: each answer has all of it, and is counted by itself."""

from __future__ import annotations

from typing import Any, Protocol


class OwnNoise(Protocol):
    """Local differential privacy, where a method has its own. `privacy`: methods.integers.vectors.privacy.Privacy."""

    def around(self, method: Any, settings: Any, privacy: Any) -> Any:
        """The method, whose devices add noise. Raises UsageError where it cannot give what it promises."""

    def check(self, settings: Any, privacy: Any, rounds: int, classes: int) -> None:
        """Raises UsageError where a run of so many rounds would take more noise than can be drawn."""

    def answers(self, settings: Any, rounds: int) -> int:
        """Answers with noise of one device in a run of so many rounds, at most."""

    def rho(self, settings: Any, privacy: Any, rounds: int) -> float:
        """What one of these answers says of its device (algebra/secure_aggregation/privacy.py)."""

    def number(self, settings: Any, question: Any) -> int | None:
        """Number of the answer that a question asks for, from 1 on; None: it asks for none."""

    def answered(self, settings: Any, state: Any) -> int:
        """Number of the latest answer that a device with this state has given; 0: none."""
