"""Statistics of the fleet around methods, over the loopback."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract import node as nodes
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.evaluation.evaluation import Finished, evaluated
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.methods.standardising import equations
from edge_sdk.methods.standardising.messages import AskFeatures, FeatureSums, NeedStatistics, WithStatistics
from edge_sdk.methods.standardising.method import standardised
from tests.methods import contract
from tests.methods.problems import DEVICES, SEED, SIZES, TREE, play, told
from tests.methods.settling.problems import PARTS
from tests.methods.test_contract import settings_of

FEATURES, CLASSES, ROUNDS = 5, 3, 4
LAYOUT = layout_of(
    ("standardise.mean", (FEATURES,), "other"),
    ("standardise.log_scale", (FEATURES,), "other"),
    ("head.weight", (CLASSES, FEATURES), "linear"),
)
SPREAD = np.array([1.0, 100.0, 1e-3, 1.0, 1.0])
"""Units of the features: so far apart that nothing is learnt of them as they are."""


def means(x):
    return x.mean(0), (x**2).mean(0)


def logits(theta, x):
    mean, log_scale, weight = (LAYOUT.view(theta, slot) for slot in LAYOUT.slots)
    return ((x - mean) * np.exp(-log_scale)) @ weight.T


def gradient(x, y):
    def at(theta, indices=None):
        rows = slice(None) if indices is None else indices
        mean, log_scale, _ = (LAYOUT.view(theta, slot) for slot in LAYOUT.slots)
        f, z = (x[rows] - mean) * np.exp(-log_scale), logits(theta, x[rows])
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        back = (p - np.eye(CLASSES)[y[rows]]) / len(f)
        loss = -np.log(p[np.arange(len(f)), y[rows]] + 1e-12).mean()
        return float(loss), np.concatenate([np.full(2 * FEATURES, 9.0), (back.T @ f).ravel()]).astype(theta.dtype)

    return at


def envs(method, settings, rounds=ROUNDS):
    theta0 = np.concatenate([np.full(2 * FEATURES, 0.25), np.zeros(CLASSES * FEATURES)]).astype(np.float32)
    common = dict(seed=SEED, rounds=rounds, layout=LAYOUT, theta0=theta0, settings=settings)
    found = {"aggregator": method.env(**common, sizes=SIZES)}
    found |= {h: method.env(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in TREE.items()}
    for d, (train, _, test) in PARTS.items():
        x, tested = train.x * SPREAD, test.x * SPREAD
        right = lambda theta, x=tested, y=test.y: {  # noqa: E731
            "samples": len(y), "correct": int((logits(theta, x).argmax(1) == y).sum()), "loss": 0.0
        }  # fmt: skip
        found[d] = method.env(
            **common, grad_fn=gradient(x, train.y), samples=len(x), score=right, feature_means=lambda x=x: means(x)
        )
    return found


def run(method=FEDAVG, **more):
    settings = method.settings(eta_l=0.3, batch=8, local_epochs=5, weight_decay=0.1)
    return play(evaluated(standardised(method)), settings, ROUNDS, envs=envs(method, settings), **more)


def expected():
    own = [means(train.x * SPREAD) for train, _, _ in PARTS.values()]
    mean, square = (np.mean([m[i] for m in own], 0) for i in (0, 1))
    return np.concatenate([mean, np.log(np.sqrt(square - mean**2))]).astype(np.float32)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("method", [FEDAVG, pytest.param(FEDSLR, marks=pytest.mark.long)], ids=lambda m: m.name)
def test_contract(method, check):
    check(evaluated(standardised(method), every=3), settings_of(method))


@pytest.mark.parametrize("method", [FEDAVG, FEDSLR], ids=lambda m: m.name)
def test_all_models_have_the_fleets_statistics_to_the_bit_whatever_their_slots_went_through(method):
    net, trace = run(method)
    for d in DEVICES:
        (found,) = told(trace, Models, d)
        for theta in found.models.values():
            assert np.array_equal(theta[: 2 * FEATURES], expected())
    root = net.nodes["aggregator"]
    shown = evaluated(standardised(method)).show(root.env, root.record.state)
    theta = evaluated(standardised(method)).models(root.env, None, shown)["global"]
    assert np.array_equal(theta[: 2 * FEATURES], expected())


def test_a_fleet_learns_of_features_of_any_units():
    _, trace = run()
    right = 0.0
    for d in DEVICES:
        (found,) = told(trace, Models, d)
        _, _, test = PARTS[d]
        right += (logits(found.models["global"], test.x * SPREAD).argmax(1) == test.y).mean()
    assert right / len(DEVICES) > 0.7


def test_a_newcomer_is_given_them_with_the_last_words():
    net, _ = run()
    method, root, d = evaluated(standardised(FEDAVG)), net.nodes["aggregator"], DEVICES[0]
    env = replace(net.nodes[d].env, me=d)
    state, _ = method.device.start(env)
    _, sends = method.device.receive(env, state, UP, Finished(ROUNDS, method.show(root.env, root.record.state)))
    found = next(s.message for s in sends if isinstance(s.message, Models))
    assert np.array_equal(found.models["global"][: 2 * FEATURES], expected())


def test_a_device_with_another_disk_is_told_with_its_next_question_although_it_was_told_before():
    """It once lost a round, as it had to say that it knows nothing."""
    net, _ = run()
    d = TREE["h0"][0]
    before = net.nodes["h0"].record.state.inner.told
    after = nodes.renewed(net.nodes["h0"], d, 99.0).node.record.state.inner.told
    assert d in before and {*after} == {*before} - {d}


def test_a_device_that_has_lost_its_disk_says_so_and_is_told_again():
    net, _ = run()
    method, hospital, d = standardised(FEDAVG), net.nodes["h0"], TREE["h0"][0]
    env, question = replace(net.nodes[d].env, me=d), _question(net)
    fresh, _ = method.device.start(env)
    assert method.device.receive(env, fresh, UP, question)[1][0].message == NeedStatistics()
    here = replace(hospital.env, me="h0", here=TREE["h0"])
    state = hospital.record.state.inner
    assert d in state.told
    state, sends = method.hospital.receive(here, state, d, NeedStatistics())
    assert d not in state.told and not sends
    asked = WithStatistics(replace(question, pick=len(TREE["h0"])), state.statistics)
    state, sends = method.hospital.receive(here, state, UP, asked)
    to_all = {name: s.message for s in sends for name in s.to}
    assert isinstance(to_all[d], WithStatistics) and d in state.told
    assert not any(isinstance(m, WithStatistics) for name, m in to_all.items() if name != d)
    assert isinstance(method.device.receive(env, fresh, UP, to_all[d])[1][0].message, Sum)


def _question(net):
    """A question of FedAvg's, as its aggregator would send it once more."""
    root = net.nodes["aggregator"]
    return FEDAVG.show(root.env, root.record.state.inner.inner)


