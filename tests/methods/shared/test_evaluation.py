"""Evaluation rounds around a method, and how everybody learns that the run is over."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.contract import node as nodes
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedslr import aggregator as fedslr_aggregator
from edge_sdk.methods.fedslr.messages import FedslrModel
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr.settings import Settings
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.scores import check_scores
from edge_sdk.methods.shared.evaluation.evaluation import (
    Evaluate,
    Finished,
    Models,
    Progress,
    Report,
    Scores,
    Watched,
    evaluated,
)
from edge_sdk.methods.shared.evaluation.reports import accuracy_spreads, judge_personal
from tests.methods.problems import DEVICES, HASTY, PROBLEMS, TREE, devices_counted, envs_of, play, state, told

SETTINGS = Settings(eta_g=0.5, lam=0.2, mu=0.1, batch=16, participation=0.5)
NODES = ("aggregator", *TREE, *DEVICES)


def packed(net):
    return state(net, "aggregator").model.values


@pytest.mark.parametrize("every, rounds", [(4, [4, 8, 10]), (5, [5, 10]), (0, [10]), (1, list(range(1, 11)))])
def test_every_device_is_asked_and_nothing_changes(every, rounds):
    plain, _ = play(FEDSLR, SETTINGS, 10)
    net, transcript = play(evaluated(FEDSLR, every), SETTINGS, 10, seed=3)
    reports = told(transcript, Report)
    assert [(r.round, r.sums["devices"], r.final) for r in reports] == [(r, 6, r == 10) for r in rounds]
    assert packed(net).tobytes() == packed(plain).tobytes()
    for d in DEVICES:
        assert state(net, d).p.tobytes() == state(plain, d).p.tobytes()
    assert [p.round for p in told(transcript, Progress)] == list(range(1, 11))  # once each


def test_the_sums_are_those_of_the_models():
    net, transcript = play(evaluated(FEDSLR), SETTINGS, 6)
    (report,), m = told(transcript, Report), FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    judged = {d: {k: PROBLEMS[d].score(t) for k, t in models_of(net, d, m).items()} for d in DEVICES}
    for kind in ("global", "personal"):
        assert report.sums[f"{kind}_correct"] == sum(j[kind]["correct"] for j in judged.values())
        shares = [j[kind]["correct"] / j[kind]["samples"] for j in judged.values()]
        assert np.isclose(report.sums[f"{kind}_accuracy"], sum(shares), rtol=1e-14)
        assert np.isclose(accuracy_spreads(report.sums)[kind], np.std(shares), rtol=1e-12)
        assert np.isclose(report.sums[f"{kind}_loss"], sum(j[kind]["loss"] for j in judged.values()), rtol=1e-14)
    assert report.sums["samples"] == sum(len(f.b) for f in PROBLEMS.values())


def test_harmed_devices_and_the_density_of_their_components_are_counted():
    net, transcript = play(evaluated(FEDSLR), SETTINGS, 6)
    (report,), m = told(transcript, Report), FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    harmed, density = 0, 0.0
    for d in DEVICES:
        models = models_of(net, d, m)
        found = {kind: PROBLEMS[d].score(theta) for kind, theta in models.items()}
        shares = {kind: score["correct"] / score["samples"] for kind, score in found.items()}
        harmed += shares["global"] - shares["personal"] > 0.01
        density += np.mean(models["personal"] != models["global"])
    assert (report.sums["personal_harmed"], report.sums["personal_density"]) == (harmed, pytest.approx(density))
    assert 0 < report.sums["personal_density"] < len(DEVICES)


def test_a_device_is_harmed_by_more_than_a_point():
    models = {"global": np.zeros(4), "personal": np.array([0.0, 1.0, 0.0, 2.0])}
    for personal, harmed in ((0.9, 0.0), (0.5, 0.0), (0.495, 0.0), (0.48, 1.0)):
        found = judge_personal(models, {"global_accuracy": 0.5, "personal_accuracy": personal})
        assert found == {"personal_harmed": harmed, "personal_density": 0.5}
    assert judge_personal(models, {"global_accuracy": 0.5}) == {}
    check_scores({"devices": 2.0, "personal_harmed": 2.0})
    with pytest.raises(ValueError, match="personal_harmed"):
        check_scores({"devices": 2.0, "personal_harmed": 3.0})


def models_of(net, d, m):
    return FEDSLR.models(net.nodes[d].env, state(net, d), m)


def test_devices_tell_their_own_scores_and_at_the_end_their_models():
    net, transcript = play(evaluated(FEDSLR, 3), SETTINGS, 6)
    shown = FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    for d in DEVICES:
        assert [m.round for m in told(transcript, Scores, d)] == [3, 6]
        (models,) = told(transcript, Models, d)
        for name, theta in models_of(net, d, shown).items():
            assert models.models[name].tobytes() == theta.tobytes()


def test_everybody_is_told_that_the_run_is_over():
    _, transcript = play(evaluated(FEDSLR), SETTINGS, 3)
    for name in NODES:
        assert told(transcript, Finished, name) == [Finished(3)]


def test_who_was_heard_gets_no_second_model():
    _, transcript = play(evaluated(FEDSLR), SETTINGS, 3)
    words = [m for _, _, m in transcript.crossed if isinstance(m, Finished)]
    assert len(words) == 9 and all(m.shown is None for m in words)


def test_a_device_that_missed_the_last_evaluation_gets_model_and_scores_with_the_last_words():
    """Its last evaluation is slow, so it is not heard; its mail arrives all the same."""
    plain, _ = play(evaluated(FEDSLR), SETTINGS, 3, policies=HASTY)
    question = max(plain.nodes["d3"].record.above - 1, 1)
    _, transcript = play(
        evaluated(FEDSLR), SETTINGS, 3, policies=HASTY, faults=NetworkFaults(slow={("d3", question): 60.0})
    )
    (report,) = told(transcript, Report)
    assert report.sums["devices"] == 5
    assert next(m for _, to, m in transcript.crossed if to == "d3" and isinstance(m, Finished)).shown is not None
    assert told(transcript, Finished, "d3") == [Finished(3)]
    models = told(transcript, Models, "d3")
    assert models and models[-1].models["personal"].tobytes() == models[0].models["personal"].tobytes()


def test_last_words_go_to_children_that_are_away_too():
    """What a durable outbox will deliver when they are back. Here: addressed, and lost."""
    away = NetworkFaults(away={"d3": [(5.0, inf)], "h2": [(5.0, inf)]})
    _, transcript = play(evaluated(FEDSLR), SETTINGS, 6, policies=HASTY, faults=away)
    to = {to: m for _, to, m in transcript.crossed if isinstance(m, Finished)}
    assert to["h2"].shown is not None and to["d3"].shown is not None and to["h0"].shown is None


def test_a_hospital_hears_the_end_late_and_passes_it_on():
    method = evaluated(FEDSLR)
    envs = envs_of(method, SETTINGS, 3)
    node = nodes.new("h0", method.hospital, envs["h0"], "aggregator", HASTY["hospital"], 0.0, ("d0", "d1"))
    node = nodes.start(node, 0.0).node
    shown = fedslr_aggregator.show(envs["aggregator"], fedslr_aggregator.aggregator_start(envs["aggregator"])[0])
    done = nodes.arrive(node, nodes.Envelope("aggregator", "h0", 9, Finished(3, shown)), 1.0)
    assert done.told == (Finished(3),)
    assert [e.to for e in done.out] == ["d0", "d1", "d2"]
    assert all(e.message.shown is shown and not e.asks for e in done.out)
    assert not done.node.record.below.owed


@pytest.mark.parametrize("name, child", [("h0", "d1"), ("aggregator", "h0")])
def test_who_was_heard_and_has_another_disk_since_is_told_the_end_with_the_model(name, child):
    net, _ = play(evaluated(FEDSLR), SETTINGS, 3)
    done = nodes.renewed(net.nodes[name], child, 99.0)
    (envelope,) = done.out
    shown = FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    assert (envelope.to, envelope.message.round, envelope.asks) == (child, 3, False) and not done.told
    assert envelope.message.shown.model.values.tobytes() == shown.model.values.tobytes()
    assert child not in done.node.record.state.heard


@pytest.mark.parametrize("name, child, others", [("h0", "d1", ("d0", "d2")), ("aggregator", "h0", ("h1", "h2"))])
def test_the_same_where_the_end_is_still_to_be_told(name, child, others):
    """All were heard in the last evaluation. A hospital is told the end later; the aggregator closes its round."""
    net, _ = play(evaluated(FEDSLR), SETTINGS, 3)
    s = net.nodes[name].record.state
    node = nodes.with_record(net.nodes[name], state=replace(s, over=False, evaluating=name == "aggregator"))
    done = nodes.renewed(node, child, 99.0)
    assert not done.out
    if name == "h0":
        word = Finished(3)
        done = nodes.arrive(done.node, nodes.Envelope("aggregator", "h0", done.node.record.above + 1, word), 99.0)
        sent = {e.to: e.message for e in done.out}
    else:
        sends = node.role.close(node.env, done.node.record.state)[1]
        sent = {to: send.message for send in sends if isinstance(send.to, tuple) for to in send.to}
    assert sent[child].shown is not None and all(sent[other] == Finished(3) for other in others)


@pytest.mark.parametrize("final", [True, False])
def test_a_hospital_that_is_asked_again_after_the_end_tells_nobody_that_the_run_is_over(final):
    """Its aggregator was put back from a backup. A device has another disk in the middle of that round."""
    net, transcript = play(evaluated(FEDSLR), SETTINGS, 3)
    shown = FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    asked = [m for _, to, m in transcript.crossed if to == "h0" and isinstance(m, FedslrModel)]
    question = Evaluate(2, True, shown) if final else asked[-1]
    h0 = net.nodes["h0"]
    node = nodes.arrive(h0, nodes.Envelope("aggregator", "h0", h0.record.above + 1, question, True), 99.0).node
    done = nodes.renewed(node, "d1", 99.5)
    assert not done.out and done.node.record.below.owed == node.record.below.owed != {}
    assert (done.node.record.state.shown is shown) == final


def test_the_model_is_made_for_who_is_told_the_end_only():
    """A method's `show` is not called in the middle of a run, where a child has another disk."""
    net, _ = play(evaluated(FEDSLR), SETTINGS, 3)
    node = net.nodes["aggregator"]
    node = nodes.with_record(node, state=replace(node.record.state, over=False, inner=None))
    assert not nodes.renewed(node, "h0", 99.0).out


