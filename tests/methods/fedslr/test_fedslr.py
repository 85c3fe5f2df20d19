"""FedSLR over three tiers against Algorithm 2, also where messages are lost, and its wrong readings."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods.fedslr import aggregator as fedslr_aggregator
from edge_sdk.methods.fedslr import device as fedslr_device
from edge_sdk.methods.fedslr.method import FEDSLR
from tests.methods import literal
from tests.methods.fedslr.fedslr_runs import FULL_BATCH, PAPER_LIKE, agrees, model
from tests.methods.problems import (
    DEVICES,
    HASTY,
    LOSSY,
    PROBLEMS,
    THETA0,
    devices_counted,
    devices_that_ran,
    play,
    state,
)


# Three tiers against the literal algorithm ----------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("settings", [FULL_BATCH, PAPER_LIKE], ids=["full batch", "mini-batches"])
def test_full_participation(settings, seed):
    net, transcript = play(FEDSLR, settings, 20, seed=seed)
    assert devices_counted(transcript) == [list(DEVICES)] * 20
    error, gamma, p = agrees(net, transcript, settings)
    assert error < 1e-12
    assert max(np.abs(state(net, d).tried - gamma[d]).max() for d in DEVICES) < 1e-11
    assert max(np.abs(state(net, d).p - p[d]).max() for d in DEVICES) < 1e-12
    assert transcript.refused  # duplicates did arrive


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("picked", [3.0, 0.5])
def test_partial_participation(seed, picked):
    settings = replace(PAPER_LIKE, participation=picked)
    net, transcript = play(FEDSLR, settings, 40, seed=seed)
    S = devices_counted(transcript)
    assert all(len(s) == 3 for s in S) and len({tuple(s) for s in S}) > 8
    error, _, p = agrees(net, transcript, settings)
    assert error < 1e-12
    assert max(np.abs(state(net, d).p - p[d]).max() for d in DEVICES) < 1e-12


def test_bernoulli_participation():
    settings = replace(FULL_BATCH, participation=0.4, selection="bernoulli")
    net, transcript = play(FEDSLR, settings, 40)
    sizes = [len(s) for s in devices_counted(transcript)]
    assert min(sizes) >= 1 and len(set(sizes)) >= 4
    assert agrees(net, transcript, settings)[0] < 1e-12


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("picked", [0.5, 1.0])
def test_lost_messages_only_shrink_the_set(seed, picked):
    settings = replace(PAPER_LIKE, participation=picked)
    net, transcript = play(FEDSLR, settings, 40, faults=LOSSY, policies=HASTY, seed=seed)
    S = devices_counted(transcript)
    assert len(S) == 40 and sum(map(len, S)) < 40 * 6 * picked * 0.9
    error, _, p = agrees(net, transcript, settings)
    assert error < 1e-12
    assert max(np.abs(state(net, d).p - p[d]).max() for d in DEVICES) < 1e-12


def test_a_device_that_never_answers():
    faults = NetworkFaults(away={"d5": [(0, inf)], "d1": [(0, inf)]})
    net, transcript = play(FEDSLR, FULL_BATCH, 20, faults=faults, policies=HASTY)
    assert devices_counted(transcript) == [["d0", "d2", "d3", "d4"]] * 20
    assert agrees(net, transcript, FULL_BATCH)[0] < 1e-12


def test_everybody_away_for_a_while():
    faults = NetworkFaults(away={d: [(20, 45)] for d in DEVICES})
    net, transcript = play(FEDSLR, FULL_BATCH, 20, faults=faults, policies=HASTY)
    S = devices_counted(transcript)
    assert [] in S and len(S[-1]) == 6
    assert agrees(net, transcript, FULL_BATCH)[0] < 1e-12


def test_without_the_acknowledgement_the_fixed_point_is_lost():
    """Why gamma is mirrored: a device that believes that all its uploads count spoils the mean of gamma for ever."""

    def believing(env, s, sender, m):
        return fedslr_device.device_receive(env, s, sender, replace(m, counted={env.me: s.account.round}))

    method = replace(FEDSLR, device=replace(FEDSLR.device, receive=believing))
    net, transcript = play(method, FULL_BATCH, 60, faults=NetworkFaults(drop=0.15), policies=HASTY)
    path, _, _ = literal.fedslr(PROBLEMS, THETA0, FULL_BATCH, devices_counted(transcript), devices_that_ran(transcript))
    assert np.abs(model(net) - path[-1]).max() > 1e-3


def test_the_step_size_follows_the_global_round_of_a_device_that_was_away():
    settings = replace(PAPER_LIKE, decay=0.5, participation=1.0)
    net, transcript = play(FEDSLR, settings, 12, faults=NetworkFaults(away={"d3": [(8, 30)]}), policies=HASTY)
    S = devices_counted(transcript)
    assert 0 < sum("d3" in s for s in S) < 12
    assert agrees(net, transcript, settings)[0] < 1e-12


# Wrong readings -------------------------------------------------------------------------------------------------
def test_A1_gamma_divided_by_eta_g_is_another_algorithm():
    settings = replace(FULL_BATCH, eta_g=0.2)
    net, transcript = play(FEDSLR, settings, 20)
    assert agrees(net, transcript, settings)[0] < 1e-12
    wrong = agrees(net, transcript, settings, gamma_times=1 / settings.eta_g)[0]
    assert not wrong < 1e3  # it diverges


def test_A2_gamma_averaged_over_the_picked_never_settles():
    settings = replace(FULL_BATCH, eta_g=0.2, local_epochs=60, participation=0.34)
    S = devices_counted(play(FEDSLR, replace(settings, local_epochs=1), 600)[1])
    moves = {}
    for over in ("all", "S"):
        path, _, _ = literal.fedslr(PROBLEMS, THETA0, replace(settings, personal_epochs=0), S, gamma_over=over)
        moves[over] = np.mean([np.linalg.norm(b - a) for a, b in zip(path[-50:], path[-49:], strict=False)])
    assert moves["all"] < 1e-3 * moves["S"]


def test_A2_as_a_fault_of_the_aggregator_is_seen():
    """1/|S_t| in place of 1/M for the mean of gamma."""

    def close(env, s):
        return fedslr_aggregator.aggregator_close(replace(env, sizes={"h": s.tally.count}) if s.tally else env, s)

    faulty = replace(FEDSLR, aggregator=replace(FEDSLR.aggregator, close=close))
    settings = replace(PAPER_LIKE, participation=0.5)
    net, transcript = play(faulty, settings, 1)
    assert agrees(net, transcript, settings)[0] > 1e-3
