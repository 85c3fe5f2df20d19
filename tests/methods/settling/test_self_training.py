"""Devices that label their own windows, around methods that settle, over the loopback."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.environment.samples import OwnWindows
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.settling import equations, labelling, self_training
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.settling.method import Choice, Chosen, Settle, settled
from edge_sdk.methods.settling.self_training import (
    LabelChoice,
    LabelledModel,
    SelfTrainingState,
    WithLabels,
    chosen,
    self_trained,
    turns,
)
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.registration import Overclaimed
from edge_sdk.methods.shared.evaluation.evaluation import Finished, Models, Progress, evaluated
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.score_filter import limited
from tests.methods import contract
from tests.methods.problems import DEVICES, TREE, play, told
from tests.methods.settling.problems import PARTS, Network, envs_of, logits, network, no_own_model
from tests.methods.test_contract import settings_of

TREES = Settling(
    rate=0.02, batch=8, steps=(0, 5), local_steps=(10,), local_weights=(0.0, 0.5, 1.0), trees=5, copies=0,
    label_times=2, label_every=2, label_weights=(0.25, 0.75), label_thresholds=(0.6, 0.9), label_precision=0.6,
)  # fmt: skip
ROUNDS = 6
LOOSE = {d: network(np.random.default_rng([9, i]), np.unique(PARTS[d][0].y), 40) for i, d in enumerate(DEVICES)}


def own(d, lies=False):
    train, loose = PARTS[d][0], LOOSE[d]

    def taught(rows, labels):
        labels = (labels + 1) % 3 if lies else labels
        both = Network(np.concatenate([train.x, loose.x[rows]]), np.concatenate([train.y, labels]))
        return {"grad_fn": both, "samples": len(both.y)}

    recording = np.repeat(np.arange(4), 10)
    features = lambda copies, random: np.concatenate([train.x] * (copies + 1))  # noqa: E731
    return OwnWindows(train.y, features, 40, recording, lambda: loose.x, lambda w: logits(w, loose.x), taught)


def envs(method, settings, rounds, **kinds):
    found = envs_of(method, settings, rounds)
    for d in DEVICES:
        env = found[d]
        with_features = {
            name: replace(getattr(env, name), features=lambda x=PARTS[d][i].x: x)
            for i, name in ((1, "validation"), (2, "held_out"))
        }
        found[d] = replace(env, own=own(d, **kinds), **with_features)
    return found


def run(method=FEDAVG, s=TREES, **more):
    settings = method.settings(eta_l=0.05, batch=8)
    wrapped = evaluated(self_trained(settled(method, s), s))
    return play(wrapped, settings, ROUNDS, envs=envs(method, settings, ROUNDS), **more)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("method", [FEDAVG, pytest.param(FEDSLR, marks=pytest.mark.long)], ids=lambda m: m.name)
def test_contract(method, check):
    check(evaluated(self_trained(settled(method, TREES), TREES), every=3), settings_of(method))


def test_devices_label_at_their_turns_and_settle_on_labels_of_the_final_model():
    net, trace = run()
    assert turns(TREES, ROUNDS) == {2, 4}
    first, second = told(trace, LabelChoice)
    assert (first.round, second.round) == (2, 4) and first.threshold > 0
    assert first.devices == 5, "the last one knows one class, and judges nothing"
    assert [p.round for p in told(trace, Progress)] == [1, 2, 3, 4, 5, 6]
    assert len(told(trace, Choice)) == 1
    state = net.nodes["aggregator"].record.state.inner
    for d in DEVICES[:-1]:
        env = replace(net.nodes[d].env, me=d)
        (models,) = told(trace, Models, d)
        taught = labelling.taught_by(env, TREES, models.models["global"], state.choice)
        assert taught.samples > env.samples and taught.untaught is env
        shown = Chosen(
            FEDAVG.show(net.nodes["aggregator"].env, state.inner.inner), state.inner.candidate, state.inner.alone,
            state.inner.network,
        )  # fmt: skip
        again = settled(FEDAVG, TREES).models(taught, net.nodes[d].record.state.inner.inner, shown)
        assert again["personal"].tobytes() == models.models["personal"].tobytes()
        assert net.nodes[d].record.state.inner.labels.rows.size > 0


def test_no_device_makes_a_personal_model_that_the_phase_does_not_use():
    """FedAvg's own model takes passes over all samples, and was made at each turn for the global one beside it."""
    _, trace = run(no_own_model(FEDAVG))
    assert len(told(trace, LabelChoice)) == 2 and len(told(trace, Choice)) == 1


