"""Tests of simulate/sums/traffic.py."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from edge_sdk.simulation.sums.traffic import Traffic


@dataclass(frozen=True)
class Note:
    text: str


def test_a_run_that_goes_on_counts_as_the_one_that_was_left() -> None:
    """The first message of a form counts for all of that form, also for those after a checkpoint."""
    codec: Any = SimpleNamespace(encode=lambda message: message.text.encode())
    whole, resumed = Traffic(codec), Traffic(codec)
    assert whole.size(Note("a")) == whole.size(Note("longer")) == 1
    resumed.read_sizes(whole.written_sizes())
    assert resumed.size(Note("longer")) == 1 and resumed.sizes == whole.sizes
    assert Traffic(codec).size(Note("longer")) == len("longer")


def test_a_checkpoint_of_before_has_no_sizes() -> None:
    codec: Any = SimpleNamespace()
    found = Traffic(codec)
    found.read_sizes("")
    assert found.sizes == {}