def test_hostile_sums_and_statistics_are_refused():
    net, _ = run()
    method, d = standardised(FEDAVG), DEVICES[0]
    env = replace(net.nodes[d].env, me=d)
    state, _ = method.device.start(env)
    for values in (np.zeros(3, np.float32), np.full(2 * FEATURES, np.nan, np.float32)):
        with pytest.raises(PeerError, match="statistics of"):
            method.device.receive(env, state, UP, WithStatistics(None, values))
    hospital = replace(net.nodes["h0"].env, me="h0", here=TREE["h0"])
    state, _ = method.hospital.receive(hospital, net.nodes["h0"].record.state.inner, UP, AskFeatures())
    zeros = np.zeros(2 * FEATURES, np.int64)
    for sums in (FeatureSums(zeros, zeros, 2), FeatureSums(zeros[:2], zeros[:2], 1)):
        with pytest.raises(PeerError):
            method.hospital.receive(hospital, state, TREE["h0"][0], sums)
    with pytest.raises(ValueError, match="means of 1 devices"):
        FeatureSums(zeros + 2**62, zeros, 1).check(LAYOUT)


def test_a_device_with_other_features_is_told_so():
    env = replace(envs(FEDAVG, FEDAVG.settings())[DEVICES[0]], feature_means=lambda: (np.zeros(3), np.zeros(3)))
    with pytest.raises(UsageError, match="has 3 features, its model standardises 5"):
        equations.own_sums(env)


