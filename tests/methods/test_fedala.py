"""FedALA over three tiers against its algorithm as printed: where a device begins between w and its own last model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedala, fedavg
from edge_sdk.methods.fedala import FEDALA, Settings
from edge_sdk.methods.shared.evaluation.evaluation import Models, Report, evaluated
from tests.methods import literal
from tests.methods.literal_parts import mask
from tests.methods.problems import (
    DEVICES,
    HASTY,
    LAYOUT,
    LOSSY,
    PROBLEMS,
    SEED,
    THETA0,
    devices_counted,
    devices_that_ran,
    envs_of,
    play,
    state,
    told,
)
from tests.methods.spy import read_from_wires

BASIC = Settings(eta_l=0.05, decay=0.9, weight_decay=1e-2, batch=16, local_epochs=2, eta_w=0.1, window=3, most_epochs=9)


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def learned(i, t, w, theta, W, s, high, first):
    """Lines 6 to 9: W of the high layers, on a random share of the samples."""
    rng = np.random.default_rng([SEED, t, literal.crc32(i.encode()), 2])
    rows, means = rng.permutation(len(PROBLEMS[i].b)), []
    rows = rows[: int(s.share * len(rows))]
    while True:
        order, losses = rng.permutation(len(rows)), []
        for k in range(0, len(rows), s.batch):
            at = np.where(high, theta + (w - theta) * W, w)
            loss, gradient = PROBLEMS[i](at, rows[order[k : k + s.batch]])
            W = np.where(high, np.clip(W - s.eta_w * gradient * (w - theta), 0, 1), W)
            losses.append(loss)
        means.append(np.mean(losses))
        still = len(means) > s.window and np.std(means[-s.window :]) < s.threshold
        if not first or still or len(means) == s.most_epochs:
            return W, len(means)


def as_printed(w, s, S, ran, high):
    """Algorithm 1 in one loop. Returns w, theta and W of each device, and the epochs of each first learning."""
    theta, W, epochs = {}, {}, {}
    for t, S_t in enumerate(S):
        local = {}
        for i in ran[t]:
            v = w
            if i in theta:
                W[i], k = learned(i, t, w, theta[i], W.get(i, np.ones_like(w)), s, high, first=i not in W)
                epochs.setdefault(i, k)
                v = np.where(high, theta[i] + (w - theta[i]) * W[i], w)
            for batch in literal.shuffled(SEED, t, i, 1, len(PROBLEMS[i].b), s.batch, s.local_epochs):
                v = v - s.eta_l * s.decay**t * (PROBLEMS[i](v, batch)[1] + s.weight_decay * v)
            local[i] = theta[i] = v
        if S_t:
            n = {i: len(PROBLEMS[i].b) if s.weighting == "samples" else 1 for i in S_t}
            w = sum(n[i] * local[i] for i in S_t) / sum(n.values())
    return w, theta, W, epochs


def error(net, transcript, s, high):
    w, theta, W, epochs = as_printed(THETA0, s, devices_counted(transcript), devices_that_ran(transcript), high)
    own = [np.abs(state(net, d).theta - theta[d]).max() for d in theta]
    own += [np.abs(state(net, d).weights - W[d][high]).max() for d in W]
    return max([np.abs(model(net) - w).max(), *own]), epochs


@pytest.mark.parametrize(
    ("change", "high"),
    [
        ({}, ["linear"]),
        ({"participation": 0.5}, ["linear"]),
        ({"weighting": "uniform"}, ["linear"]),
        ({"adaptive_slots": "bias"}, ["bias"]),
        ({"adaptive_slots": "conv,bias,linear"}, ["conv", "bias", "linear"]),
        ({"threshold": 100.0}, ["linear"]),
    ],
    ids=str,
)
def test_agrees_with_the_algorithm_as_printed(change, high):
    s = replace(BASIC, **change)
    net, transcript = play(FEDALA, s, 12)
    found, epochs = error(net, transcript, s, mask(*high))
    assert found < 1e-12
    assert set(epochs) == set(DEVICES)
    if "threshold" in change:
        assert set(epochs.values()) == {4}  # any losses will do, as soon as there are more than the window
    elif not change:
        assert 9 in epochs.values() and len(set(epochs.values())) > 1  # the bound, and before it


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_only_shrink_the_set(seed):
    net, transcript = play(FEDALA, BASIC, 30, faults=LOSSY, policies=HASTY, seed=seed)
    assert sum(map(len, devices_counted(transcript))) < 30 * 6 * 0.9
    assert error(net, transcript, BASIC, mask("linear"))[0] < 1e-12


def test_weights_move_within_their_bounds_and_lower_the_loss():
    net, _ = play(FEDALA, BASIC, 6)
    for d in DEVICES:
        W = state(net, d).weights
        assert W.min() >= 0 and W.max() <= 1 and len(set(W)) > 5
    env = replace(net.nodes["d0"].env, me="d0")
    env = replace(env, settings=replace(BASIC, batch=0, share=1.0, eta_w=0.01, threshold=1e-9))
    w, theta = np.random.default_rng(3).normal(size=(2, LAYOUT.size))
    where, W = env.adaptive, np.ones(20)
    after = fedala.learned_weights(env, 0, w, theta, W, first=True)
    before, better = (PROBLEMS["d0"](fedala.aggregated(where, w, theta, x))[0] for x in (W, after))
    assert better < before


def test_where_own_and_global_model_agree_there_is_nothing_to_learn():
    env = replace(envs_of(FEDALA, BASIC, 1)["d0"], me="d0")
    W = np.full(20, 0.3)
    assert fedala.learned_weights(env, 0, THETA0, THETA0, W, first=True) is W


def test_the_learned_weights_never_cross_a_wire():
    _, transcript = play(FEDALA, BASIC, 6)
    assert read_from_wires(transcript, [s.weights for d in DEVICES for s in transcript.states[d][1:]]) == 0


def test_the_first_round_is_fedavg():
    basic = {k: getattr(BASIC, k) for k in ("eta_l", "decay", "weight_decay", "batch", "local_epochs")}
    plain, _ = play(fedavg.FEDAVG, fedavg.Settings(**basic), 1)
    net, _ = play(FEDALA, BASIC, 1)
    assert model(net).tobytes() == model(plain).tobytes()


def test_the_model_it_would_begin_with_is_judged():
    net, transcript = play(evaluated(FEDALA), replace(BASIC, decay=1.0), 15)
    (report,) = told(transcript, Report)
    assert report.sums["personal_loss"] < report.sums["global_loss"]
    for d in DEVICES:
        (found,) = told(transcript, Models, d)
        s, w = state(net, d), found.models["global"]
        begin = w.copy()
        begin[mask("linear")] = (s.theta + (w - s.theta) * np.r_[np.ones(26), s.weights])[mask("linear")]
        assert np.abs(found.models["personal"] - begin).max() < 1e-14


def test_a_device_without_samples_has_w_for_its_own():
    envs = envs_of(FEDALA, BASIC, 3)
    envs["d4"] = replace(envs["d4"], samples=0)
    net, transcript = play(evaluated(FEDALA), BASIC, 3, envs=envs)
    (found,) = told(transcript, Models, "d4")
    assert found.models["personal"].tobytes() == found.models["global"].tobytes() == model(net).tobytes()


def test_a_layer_that_the_model_has_not():
    with pytest.raises(UsageError, match="adaptive_slots = 'top': this model has no 'top'"):
        play(FEDALA, replace(BASIC, adaptive_slots="top"), 1)


@pytest.mark.parametrize(
    ("key", "value"), [("share", 0.0), ("eta_w", 0.0), ("window", 0), ("proximal", 0.1), ("fine_tune_epochs", 1)]
)
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})
