"""Running statistics of batch normalisation in theta: methods average them, and nothing that corrects a gradient moves
them. A variance that a correction takes below zero is worth nothing in a prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.optim import SGD, Adam
from edge_sdk.algebra.running_statistics import step_with_statistics
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.methods import fedavg, feddyn, scaffold
from edge_sdk.methods.fedslr import method as fedslr
from edge_sdk.methods.shared.training.local import batches
from edge_sdk.methods.shared.training.parts import LAST, parts
from tests.methods.problems import DEVICES, LAYOUT, TREE, envs_of, play, state

BODY = (("norm.weight", (2,), "norm"), ("head.weight", (2, 2), "linear"), ("head.bias", (2,), "bias"))
KEPT = layout_of(*BODY, ("norm.running_mean", (2,), "norm"), ("norm.running_var", (2,), "norm"))
START = np.concatenate([np.full(8, 0.3), [0.0, 0.0], [1.0, 1.0]])
STATISTICS = slice(8, 12)
STEP = {"eta_l": 0.02, "decay": 0.9, "weight_decay": 0.05, "batch": 0, "local_epochs": 3}
SEEN = {d: np.array([0.5 + k, -k, 0.001 * (k + 1), 0.02 * (k + 1)]) for k, d in enumerate(DEVICES)}
"""Device -> means and variances of its one batch."""


def pulled(device):
    """A gradient whose statistics go a tenth of the way to the batch's in a step of 0.1: a momentum of 0.1."""

    def gradient(theta, indices=None):
        found = theta - 0.1 * len(device)
        found[STATISTICS] = theta[STATISTICS] - SEEN[device]
        return 1.0, found

    return gradient


def played(method, settings, rounds=12):
    given = {"layout": KEPT, "theta0": START}
    envs = envs_of(method, settings, rounds)
    for name, env in envs.items():
        own = {"grad_fn": pulled(name), "score": lambda theta: {"samples": 1}} if name in DEVICES else {}
        envs[name] = replace(env, **given, **own, validation=None, held_out=None)
    return play(method, settings, rounds, tree=TREE, envs=envs)[0]


def averaged(rounds, pull=0.0):
    """What FedAvg makes of statistics, uniformly over devices, by torch's momentum of 0.1 whatever the step size.

    `pull`: of a term 1/2 ||v - w||^2 in a device's loss.
    """
    w = START[STATISTICS]
    for t in range(rounds):
        ends = []
        for seen in SEEN.values():
            v = w
            for _ in range(STEP["local_epochs"]):
                v = v - 0.1 * (v - seen) - STEP["eta_l"] * STEP["decay"] ** t * pull * (v - w)
            ends.append(v)
        w = np.mean(ends, 0)
    return w


@pytest.mark.parametrize(
    ("method", "settings", "pull"),
    [
        (fedavg.FEDAVG, fedavg.Settings(**STEP, weighting="uniform"), 0.0),
        (fedavg.FEDAVG, fedavg.Settings(**STEP, weighting="uniform", proximal=0.3), 0.3),
        (fedslr.FEDSLR, fedslr.Settings(**STEP, eta_g=10.0), 0.1),
        (feddyn.FEDDYN, feddyn.Settings(**STEP, alpha=0.1), 0.1),
        (scaffold.SCAFFOLD, scaffold.Settings(**STEP, local_steps=3, eta_g=2.0), 0.0),
        (scaffold.SCAFFOLD, scaffold.Settings(**STEP, local_steps=3, control="gradient"), 0.0),
    ],
    ids=["fedavg", "fedprox", "fedslr", "feddyn", "scaffold", "scaffold by gradients"],
)
def test_methods_average_statistics_by_their_momentum(method, settings, pull):
    net = played(method, settings)
    model = state(net, "aggregator").model
    theta = model if isinstance(model, np.ndarray) else lowrank.unpack(KEPT, model)
    np.testing.assert_allclose(theta[STATISTICS], averaged(12, pull), rtol=1e-6, atol=1e-9)
    assert (theta[10:] > 0).all()


def test_a_sparse_component_has_no_statistics_of_its_own():
    net = played(fedslr.FEDSLR, fedslr.Settings(**STEP, eta_g=10.0, mu=1e-4))
    for d in DEVICES:
        assert not state(net, d).p[STATISTICS].any() and state(net, d).p[:8].any()


def test_the_last_layer_is_the_classifier_though_statistics_lie_behind_it():
    assert parts(KEPT, LAST).personal == (slice(2, 8),)
    assert parts(LAYOUT, LAST).personal == (LAYOUT.slots[-1].span,)


@pytest.mark.parametrize(
    ("samples", "least", "sizes"), [(9, 1, [4, 4, 1]), (9, 2, [4, 5]), (8, 2, [4, 4]), (3, 2, [3])]
)
def test_a_last_batch_that_is_too_small_is_joined_to_the_one_before(samples, least, sizes):
    random = np.random.default_rng(0)
    found = list(batches(random, samples, 4, 2, least))
    assert [samples if rows is None else len(rows) for rows in found] == 2 * sizes
    assert all(rows is None or len(set(rows)) == len(rows) for rows in found)


@pytest.mark.parametrize("optimiser", [SGD(0.004), Adam(0.004)], ids=["sgd", "adam"])
def test_optimisers_leave_statistics_to_their_momentum(optimiser):
    theta, seen, last = START.copy(), SEEN["d1"], START[0]
    for t in range(3):
        step_with_statistics(KEPT, optimiser, theta, pulled("d1")(theta)[1])
        np.testing.assert_allclose(theta[STATISTICS], seen + 0.9 ** (t + 1) * (START[STATISTICS] - seen), rtol=1e-12)
        assert 0 < abs(theta[0] - last) < 0.005
        last = theta[0]