def test_a_hospital_that_has_another_disk_tells_all_its_devices_the_end_with_the_model():
    net, _ = play(evaluated(FEDSLR), SETTINGS, 3)
    ends = net.nodes["aggregator"].record.last["h0"], *nodes.renewed(net.nodes["aggregator"], "h0", 99.0).out
    assert [e.message.shown is None for e in ends] == [True, False]
    h0 = net.nodes["h0"]
    node = nodes.start(nodes.new("h0", h0.role, h0.env, "aggregator", HASTY["hospital"], 0.0, TREE["h0"]), 0.0).node
    for end in ends:  # the first of them may have left before
        node = (done := nodes.arrive(node, end, 99.0)).node
    assert [e.to for e in done.out] == list(TREE["h0"]) and all(e.message.shown is not None for e in done.out)


@pytest.mark.parametrize("seed", range(4))
def test_the_end_comes_although_messages_are_lost(seed):
    faults = NetworkFaults(drop=0.3, away={"h1": [(20, 60)], "d0": [(0, inf)]}, slow={("h0", 3): 50.0})
    net, transcript = play(evaluated(FEDSLR, 4), SETTINGS, 12, faults=faults, policies=HASTY, seed=seed)
    assert [m.round for m in told(transcript, Report)] == [4, 8, 12]
    assert told(transcript, Finished) == [Finished(12)]
    assert state(net, "aggregator").round == 12