def test_a_device_by_itself_standardises_with_its_own_statistics():
    env = envs(FEDAVG, FEDAVG.settings())[DEVICES[0]]
    alone, statistics = equations.by_itself(env)
    mean, square = means(PARTS[DEVICES[0]][0].x * SPREAD)
    assert np.allclose(statistics, np.concatenate([mean, np.log(np.sqrt(square - mean**2))]), rtol=1e-5)
    assert alone.grad_fn(env.theta0)[0] == env.grad_fn(equations.placed(LAYOUT, env.theta0, statistics))[0]


def test_an_env_with_samples_changed_over_standardises_too():
    d = next(iter(PARTS))
    _, other, _ = PARTS[d]
    env = envs(FEDAVG, FEDAVG.settings())[d]
    env = replace(env, swapped=lambda env: replace(env, grad_fn=gradient(other.x, other.y), samples=len(other.y)))
    statistics = np.arange(1, 2 * FEATURES + 1, dtype=np.float32)
    swapped = equations.fitted(env, statistics).swapped(env)
    loss, slope = swapped.grad_fn(env.theta0)
    wanted, raw = gradient(other.x, other.y)(equations.placed(LAYOUT, env.theta0, statistics))
    assert loss == wanted and swapped.samples == len(other.y)
    for slot in equations.slots(LAYOUT):
        raw[slot.span] = 0
    assert slope.tobytes() == raw.tobytes() and slope.any()


def test_a_hospital_whose_question_is_still_open_goes_on_with_the_aggregator():
    """Its devices' uploads are the method's, not sums of features that come too late."""
    net, _ = run()
    method, hospital, d = standardised(FEDAVG), net.nodes["h0"], TREE["h0"][0]
    here = replace(hospital.env, me="h0", here=TREE["h0"])
    state, _ = method.hospital.receive(here, hospital.record.state.inner, UP, AskFeatures())
    asked = WithStatistics(replace(_question(net), pick=len(TREE["h0"])), expected())
    state, _ = method.hospital.receive(here, state, UP, asked)
    state, _ = method.hospital.receive(here, state, d, Sum(np.ones(LAYOUT.size, np.float32), 1.0))
    _, (answer,) = method.hospital.close(here, state)
    assert isinstance(answer.message, Sum) and answer.message.count == 1


def test_other_statistics_are_told_to_everybody_again():
    net, _ = run()
    method, hospital = standardised(FEDAVG), net.nodes["h0"]
    here = replace(hospital.env, me="h0", here=TREE["h0"])
    state = replace(hospital.record.state.inner, told=TREE["h0"])
    for values, count in ((expected(), 0), (expected() + 1, len(TREE["h0"]))):
        asked = WithStatistics(replace(_question(net), pick=len(TREE["h0"])), values.astype(np.float32))
        _, sends = method.hospital.receive(here, state, UP, asked)
        assert sum(len(s.to) for s in sends if isinstance(s.message, WithStatistics)) == count


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e5, 1e6])
def test_features_of_any_size_keep_their_scale(size):
    random = np.random.default_rng(0)
    x = size * (5 + random.normal(size=(200, FEATURES)))
    env = replace(envs(FEDAVG, FEDAVG.settings())[DEVICES[0]], feature_means=lambda: means(x))
    _, statistics = equations.by_itself(env)
    assert np.allclose(np.exp(statistics[FEATURES:]), x.std(0), rtol=1e-3)


