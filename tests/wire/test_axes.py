"""Each fault of a machine once, on some tier; all of them on all tiers are a command (matrix.py)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from edge_sdk.replay.nodes.broker import LocalBroker
from tests.faults.machine import missing
from tests.wire import axes


@pytest.mark.skipif(bool(missing()), reason=missing() or "there are faults")
@pytest.mark.parametrize("mortal", ["mosquitto"], indirect=True)
def test_the_machine_of_a_tier_may_fail_in_any_way(tmp_path: Path, mortal: LocalBroker) -> None:
    dice = Random(3)
    # a root whose record is damaged asks a person, which takes its time: it has a test of its own (test_damage.py)
    wanted = [(axis, dice.choice(["hospital", "device"])) for axis in axes.AXES]
    dice.shuffle(wanted)
    assert axes.play(tmp_path, mortal, wanted, dice, "normal").total() == len(axes.AXES)