def test_devices_without_held_out_samples_are_not_among_the_devices():
    envs = envs_of(FEDSLR, SETTINGS, 2)
    envs["d1"] = replace(envs["d1"], score=None)
    envs["d2"] = replace(envs["d2"], score=lambda theta: {"samples": 0, "correct": 0})
    _, transcript = play(evaluated(FEDSLR), SETTINGS, 2, envs=envs)
    assert told(transcript, Report)[0].sums["devices"] == 4
    assert told(transcript, Scores, "d1")[0].sums == told(transcript, Scores, "d2")[0].sums == {}


def test_nobody_at_all_has_scores():
    envs = {name: replace(env, score=None) for name, env in envs_of(FEDSLR, SETTINGS, 2).items()}
    _, transcript = play(evaluated(FEDSLR), SETTINGS, 2, envs=envs)
    assert told(transcript, Report) == [Report(2, {}, True)]


def test_answers_out_of_place_cost_only_themselves():
    method = evaluated(FEDSLR)
    env = envs_of(method, SETTINGS, 3)["aggregator"]
    s, _ = method.aggregator.start(replace(env, here=tuple(TREE)))
    after, sends = method.aggregator.receive(env, s, "h0", Scores(1, {"devices": 1.0}))
    assert [x.message for x in sends] == [Refused("h0", "h0 sent Scores, expected Sum or Nobody")]
    assert after.inner is s.inner and after.guard.refusals == {"h0": 1}
    with pytest.raises(PeerError, match="h0 sent Sum, expected Scores"):
        method.aggregator.receive(env, replace(s, evaluating=True), "h0", Sum(env.theta0, 1.0))
    device = method.device.start(env)[0]
    with pytest.raises(PeerError, match="sent Scores, expected FedslrModel"):
        method.device.receive(env, device, "up", Evaluate(1, False, Scores(1, {})))


def test_the_wrapped_method_shows_and_judges_like_the_bare_one():
    method = evaluated(FEDSLR)
    net, _ = play(method, SETTINGS, 2)
    root, d0 = net.nodes["aggregator"], net.nodes["d0"]
    shown = method.show(root.env, root.record.state)
    assert isinstance(root.record.state, Watched) and shown.model is state(net, "aggregator").model
    assert set(method.models(d0.env, d0.record.state, shown)) == {"global", "personal"}
    assert set(method.models(root.env, None, shown)) == {"global"}


def test_two_wrappings_have_the_same_types():
    """A codec made from one must know the states of the other."""
    one, other = evaluated(FEDSLR, 2), evaluated(FEDSLR, 5)
    assert one.messages == other.messages
    assert all(getattr(one, t).state is getattr(other, t).state for t in ("device", "hospital", "aggregator"))


def test_evaluation_does_not_move_the_draws():
    _, plain = play(FEDSLR, SETTINGS, 8)
    _, transcript = play(evaluated(FEDSLR, 1), SETTINGS, 8)
    assert [p.sums["samples"] for p in told(transcript, Progress)] == [p.sums["samples"] for p in told(plain, Progress)]
    assert len(devices_counted(plain)) == 8
