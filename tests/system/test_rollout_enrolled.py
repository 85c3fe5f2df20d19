"""Rollouts at a hospital whose devices change while they begin or go on: nobody who comes, or never does, stops one."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.nodes.models.versions import Versions
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("cryptography", reason="the extra `secure` is not installed")

from tests.system.ward import Ward, running


def test_a_device_that_is_enrolled_while_a_rollout_starts_takes_part(tmp_path: Path, quick: LocalBroker) -> None:
    """The aggregator's settings were written for two devices: the hospital once refused the rollout, for good."""
    with Ward(tmp_path, quick.url, enrolled=True) as ward, running(ward.make_device("c")) as third:
        ward.hospital.change_devices(("a", "b", "c"))
        verdict = ward.roll(ward.theta0 * np.float32(1.001))
        assert verdict.kept and verdict.counts["installed"] == 3
        eventually(lambda: third.part.working.run == "roll-1")


def test_a_device_that_has_never_come_is_not_waited_for(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole rollout once waited until it was started. When it comes, its mail has the version: that once said no
    more than that the rollout is over."""
    caplog.set_level("INFO")
    with Ward(tmp_path, quick.url, enrolled=True) as ward:
        ward.hospital.runtime.habits.wait_seconds, ward.size = 2.0, 3
        ward.hospital.change_devices(("a", "b", "c"))
        eventually(lambda: ward.hospital.runtime.presence.children.keys() == {"a", "b"})
        verdict = ward.roll(ward.theta0 * np.float32(1.001))
        assert verdict.kept and verdict.counts["asked"] >= 1
        with running(ward.make_device("c")) as third:
            eventually(third.finished.is_set)
            assert third.part.working.run == "roll-1" and third.part.versions.read()["roll-1"].confirmed
    assert re.search(r"h: goes on without .*\bc\b: not here", caplog.text)


def test_a_device_that_is_enrolled_during_a_rollout_takes_the_version_in_its_next_stage(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, tries, goes_on = Versions.attempt, threading.Event(), threading.Event()

    def slow(self: Versions, *given: Any) -> dict[str, float]:
        tries.set()
        assert goes_on.wait(60)
        return attempt(self, *given)

    monkeypatch.setattr(Versions, "attempt", slow)
    with Ward(tmp_path, quick.url, enrolled=True) as ward, running(ward.make_device("c")) as third:
        theta = ward.theta0 * np.float32(1.001)
        with running(ward.cloud(ward.run_of(theta), theta)) as cloud:
            assert tries.wait(60)
            assert ward.hospital.may_change_devices()
            ward.hospital.change_devices(("a", "b", "c"))
            eventually(lambda: "c" in ward.hospital.runtime.here)
            eventually(lambda: cloud.runtime.session.members.sizes.now == {"h": 3})
            goes_on.set()
            eventually(cloud.finished.is_set)
        assert ward.verdicts[-1].kept and ward.verdicts[-1].counts["installed"] == 3
        eventually(lambda: third.part.working.run == "roll-1")


def test_a_device_that_is_enrolled_after_a_rollout_and_one_with_another_disk_have_its_version(
    tmp_path: Path, quick: LocalBroker
) -> None:
    """The first kept the initial model, the other heard that the version stays, and had it no more."""
    with Ward(tmp_path, quick.url, enrolled=True) as ward:
        theta = ward.theta0 * np.float32(1.001)
        assert ward.roll(theta).kept
        session = ward.hospital.runtime.session
        assert session is not None
        record = session.assembly.records.encode(session.saved)
        assert len(record) < 4096 < theta.nbytes, "it is written with each answer, the version once"
        ward.devices["a"].stop()
        ward.hospital.change_devices(("a", "b", "c"))
        (tmp_path / "a").rename(tmp_path / "lost")
        with running(ward.make_device("a")) as again, running(ward.make_device("c")) as third:
            for device in (again, third):
                eventually(device.finished.is_set)
                assert device.part.working.run == "roll-1"
                assert device.part.versions.read()["roll-1"].confirmed
                assert device.part.working.kept.models["global"].tobytes() == theta.tobytes()


def test_who_comes_after_a_rollout_and_a_later_training_predicts_with_the_models_of_that(
    tmp_path: Path, quick: LocalBroker
) -> None:
    """Each lane told it its end, and the older version won."""
    with Ward(tmp_path, quick.url, evaluations=1, enrolled=True) as ward:
        theta = ward.theta0 * np.float32(1.001)
        with running(ward.cloud(ward.run_of(theta), theta, lane=1)) as cloud:
            eventually(cloud.finished.is_set)
        with running(ward.training(rounds=1)) as cloud:
            eventually(cloud.finished.is_set)
        eventually(lambda: all(device.part.working.run == "train" for device in ward.devices.values()))
        ward.hospital.change_devices(("a", "b", "c"))
        with running(ward.make_device("c")) as third:
            eventually(lambda: third.finished.is_set() and third.part.lanes[0].finished.is_set())
            assert third.part.working.run == "train" and third.part.kept.models


def test_who_comes_after_a_rollout_to_a_share_hears_of_its_end_only(tmp_path: Path, quick: LocalBroker) -> None:
    with Ward(tmp_path, quick.url, enrolled=True) as ward:
        assert ward.roll(ward.theta0 * np.float32(1.001), share=0.5).kept
        ward.hospital.change_devices(("a", "b", "c"))
        with running(ward.make_device("c")) as third:
            eventually(third.finished.is_set)
            assert third.part.working.run == ""
