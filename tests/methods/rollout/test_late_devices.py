"""Devices that leave during a rollout, were not asked in it, or come when it is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.method import OUT, UP
from edge_sdk.methods.rollout.messages import (
    RolloutOver,
    StageOver,
    VersionKept,
    VersionLeave,
    VersionOrder,
    VersionStays,
    VersionTaken,
)
from edge_sdk.methods.rollout.method import (
    AggregatorState,
    DeviceState,
    Env,
    HospitalState,
    aggregator_close,
    device_receive,
    hospital_receive,
    hospital_renew,
)
from edge_sdk.methods.rollout.plan import Settings
from edge_sdk.methods.shared.evaluation.evaluation import Finished

BUNDLE, THETA = np.arange(9, dtype=np.uint8), np.ones(4, np.float32)
SOUND = {"installed": 1.0, "samples": 10.0, "before": 6.0, "after": 7.0}
STAYS = VersionStays(BUNDLE, THETA)


@pytest.mark.parametrize(
    ("settings", "kept", "late"),
    [({}, True, STAYS), ({"share": 0.5}, True, RolloutOver(True)), ({"devices": ("d0",)}, True, RolloutOver(True)),
     ({}, False, RolloutOver(False))],
)  # fmt: skip
def test_who_was_not_asked_has_the_version_with_the_end_of_a_rollout_to_all(
    settings: dict[str, Any], kept: bool, late: Any
) -> None:
    env = Env(settings=Settings(theta="ab", **settings), sizes={"d0": 1, "d1": 1}, find_version=lambda: STAYS)
    s, sends = hospital_receive(env, HospitalState(asked=("d0",)), UP, RolloutOver(kept))
    heard = {device: m.message for m in sends if m.to != OUT for device in m.to}
    assert heard == {"d0": RolloutOver(kept), "d1": late} and not any(m.answer for m in sends if m.to != OUT)
    assert [m.message for m in hospital_renew(env, s, "d1")[1]] == [late]
    assert [m.message for m in hospital_renew(env, s, "d0")[1]] == [STAYS if kept else RolloutOver(False)]


def test_a_device_that_comes_while_others_leave_a_version_ends_no_round() -> None:
    """The aggregator, put back from a backup, takes back what it had said to be over: the hospital was silent then."""
    env = Env(sizes={"d0": 1}, here=("d0",))
    s, _ = hospital_receive(env, HospitalState(asked=("d0",), over=True), UP, VersionLeave(""))
    assert hospital_renew(env, s, "d1") == (s, [])


@pytest.mark.parametrize("known", [RolloutOver(True), STAYS])
def test_a_device_that_knows_the_end_takes_the_version_no_more(known: Any) -> None:
    """It was removed and enrolled again: what it predicts with may be of a later run."""
    env = Env(verify=lambda bundle, theta: None, attempt=lambda bundle, theta: SOUND)
    s, sends = device_receive(env, DeviceState(), UP, known)
    assert any(isinstance(m.message, VersionTaken) for m in sends) == (known is STAYS)
    _, sends = device_receive(env, s, UP, STAYS)
    assert [m.message for m in sends] == [VersionKept(), Finished(0)]


def test_devices_that_leave_during_a_rollout_are_asked_no_more_and_fill_no_place() -> None:
    env = Env(sizes={"d1": 1, "d2": 1}, here=("d1", "d2"), verify=lambda bundle, theta: None)
    s = HospitalState(asked=("d0", "d1"))
    after, sends = hospital_receive(env, s, UP, VersionOrder(2, 2, BUNDLE, THETA))
    assert [m.to for m in sends if m.to != OUT] == [("d2",)] and after.latest == 1
    _, [back] = hospital_receive(env, after, UP, VersionLeave(""))
    assert back.to == ("d1", "d2")


@pytest.mark.parametrize(("devices", "is_last"), [(1, True), (2, True), (3, False), (9, False)])
def test_a_rollout_ends_whatever_number_of_devices_there_are_by_then(devices: int, is_last: bool) -> None:
    """It began with five, in stages of 1, 2, 4 and 5; this is the close of the second."""
    env = Env(settings=Settings(theta="ab"), sizes={"h0": devices}, here=("h0",), bundle=BUNDLE, theta=THETA)
    s = AggregatorState(stage=2, counts={"asked": 2.0, "answered": 2.0, "installed": 2.0})
    after, sends = aggregator_close(env, s)
    [over] = [m.message for m in sends if isinstance(m.message, StageOver)]
    assert over.stages >= over.stage and over.target == devices
    assert after.over == after.kept == is_last and after.stage == (2 if is_last else 3)