def test_a_run_grows_no_forest_twice_that_it_still_has_and_ends_as_if_it_did(monkeypatch):
    asked, grow = list[bytes](), equations.grow

    def counted(x, y, *more):
        asked.append(x.tobytes() + y.tobytes())
        return grow(x, y, *more)

    monkeypatch.setattr(equations, "grow", counted)
    _, kept = run()
    grown_kept, asked[:] = list(asked), []
    monkeypatch.setattr(equations, "KEPT_NODES", 0)  # of each device the last one only
    _, anew = run()
    for d in DEVICES:
        [before], [after] = told(kept, Models, d), told(anew, Models, d)
        assert {k: v.tobytes() for k, v in before.models.items()} == {k: v.tobytes() for k, v in after.models.items()}
    assert {*grown_kept} == {*asked} and len(grown_kept) < len(asked)


@pytest.mark.parametrize("of_before", [False, True])
def test_a_hospital_of_three_tells_no_counts_if_only_one_of_them_has_windows_to_label(monkeypatch, of_before):
    if of_before:
        monkeypatch.setattr(self_training, "of_device", lambda correct, samples: Counts(correct, samples, 1))
    s, settings = TREES, FEDAVG.settings(eta_l=0.05, batch=8)
    method = evaluated(self_trained(settled(FEDAVG, s), s))
    method = replace(method, hospital=limited(method.hospital, Allow, hospital=True))
    found = envs(FEDAVG, settings, ROUNDS)
    h0 = TREE["h0"]
    found |= {d: replace(found[d], own=replace(found[d].own, count=0)) for d in h0[1:]}
    _, trace = play(method, settings, ROUNDS, envs=found)
    size = labelling.count_size(s)
    told = [m for a, _, m in trace.crossed if a == h0[0] and isinstance(m, Counts) and m.correct.size == size]
    summed = [m for a, _, m in trace.crossed if a == "h0" and isinstance(m, Counts) and m.correct.size == size]
    assert len(h0) == 3 and told[0].samples > 0 and summed
    assert all((m.samples, m.devices, m.correct.any()) == (0, 0, False) for m in summed)


def test_a_device_that_knows_one_class_labels_nothing():
    net, _ = run()
    assert net.nodes[DEVICES[-1]].record.state.inner.labels.rows.size == 0


def test_where_no_threshold_is_precise_enough_nobody_labels():
    net, trace = run(s=replace(TREES, label_precision=1.0, label_thresholds=(0.0001,)))
    assert {c.threshold for c in told(trace, LabelChoice)} == {0.0}
    assert all(net.nodes[d].record.state.inner.labels.rows.size == 0 for d in DEVICES)


def test_a_newcomer_labels_by_the_last_words():
    net, trace = run()
    d, method = DEVICES[0], evaluated(self_trained(settled(FEDAVG, TREES), TREES))
    root = net.nodes["aggregator"]
    env = replace(net.nodes[d].env, me=d)
    state, _ = method.device.start(env)
    _, sends = method.device.receive(env, state, UP, Finished(ROUNDS, method.show(root.env, root.record.state)))
    found = next(s.message for s in sends if isinstance(s.message, Models))
    (models,) = told(trace, Models, d)
    assert found.models["personal"].tobytes() == models.models["personal"].tobytes()
    assert found.ensemble.forest.tobytes() == models.ensemble.forest.tobytes()


