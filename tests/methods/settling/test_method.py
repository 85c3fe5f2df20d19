"""The settling phase around methods, over the loopback."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra.ensemble import log_probabilities, pooled
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.settling import equations
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.settling.method import Choice, Chosen, Settle, settled
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.evaluation.evaluation import (
    Evaluate,
    Finished,
    Models,
    Progress,
    Report,
    Scores,
    evaluated,
)
from tests.methods import contract
from tests.methods.problems import DEVICES, HASTY, SIZES, TREE, play, told
from tests.methods.settling.problems import PARTS, envs_of, logits, no_own_model
from tests.methods.test_contract import settings_of

SMALL = Settling(
    rate=0.02, batch=8, steps=(0, 5, 20), local_steps=(10, 30), local_weights=(0.0, 0.5, 1.0), keep_own=False
)
ROUNDS = 4
FITTING = [name for name, m in METHODS.items() if m.kernels == "plain"]


def run(method=FEDSLR, s=SMALL, every=0, **more):
    settings = method.settings(eta_l=0.05, batch=8, **({"eta_g": 2.0} if method is FEDSLR else {}))
    wrapped = evaluated(settled(method, s), every)
    return play(wrapped, settings, ROUNDS, envs=envs_of(method, settings, ROUNDS), **more)


def plain(net, d):
    """A device's env, as the node completes it."""
    return replace(net.nodes[d].env, me=d)


def shown(net):
    root = net.nodes["aggregator"]
    return root.record.state.inner.candidate, root.record.state.inner.inner


# The contract ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("fedavg", "fedslr") else pytest.mark.long) for name in FITTING]
)
def test_contract(name, check):
    method = evaluated(settled(METHODS[name], SMALL), every=3)
    check(method, settings_of(method))


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(FITTING)))
def test_methods_without_a_global_model_cannot_settle(name):
    with pytest.raises(UsageError, match="settling starts at a global model"):
        settled(METHODS[name], SMALL)


# One run --------------------------------------------------------------------------------------------------------
def test_the_fleet_chooses_by_the_sums_of_its_devices_counts():
    net, trace = run()
    index, state = shown(net)
    w = FEDSLR.models(net.nodes["aggregator"].env, None, FEDSLR.show(net.nodes["aggregator"].env, state))["global"]
    counted = [equations.correct_counts(plain(net, d), SMALL, w) for d in DEVICES]
    total = sum(correct for correct, _ in counted)
    assert equations.choose(SMALL, total)[0] == index
    (choice,) = told(trace, Choice)
    assert choice.correct == total[index] and choice.devices == 6
    assert choice.samples == sum(samples for _, samples in counted) == sum(len(v.y) for _, v, _ in PARTS.values())
    c = SMALL.candidates[index]
    assert (choice.steps, choice.local_steps, choice.weight) == (c.steps, c.local_steps, c.weight)


def test_devices_keep_the_models_that_were_chosen():
    net, trace = run()
    index, state = shown(net)
    env = net.nodes["aggregator"].env
    w, c = FEDSLR.models(env, None, FEDSLR.show(env, state))["global"], SMALL.candidates[index]
    (report,), correct = told(trace, Report), 0
    for d in DEVICES:
        (models,) = told(trace, Models, d)
        (personal,) = equations.component(plain(net, d), SMALL, w, (c.steps,))
        assert models.models["global"].tobytes() == w.tobytes()
        assert models.models["personal"].tobytes() == personal.tobytes()
        assert models.ensemble.weight == c.weight and models.ensemble.classes == net.nodes[d].env.own_classes
        test, known = PARTS[d][2], models.ensemble.classes
        p = [log_probabilities(logits(models.models[m], test.x), known) for m in ("personal", "local")]
        right = (pooled(*p, c.weight).argmax(1) == test.y).sum()
        (scores,) = told(trace, Scores, d)
        assert scores.sums["personal_correct"] == right
        assert scores.sums["local_correct"] == (p[1].argmax(1) == test.y).sum()
        correct += right
    assert report.final and report.sums["personal_correct"] == correct


