"""FedSLR's reductions, R1 to R9: what it becomes, and what must not depend on what."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedslr import equations as fedslr_equations
from edge_sdk.methods.fedslr.method import FEDSLR
from tests.methods import literal
from tests.methods.fedslr.fedslr_runs import FULL_BATCH, PAPER_LIKE, model
from tests.methods.problems import DEVICES, LAYOUT, PROBLEMS, SEED, THETA0, devices_counted, envs_of, play, state


def test_R1_without_the_penalty_it_is_feddyn():
    settings = replace(FULL_BATCH, lam=0.0, participation=0.5)
    net, transcript = play(FEDSLR, settings, 30)
    alpha, h, w = 1 / settings.eta_g, np.zeros_like(THETA0), THETA0
    grad = {i: np.zeros_like(w) for i in DEVICES}
    for S_t in devices_counted(transcript):
        local = {}
        for i in S_t:
            v = w
            for _ in range(settings.local_epochs):
                v = v - settings.eta_l * (PROBLEMS[i](v)[1] - grad[i] + alpha * (v - w))
            local[i], grad[i] = v, grad[i] - alpha * (v - w)
        h = h - alpha / len(DEVICES) * sum(local[i] - w for i in S_t)
        w = sum(local.values()) / len(S_t) - h / alpha
    assert np.abs(model(net) - w).max() < 1e-12


def test_R2_without_gamma_it_is_fedprox():
    """Phase I with gamma = 0 is FedProx's local step."""
    settings = replace(PAPER_LIKE, lam=0.0)
    env = replace(envs_of(FEDSLR, settings, 1)["d2"], me="d2")
    mine, _ = fedslr_equations.local_phase(env, 3, THETA0, np.zeros_like(THETA0))
    theirs = fedavg.Settings(
        **{k: getattr(settings, k) for k in ("eta_l", "decay", "weight_decay", "batch", "local_epochs")},
        proximal=1 / settings.eta_g,
    )
    other = replace(envs_of(fedavg.FEDAVG, theirs, 1)["d2"], me="d2")
    prox, _ = fedavg.client_update(other, 3, THETA0, 2, fedavg.TRAINING)
    assert np.abs(mine - prox).max() < 1e-14


@pytest.mark.parametrize("change", [{"mu": 1e6}, {"personal_epochs": 0}], ids=str)
def test_R3_no_personal_component(change):
    net, _trace = play(FEDSLR, replace(PAPER_LIKE, **change), 6)
    shown = FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    for d in DEVICES:
        models = FEDSLR.models(net.nodes[d].env, state(net, d), shown)
        assert models["personal"].tobytes() == models["global"].tobytes()


def test_R3_mu_zero_is_fine_tuning():
    env = replace(envs_of(FEDSLR, replace(PAPER_LIKE, mu=0.0, personal_weight_decay=False), 1)["d2"], me="d2")
    p = fedslr_equations.local_fusion(env, 0, THETA0, np.zeros_like(THETA0))
    v = THETA0
    for batch in literal.shuffled(SEED, 0, "d2", 2, env.samples, 16, 1):
        v = v - 0.1 * PROBLEMS["d2"](v, batch)[1]
    assert np.abs(THETA0 + p - v).max() < 1e-13 and (p != 0).all()


def test_R4_lambda_very_large_leaves_only_what_has_no_matrix():
    net, _ = play(FEDSLR, replace(PAPER_LIKE, lam=1e6), 3)
    packed = state(net, "aggregator").model
    assert packed.ranks == (0, 0)
    assert lowrank.floats(LAYOUT, packed.ranks) == packed.values.size == 2
    w = model(net)
    assert np.count_nonzero(w) == 2 and (w[LAYOUT.slots[1].span] != 0).all()


def test_R5_w_gamma_and_cost_do_not_depend_on_phase_two():
    changes = {}, {"mu": 9.0, "personal_epochs": 3}
    runs = [play(FEDSLR, replace(PAPER_LIKE, participation=0.5, **c), 12)[0] for c in changes]
    a, b = (state(net, "aggregator") for net in runs)
    assert a.model.values.tobytes() == b.model.values.tobytes() and a.model.ranks == b.model.ranks
    assert a.gamma_mean.tobytes() == b.gamma_mean.tobytes()
    for d in DEVICES:
        one, other = (state(net, d) for net in runs)
        assert one.tried.tobytes() == other.tried.tobytes()
        assert (one.p != other.p).any() or one.round < 0


def test_R6_one_mean_is_as_good_as_all_gammas():
    """Algorithm 3 against the mean that Algorithm 2 takes of the devices' own gammas; R9 with it."""
    settings = replace(PAPER_LIKE, participation=0.5)
    net, transcript = play(FEDSLR, settings, 25)
    last = devices_counted(transcript)
    moved = {d: state(net, d).tried for d in DEVICES}  # without loss every try was counted
    assert np.abs(sum(moved.values()) / 6 - state(net, "aggregator").gamma_mean).max() < 1e-13
    assert len(last) == 25


def test_R9_in_float32_the_mirror_stays_within_rounding():
    envs = envs_of(FEDSLR, PAPER_LIKE, 25, np.float32)
    net, _ = play(FEDSLR, PAPER_LIKE, 25, envs=envs)
    mean = sum(state(net, d).tried.astype(np.float64) for d in DEVICES) / 6
    assert state(net, "aggregator").gamma_mean.dtype == state(net, "d0").p.dtype == np.float32
    assert np.abs(mean - state(net, "aggregator").gamma_mean).max() < 1e-5