def test_wrong_early_labels_are_not_kept():
    """Labels are made anew at each turn from the shared model and the device's own: wrong ones of before wear off."""
    net, _ = run()
    d = DEVICES[0]
    env, w = replace(net.nodes[d].env, me=d), net.nodes["aggregator"].record.state.inner.inner.inner.model.values
    loose = LOOSE[d]
    wrong = labelling.SelfLabels(np.arange(20), (loose.y[:20] + 1) % 3)
    bad = labelling.taught(env, wrong)
    share = lambda labels: np.mean(loose.y[labels.rows] == labels.labels)  # noqa: E731
    first = labelling.label(bad, TREES, w, 0)
    assert share(labelling.label(labelling.taught(env, first), TREES, w, 0)) > share(wrong) + 0.5


def test_choices_that_are_none_are_refused():
    net, _ = run()
    method = self_trained(settled(FEDAVG, TREES), TREES)
    env = replace(net.nodes[DEVICES[0]].env, me=DEVICES[0])
    state, _ = method.device.start(env)
    with pytest.raises(PeerError, match="way 99"):
        method.device.receive(env, state, UP, WithLabels(None, 99))
    root = net.nodes["aggregator"]
    final = settled(FEDAVG, TREES).show(root.env, root.record.state.inner.inner)
    with pytest.raises(PeerError, match="way 99"):
        method.models(env, state, LabelledModel(final, 99))


def test_probabilities_are_smoothed_within_a_recording():
    p = np.log(np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.2, 0.8]]))
    apart = labelling.smoothed(p, np.array([0, 0, 1, 1]), 3)
    assert np.allclose(apart, p)
    together = np.exp(labelling.smoothed(p, np.zeros(4, np.int64), 3))
    middle = np.exp((p[0] + p[1] + p[2]) / 3)
    assert np.allclose(together[1], middle / middle.sum())
    ruled_out = np.array([[0.0, -np.inf], [0.0, -np.inf]])
    assert labelling.smoothed(ruled_out, np.zeros(2, np.int64), 3)[:, 1].tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("neighbours", [1, 2, 3, 5, 8])
def test_each_window_has_the_mean_of_its_neighbours_on_both_sides(neighbours):
    """Of the logarithms, half of the neighbours before and half after it; fewer at both ends of a recording."""
    rng, recording = np.random.default_rng(neighbours), np.array([0] * 4 + [1] * 11 + [2])
    log_q = np.log(rng.dirichlet(np.ones(3), len(recording)))
    expected = np.empty_like(log_q)
    for i, own in enumerate(recording):
        near = [j for j in range(len(recording)) if recording[j] == own and abs(i - j) <= neighbours // 2]
        expected[i] = np.exp(log_q[near].mean(0))
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(labelling.smoothed(log_q, recording, neighbours)), expected, rtol=1e-9)


def test_one_class_does_not_take_over():
    p = np.array([[0.99, 0.01]] * 50 + [[0.02, 0.98]] * 2)
    found = labelling.confident(p, 0.9, share=1.0, classes=2)
    assert np.bincount(found.labels).tolist() == [26, 2]


def test_the_choice_has_the_most_right_labels_of_those_that_are_precise_enough():
    weights, thresholds = 2, 2
    counts = np.zeros(weights + 2 * weights * thresholds, np.int64)
    counts[:2] = 5, 9
    by_option = counts[2:].reshape(2, 2, 2)
    by_option[0], by_option[1] = ((10, 9), (5, 5)), ((20, 10), (7, 7))
    assert labelling.options(TREES)[labelling.choose_labelling(TREES, counts)] == (0.25, 0.6)
    by_option[0] = (10, 5), (5, 2)
    assert labelling.options(TREES)[labelling.choose_labelling(TREES, counts)] == (0.75, 0.9)
    by_option[1] = (20, 10), (7, 3)
    assert labelling.choose_labelling(TREES, counts) == -1


