"""A few lives of four nodes against whoever plays broker, disks and time; many more by command (machine.py)."""

from __future__ import annotations

from tests.delivery import machine


def test_whatever_befalls_the_nodes_each_round_is_whole_and_the_run_goes_on() -> None:
    machine.play(examples=8, steps=25)