def test_moments_that_no_samples_have_are_refused():
    net, _ = run()
    method, hospital = standardised(FEDAVG), replace(net.nodes["h0"].env, me="h0", here=TREE["h0"])
    state, _ = method.hospital.receive(hospital, net.nodes["h0"].record.state.inner, UP, AskFeatures())
    high = np.concatenate([np.full(FEATURES, 2**30), np.zeros(FEATURES)]).astype(np.int64)
    with pytest.raises(PeerError, match="below the squares of means"):
        method.hospital.receive(hospital, state, TREE["h0"][0], FeatureSums(high, np.zeros_like(high), 1))


def test_a_bad_device_does_not_move_the_statistics_where_the_run_has_a_robust_rule():
    """Its moments are sound, and a thousand times as large as everybody's."""

    def statistics(bad, *at):
        method = standardised(FEDAVG, *at)
        settings = method.settings(eta_l=0.3, batch=8, local_epochs=1)
        nodes = envs(method, settings)
        if bad:
            own = nodes[DEVICES[0]].feature_means
            nodes[DEVICES[0]] = replace(
                nodes[DEVICES[0]], feature_means=lambda: tuple(1e3 ** (i + 1) * v for i, v in enumerate(own()))
            )
        net, _ = play(evaluated(method), settings, ROUNDS, envs=nodes)
        return net.nodes["aggregator"].record.state.inner.statistics

    honest, plain = statistics(False), statistics(True)
    assert abs(plain - honest)[FEATURES:].max() > 3
    assert abs(statistics(True, True) - honest)[FEATURES:].max() < 1.5


def test_the_largest_means_that_are_told_fit_the_message():
    env = envs(FEDAVG, FEDAVG.settings())["d0"]
    huge = replace(env, feature_means=lambda: (np.full(FEATURES, -1e30), np.full(FEATURES, 1e60)))
    m = equations.own_sums(huge)
    m.check(LAYOUT)
    mean, square = equations.moments(m.high, m.low, 1)
    assert (mean == -(2.0**24)).all() and (square == 2.0**48).all()


def test_remainders_that_no_number_leaves_are_refused():
    """Two devices once made such a sum of their hospital's overflow, and the aggregator refused all of it."""
    zero = np.zeros(2 * FEATURES, np.int64)
    FeatureSums(zero, zero + 2**49, 1).check(LAYOUT)
    for low in (2**62, -(2**62), -(2**63)):
        with pytest.raises(ValueError, match="means of 1 devices"):
            FeatureSums(zero, zero + low, 1).check(LAYOUT)


def test_of_nobody_means_are_0_and_scales_1():
    nobody = equations.nothing(LAYOUT)
    found = equations.statistics_of(LAYOUT, nobody.high, nobody.low, 0)
    assert found.dtype == np.float32 and found.tolist() == [0.0] * (2 * FEATURES)


WIDE = {"h0": tuple(DEVICES[:5]), "h1": tuple(DEVICES[5:])}


def statistics_where_one_lies(times, method):
    """The fleet's, of five devices in one hospital and the rest in another; one of the five multiplies its features."""
    settings = FEDAVG.settings(eta_l=0.3, batch=8)
    found, liar = envs(FEDAVG, settings), DEVICES[1]
    x = times * PARTS[liar][0].x * SPREAD
    found[liar] = replace(found[liar], feature_means=lambda: means(x))
    found |= {h: replace(found[h], sizes=dict.fromkeys(devices, 1)) for h, devices in WIDE.items()}
    found["aggregator"] = replace(found["aggregator"], sizes={h: len(devices) for h, devices in WIDE.items()})
    net, _ = play(evaluated(method), settings, ROUNDS, envs=found, tree=WIDE)
    return net.nodes["aggregator"].record.state.inner.statistics


def test_a_device_whose_features_are_a_hundred_times_as_large_stretches_nobodys_scale():
    """Without a rule in the run. Its share of the fleet's scale is that of a device at the edge of the others."""
    honest, found = (statistics_where_one_lies(times, standardised(FEDAVG)) for times in (1.0, 100.0))
    assert (abs(found[FEATURES:] - honest[FEATURES:]) < np.log(3)).all()