def test_the_method_inside_does_not_notice():
    settings = FEDSLR.settings(eta_l=0.05, batch=8, eta_g=2.0)
    bare, _ = play(evaluated(FEDSLR), settings, ROUNDS, envs=envs_of(FEDSLR, settings, ROUNDS))
    net, trace = run(every=2)
    inner = net.nodes["aggregator"].record.state.inner.inner
    assert inner.model.values.tobytes() == bare.nodes["aggregator"].record.state.inner.model.values.tobytes()
    assert [p.round for p in told(trace, Progress)] == [1, 2, 3, 4]
    assert [(r.round, r.final) for r in told(trace, Report)] == [(2, False), (4, False), (4, True)]
    for name in ("aggregator", *TREE, *DEVICES):
        assert told(trace, Finished, name) == [Finished(ROUNDS)]


def test_nothing_but_counts_leaves_a_device_after_the_last_round():
    _, trace = run()
    asked = next(i for i, (_, _, m) in enumerate(trace.crossed) if isinstance(m, Settle))
    up = [m for sender, _, m in trace.crossed[asked:] if sender in DEVICES]
    assert {type(m) for m in up} == {Counts, Scores}
    assert all(
        m.correct.dtype == np.int64 and m.correct.shape == (len(SMALL.candidates),) for m in up if hasattr(m, "correct")
    )
    hospitals = [m for sender, to, m in trace.crossed if to == "aggregator" and isinstance(m, Counts)]
    assert sorted({m.devices for m in hospitals}) == sorted({*SIZES.values()})


def test_a_device_that_nobody_heard_settles_with_the_last_words():
    """Its counts and its last evaluation come too late; the last words reach it, with the model and the choice."""
    plain_net, _ = run(FEDAVG, policies=HASTY)
    evaluation = plain_net.nodes["d3"].record.above - 1
    slow = NetworkFaults(slow={("d3", evaluation - 1): 60.0, ("d3", evaluation): 90.0})
    _, trace = run(FEDAVG, policies=HASTY, faults=slow)
    (choice,) = told(trace, Choice)
    assert choice.devices == 5
    words = [m for _, to, m in trace.crossed if to == "d3" and isinstance(m, Finished)]
    assert [w.shown.candidate >= 0 for w in words] == [True]
    found = told(trace, Models, "d3")
    assert found and all(m.ensemble.weight == choice.weight for m in found)


def test_a_newcomer_settles_with_what_the_last_words_show():
    """A device that has never trained gets the final model and the fleet's choice, and nothing else."""
    net, _ = run()
    env, s = net.nodes["aggregator"].env, net.nodes["aggregator"].record.state
    method = evaluated(settled(FEDSLR, SMALL))
    new = replace(net.nodes["d4"].env, me="newcomer", seed=env.seed)
    state, _ = method.device.start(new)
    _, sends = method.device.receive(new, state, UP, Finished(ROUNDS, method.show(env, s)))
    models = next(send.message for send in sends if isinstance(send.message, Models))
    c = SMALL.candidates[s.inner.candidate]
    (personal,) = equations.component(new, SMALL, models.models["global"], (c.steps,))
    assert models.models["personal"].tobytes() == personal.tobytes()
    assert any(isinstance(send.message, Scores) for send in sends)


@pytest.mark.parametrize("name", FITTING)
def test_a_device_that_settles_from_the_global_model_makes_no_other(name):
    method = METHODS[name]
    settings = settings_of(method)
    wrapped = evaluated(settled(no_own_model(method), SMALL))
    net, trace = play(wrapped, settings, ROUNDS, envs=envs_of(method, settings, ROUNDS))
    root = net.nodes["aggregator"]
    word = method.show(root.env, root.record.state.inner.inner)
    for d in DEVICES:
        (models,) = told(trace, Models, d)
        with_state = method.models(plain(net, d), net.nodes[d].record.state.inner.inner, word)["global"]
        assert models.models["global"].tobytes() == with_state.tobytes()


