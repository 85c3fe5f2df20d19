"""Rollouts and evaluations beside a training, at the same hospital and the same devices, over a real broker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("cryptography", reason="the extra `secure` is not installed")

from tests.system.ward import NAMES, Ward, own_key, running, worse


@pytest.mark.long
def test_versions_are_judged_and_rolled_out_while_a_training_goes_on(tmp_path: Path, quick: LocalBroker) -> None:
    """They once waited until it had ended."""
    with Ward(tmp_path, quick.url, own_key(tmp_path), evaluations=2) as ward, running(ward.training()):
        ward.goes_on()
        good = ward.roll(ward.theta0 * np.float32(1.001), lane=1)
        assert good.kept and ward.versions == {"a": "roll-1", "b": "roll-1"}
        ward.goes_on()
        judged = ward.roll(worse(ward.theta0), lane=2, only_judge=True)
        assert not judged.kept and not judged.fault and judged.counts["asked"] == judged.counts["installed"] == 2
        assert judged.counts["samples"] == 120 and judged.counts["after"] < judged.counts["before"]
        assert ward.versions == {"a": "roll-1", "b": "roll-1"}, "nobody takes what is only judged"
        bad = ward.roll(worse(ward.theta0), lane=1)
        assert not bad.kept and bad.fault and ward.versions == {"a": "roll-1", "b": "roll-1"}
        ward.goes_on()
    assert ward.rounds == [*range(1, len(ward.rounds) + 1)], "and no round of the training was lost or played twice"


@pytest.mark.long
def test_a_version_from_beside_a_training_outlives_a_restart_of_everybody(tmp_path: Path, quick: LocalBroker) -> None:
    key = own_key(tmp_path)
    with Ward(tmp_path, quick.url, key, evaluations=1) as ward, running(ward.training()):
        ward.goes_on()
        assert ward.roll(ward.theta0 * np.float32(1.001), lane=1).kept
        ward.goes_on()
    again = Ward(tmp_path, quick.url, key, evaluations=1)
    again.number = ward.number - 1  # the training was signed before the rollout, and is not old for that
    with again, running(again.training()):
        again.goes_on()
        assert again.versions == {"a": "roll-1", "b": "roll-1"}
        again.number = ward.number
        assert again.roll(again.theta0, lane=1, undo="roll-1").counts["reverted"] == 2
        assert again.versions == {"a": "", "b": ""}
        again.goes_on()


def test_nothing_is_trained_beside_a_training(tmp_path: Path, quick: LocalBroker) -> None:
    ward = Ward(tmp_path, quick.url, evaluations=2)
    training = Run(id="other", method="fedavg", bundle=ward.devices["a"].part.model.sha256, classes=NAMES)
    first, second = ward.devices["a"].part.lanes
    with pytest.raises(UsageError, match="nothing is trained in two runs at once"):
        first.assemble(training)
    with pytest.raises(UsageError, match="rollouts are for lane 1"):  # an old one, played again beside a newer one
        second.assemble(ward.run_of(ward.theta0))
    with ward:
        with pytest.raises(UsageError, match="nothing is trained in two runs at once"):
            ward.hospital.lanes[0].assemble(training)
        cloud = ward.cloud(ward.run_of(ward.theta0), ward.theta0, lane=2)
        with running(cloud):
            eventually(lambda: "h" in cloud.runtime.presence.refusals)
        assert ward.versions == {"a": "", "b": ""}


@pytest.mark.long
def test_a_device_that_has_no_room_beside_its_training_is_not_waited_for(tmp_path: Path, quick: LocalBroker) -> None:
    with Ward(tmp_path, quick.url, evaluations=1, without=("b",)) as ward, running(ward.training()):
        ward.goes_on()
        judged = ward.roll(ward.theta0, lane=1, only_judge=True)
        assert judged.counts["asked"] == judged.counts["installed"] == 1
        ward.goes_on()
