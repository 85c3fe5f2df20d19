"""Means of vectors that devices keep ends of (FedDyn's g_k, SCAFFOLD's c_i), where messages or disks are lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from edge_sdk.contract.method import Method
from edge_sdk.methods.feddyn import FEDDYN
from edge_sdk.methods.scaffold import SCAFFOLD
from edge_sdk.methods.shared.membership.mirror import Account
from tests.methods import test_feddyn, test_scaffold
from tests.methods.lost_disks import counted_by_era, putting_back, replacing_a_disk
from tests.methods.problems import DEVICES, HASTY, LOSSY, devices_counted, play, state


class Case(NamedTuple):
    """A method, and its tests: settings, and how far a run is from the printed algorithm. `mean`: the aggregator's."""

    method: Method
    tests: Any
    mean: str


@pytest.fixture(
    params=[Case(FEDDYN, test_feddyn, "gradient"), Case(SCAFFOLD, test_scaffold, "control")], ids=["feddyn", "scaffold"]
)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("picked", [0.5, 1.0])
def test_lost_messages_only_shrink_the_set(case: Case, seed: int, picked: float) -> None:
    settings = replace(case.tests.BASIC, participation=picked)
    net, transcript = play(case.method, settings, 40, faults=LOSSY, policies=HASTY, seed=seed)
    counted = devices_counted(transcript)
    assert len(counted) == 40 and sum(map(len, counted)) < 40 * 6 * picked * 0.9
    assert max(case.tests.errors(net, transcript, settings)) < 1e-11


@pytest.mark.parametrize("node", ["d1", "h0"])
@pytest.mark.parametrize("at", [1, 7])
def test_a_lost_disk_begins_an_era_and_leaves_no_trace_in_the_mean(case: Case, node: str, at: int) -> None:
    check_new_era(case, replacing_a_disk(case.method, node, at), at)


@pytest.mark.parametrize("at", [1, 7])
def test_a_hospital_that_is_put_back_from_a_backup_begins_an_era(case: Case, at: int) -> None:
    """The backup has not heard all whose sum was counted: told so, the others would move as if it had not been."""
    check_new_era(case, putting_back(case.method, "h0", at), at)


def check_new_era(case: Case, method: Method, at: int) -> None:
    net, transcript = play(method, case.tests.BASIC, 20)
    assert state(net, "aggregator").ledger.era == 1
    assert counted_by_era(transcript).index(None) == at
    assert max(case.tests.errors(net, transcript, case.tests.BASIC)) < 1e-11
    assert state(net, "d3").account == Account(1, 19, 18)


def test_without_the_acknowledgement_the_mean_is_lost(case: Case) -> None:
    """Why vectors are mirrored: devices that believe that all their uploads count have another mean."""

    def believing(env: Any, s: Any, sender: str, m: Any) -> Any:
        return case.method.device.receive(env, s, sender, replace(m, counted={env.me: s.account.round}))

    method = replace(case.method, device=replace(case.method.device, receive=believing))
    net, _ = play(method, case.tests.STEADY, 60, faults=LOSSY, policies=HASTY)
    mean = sum(state(net, d).tried for d in DEVICES) / 6
    assert np.abs(getattr(state(net, "aggregator"), case.mean) - mean).max() > 1e-3