def test_no_weight_tells_how_many_windows_a_device_has_labelled():
    """It would: uploads count with samples, and a hospital warns of a device that claims more than at first."""
    net, trace = run()
    assert any(net.nodes[d].record.state.inner.labels.rows.size for d in DEVICES)
    up = [(sender, m) for sender, _, m in trace.crossed if isinstance(m, Sum) and sender in DEVICES]
    assert up and all(m.weight == len(PARTS[d][0].y) for d, m in up)
    assert not [m for _, m in trace.told if isinstance(m, Overclaimed)]


def test_labels_that_do_harm_are_given_up():
    counts = np.zeros(labelling.count_size(TREES), np.int64)
    counts[1] = 76
    assert labelling.still_pays(TREES, counts, choice=3, samples=100, share=0.8)  # a standard error is 4 of 100
    counts[1] = 75
    assert not labelling.still_pays(TREES, counts, choice=3, samples=100, share=0.8)


def turn(state, right, sure_right):
    """The aggregator's state after a turn with counts of 100 samples, and what it tells."""
    counts = np.array([*right, *np.ravel(sure_right)], np.int64)
    state, sends = chosen(TREES, replace(state, counts=Counts(counts, 100, 6)), 2, [])
    return state, sends[0].message


def test_where_labels_do_harm_the_fleet_chooses_anew_and_gives_up_only_if_nothing_is_precise():
    """An attack made the shared model worse. The fleet gave up all labels, also those that forests give by themselves,
    and devices that labels had helped lost up to 12 points."""
    state, told = turn(SelfTrainingState(None), (80, 70), [[(90, 75), (50, 48)], [(90, 60), (50, 45)]])
    assert (told.weight, told.threshold, state.share) == (0.25, 0.6, 0.8)
    state, _ = turn(state, (77, 70), [[(90, 70), (50, 40)], [(90, 60), (50, 45)]])
    assert (state.choice, state.share) == (0, 0.8)  # within a standard error
    state, told = turn(state, (60, 70), [[(90, 50), (50, 20)], [(90, 66), (50, 45)]])
    assert (told.weight, told.threshold, state.share, state.given_up) == (0.75, 0.6, 0.7, False)
    nothing = [[(90, 30), (50, 20)], [(90, 50), (50, 25)]]
    state, told = turn(state, (40, 50), nothing)
    assert (told.threshold, state.choice, state.given_up) == (0.0, -1, True)
    state, _ = turn(state, (80, 70), [[(90, 75), (50, 48)], [(90, 60), (50, 45)]])
    assert (state.choice, state.given_up) == (-1, True)


@pytest.mark.parametrize("samples", [0, 10, 40])
def test_fewer_answers_at_a_later_turn_are_no_harm(samples):
    counts = np.zeros(labelling.count_size(TREES), np.int64)
    counts[1] = round(0.8 * samples)
    assert labelling.still_pays(TREES, counts, choice=3, samples=samples, share=0.8)
    assert labelling.still_pays(TREES, counts + samples, choice=3, samples=samples, share=1.0)


def test_a_device_that_missed_a_turn_drops_its_labels_when_the_fleet_gives_them_up():
    net, _ = run()
    method, d = self_trained(settled(FEDAVG, TREES), TREES), DEVICES[0]
    env, state = replace(net.nodes[d].env, me=d), net.nodes[d].record.state.inner
    assert len(state.labels.rows) and state.shown is None
    root = net.nodes["aggregator"]
    question = FEDAVG.show(root.env, root.record.state.inner.inner.inner)
    state, _ = method.device.receive(env, state, UP, WithLabels(question, -1))
    assert not len(state.labels.rows)


def test_the_choice_is_with_the_question_by_which_devices_settle():
    """Also for a device that has lost its disk since it was told: it counts with what it will keep."""
    net, _ = run()
    method, hospital = self_trained(settled(FEDAVG, TREES), TREES), net.nodes["h0"]
    here = replace(hospital.env, me="h0", here=tuple(hospital.env.sizes))
    state = replace(hospital.record.state.inner, told=here.here)
    _, sends = method.hospital.receive(here, state, UP, WithLabels(Settle(None), 3))
    assert {name for s in sends if isinstance(s.message, WithLabels) for name in s.to} == {*here.here}