def test_every_method_settles_from_its_own_model():
    method = METHODS["fedbcd"]
    settings = settings_of(method)
    from_own = evaluated(settled(method, replace(SMALL, start="personal")))
    net, trace = play(from_own, settings, ROUNDS, envs=envs_of(method, settings, ROUNDS))
    c = SMALL.candidates[net.nodes["aggregator"].record.state.inner.candidate]
    for d in DEVICES:
        (models,) = told(trace, Models, d)
        (personal,) = equations.component(plain(net, d), SMALL, net.nodes[d].record.state.inner.inner.x, (c.steps,))
        assert models.models["personal"].tobytes() == personal.tobytes()


def test_a_method_without_personal_models_has_none_to_start_from():
    with pytest.raises(UsageError, match="start = 'personal': devices of this method have the models global"):
        run(FEDAVG, replace(SMALL, start="personal"))


def test_if_nobody_answers_the_run_ends_all_the_same():
    everybody = NetworkFaults(away={d: [(0.0, inf)] for d in DEVICES})
    _, trace = run(FEDAVG, faults=everybody, policies=HASTY)
    (choice,) = told(trace, Choice)
    assert choice.samples == choice.devices == 0
    assert told(trace, Finished) == [Finished(ROUNDS)]


# Peers at fault -------------------------------------------------------------------------------------------------
def aggregator_asking():
    method = settled(FEDAVG, SMALL)
    settings = FEDAVG.settings()
    env = replace(envs_of(FEDAVG, settings, 1)["aggregator"], me="aggregator", here=tuple(TREE))
    s, _ = method.aggregator.start(env)
    s, sends = method.aggregator.close(env, s)
    assert isinstance(sends[-1].message, Settle)
    return method, env, s


@pytest.mark.parametrize(
    "message, said",
    [
        (Counts(np.zeros(3, np.int64), 5, 1), "counts 3 candidates"),
        (Counts(np.zeros(len(SMALL.candidates), np.int64), 5, 4), "counts 4 devices, it has 3"),
        (Evaluate(1, False, None), "sent Evaluate, expected Counts"),
    ],
)
def test_wrong_counts_are_refused(message, said):
    method, env, s = aggregator_asking()
    with pytest.raises(PeerError, match=said):
        method.aggregator.receive(env, s, "h0", message)


@pytest.mark.parametrize("correct, samples", [([-1], 5), ([6], 5), ([0], -1)])
def test_impossible_counts_are_refused_on_arrival(correct, samples):
    with pytest.raises(ValueError):
        Counts(np.array(correct), samples, 1).check(None)


def test_a_candidate_that_does_not_exist_is_refused():
    method = settled(FEDAVG, SMALL)
    env = replace(envs_of(FEDAVG, FEDAVG.settings(), 1)["d0"], me="d0")
    state, _ = method.device.start(env)
    root = replace(envs_of(FEDAVG, FEDAVG.settings(), 1)["aggregator"], me="aggregator")
    inner = FEDAVG.show(root, FEDAVG.aggregator.start(root)[0])
    with pytest.raises(PeerError, match="candidate 999 is chosen"):
        method.models(env, state, Chosen(inner, 999, 0))


def test_a_device_without_test_samples_is_judged_as_the_fleet_has_chosen():
    settings = FEDAVG.settings(eta_l=0.05, batch=8)
    envs = envs_of(FEDAVG, settings, ROUNDS)
    for d, (_, validation, _) in PARTS.items():
        envs[d] = replace(envs[d], score=validation.score, held_out=None)
    method = evaluated(settled(FEDAVG, SMALL))
    _, trace = play(method, settings, ROUNDS, envs=envs)
    (choice,) = told(trace, Choice)
    last = {d: [m for name, m in trace.told if name == d and isinstance(m, Scores)][-1].sums for d in DEVICES}
    assert choice.weight > 0  # or the ensemble would be the personal model alone
    assert sum(sums["personal_correct"] for sums in last.values()) == choice.correct
