"""A version on its way to devices over a real broker: taken, halted, taken back, refused where it was changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.methods.rollout.messages import VersionOffer
from edge_sdk.nodes.models.versions import Versions
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("cryptography", reason="the extra `secure` is not installed")

from tests.system.ward import Ward, own_key, running, worse


def test_a_version_is_rolled_out_a_bad_one_is_taken_back_and_a_good_one_undone(
    tmp_path: Path, quick: LocalBroker
) -> None:
    with Ward(tmp_path, quick.url, trusted=own_key(tmp_path)) as ward:
        good = ward.roll(ward.theta0 * np.float32(1.001))
        assert good.kept and good.counts["installed"] == 2 and good.counts["samples"] == 120
        assert ward.versions == {"a": "roll-1", "b": "roll-1"}
        bad = ward.roll(worse(ward.theta0))
        assert not bad.kept and "accuracy on the devices' own held-out samples fell" in bad.fault
        assert bad.counts["installed"] == bad.counts["reverted"] == 1, "the canary took it, and went back"
        assert ward.versions == {"a": "roll-1", "b": "roll-1"}
        back = ward.roll(ward.theta0, undo="roll-1")
        assert back.counts["reverted"] == 2 and ward.versions == {"a": "", "b": ""}


def test_a_hospital_that_hands_out_another_model_is_refused(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is signed, and says which model it is for; what comes beside it is another one."""
    other = worse(np.zeros(1, np.float32))

    def lie(bundle: Any, theta: Any) -> VersionOffer:
        return VersionOffer(bundle, np.resize(other, theta.shape).astype(np.float32))

    monkeypatch.setattr("edge_sdk.methods.rollout.method.VersionOffer", Liar(lie))
    with Ward(tmp_path, quick.url, trusted=own_key(tmp_path)) as ward:
        run = ward.sign(ward.run_of(ward.theta0))
        with running(ward.cloud(run, ward.theta0)):
            eventually(lambda: any(m.startswith("h: ") and "cannot take part" in m for m in caplog.messages))
        assert "another model came than the run says" in caplog.text
        assert ward.versions == {"a": "", "b": ""}


class Liar:
    """Stands for the class of the offer where the hospital makes it; a device still knows its type."""

    def __init__(self, make: Callable[..., VersionOffer]):
        self.make = make

    def __call__(self, *given: Any) -> VersionOffer:
        return self.make(*given)

    def __instancecheck__(self, message: object) -> bool:
        return isinstance(message, VersionOffer)


def test_a_device_whose_disk_fails_while_it_tries_a_version(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of its call is saved, as after a kill; the offer is on its disk, and is tried again."""
    attempt, died = Versions.attempt, threading.Event()
    gate = threading.Event()

    def slow(self: Versions, *given: Any) -> dict[str, float]:
        if self.name == "a" and not gate.is_set():
            died.set()
            gate.wait(60)
        return attempt(self, *given)

    monkeypatch.setattr(Versions, "attempt", slow)
    with Ward(tmp_path, quick.url) as ward:
        theta = ward.theta0 * np.float32(1.001)
        with running(ward.cloud(ward.run_of(theta), theta)) as cloud:
            eventually(died.is_set)
            session = ward.devices["a"].runtime.session
            assert session is not None
            session.store.drop()
            gate.set()
            eventually(lambda: cloud.finished.is_set(), 90)
        assert ward.verdicts[-1].kept
