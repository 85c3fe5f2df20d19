"""What a device predicts with where its own validation samples say that it is better off alone."""

from dataclasses import replace
from math import log
from typing import get_type_hints

import numpy as np
import pytest

from edge_sdk.algebra.ensemble import Ensemble, combined
from edge_sdk.algebra.forest import pack
from edge_sdk.contract.environment.samples import Labelled, OutputScores, SelfLabels
from edge_sdk.contract.method import UP, NodeEnv
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.settling import labelling, own_line
from edge_sdk.methods.settling.equations import forest
from edge_sdk.methods.settling.method import settled
from edge_sdk.methods.settling.own_line import FLOOR, OWN_WEIGHTS, behind_own_line, best_alone, losses_of, mean_loss
from edge_sdk.methods.settling.self_training import self_trained
from edge_sdk.methods.settling.settings import TAUGHT_FOREST, Settling
from edge_sdk.methods.shared.evaluation.beside import FOREST, OWN, OwnKept, with_forest
from edge_sdk.methods.shared.evaluation.evaluation import Finished, Models, evaluated
from tests.methods.problems import DEVICES, TREE, play, told
from tests.methods.settling.problems import PARTS, envs_of, logits
from tests.methods.settling.test_self_training import LOOSE, TREES, envs

S = Settling(rate=0.02, batch=8, steps=(0, 20), local_steps=(30,), local_weights=(0.0, 0.5, 1.0))

AS_IT_IS = replace(S, local_weights=(0.0,), steps=(0,))
"""The fleet has no choice but the shared model as it is."""

# Literals -------------------------------------------------------------------------------------------------------
LABELS = np.array([0, 1, 1] * 4, np.int64)


def judged_by_row(theta):
    """The "model" is its own logits of three samples, two classes; there are four of each."""
    return np.tile(theta.reshape(3, 2).astype(np.float64), (len(LABELS) // 3, 1))


def env_of(labels=LABELS, **more):
    judged = Labelled(labels, judged_by_row)
    return NodeEnv(seed=0, rounds=1, layout=None, theta0=None, settings=None, validation=judged, own_classes=(0, 1))


def saying(*p):
    """Logits that give these probabilities to class 1."""
    return np.array([[log(1 - q), log(q)] for q in p]).ravel()


def giving(found):
    """What the fleet has chosen, made in one way whatever a device trains on."""
    return lambda env: found


def test_the_loss_is_bounded():
    models = {"personal": saying(0.5, 0.25, 0.001), "local": saying(0.5, 0.5, 0.5)}
    expected = (log(2) + log(4) + log(1 / FLOOR)) / 3  # a third of the samples each
    assert mean_loss(env_of().validation, models, 0.0, (0, 1)) == pytest.approx(expected)


def test_the_smaller_loss_decides_where_it_is_smaller_by_more_than_two():
    """All are right on all samples, so counts would not tell: of 12 the losses are 7.17, 4.90 and 5.49."""
    found = {"global": saying(0.5, 0.5, 0.5), "personal": saying(0.45, 0.55, 0.55), "local": saying(0.4, 0.7, 0.7)}
    kept = behind_own_line(env_of(), S, 0.0, giving(found))
    assert np.array_equal(kept["personal"], found["local"]) and np.array_equal(kept["global"], found["global"])
    loss = [-log(0.55), -(log(0.6) + 2 * log(0.7)) / 3]
    assert kept[OWN] == pytest.approx([*loss, 12, 0.0]) and 12 * (loss[0] - loss[1]) == pytest.approx(2.278, abs=1e-3)
    closer = {**found, "local": saying(0.4, 0.65, 0.65)}
    assert 12 * loss[0] + 4 * (log(0.6) + 2 * log(0.65)) == pytest.approx(1.686, abs=2e-3)
    assert behind_own_line(env_of(), S, 0.0, giving(closer)) is closer
    assert behind_own_line(env_of(), replace(S, keep_own=False), 0.0, giving(found)) is found
    swapped = {**found, "personal": found["local"], "local": found["personal"]}
    assert behind_own_line(env_of(), S, 0.0, giving(swapped)) is swapped


def two_looks(found, second, times=1):
    """An env that gives other labels when samples are changed over, and what is made of both: `found`, `second`."""
    labels = np.tile(1 - LABELS, times)
    judged = Labelled(labels, lambda theta: np.tile(judged_by_row(theta), (times, 1)))
    env = replace(env_of(), swapped=lambda env: replace(env, validation=judged, me="other"))
    return env, lambda env: second if env.me == "other" else found


@pytest.mark.parametrize("times", [1, 3])
def test_a_second_look_sees_what_the_validation_samples_do_not(times):
    """By 12 samples what is made alone is behind by 0.2 of losses; by the 12 others ahead by 4.9: above twice two.

    36 others, by which models of 12 samples are judged, count as 12.
    """
    found = {"personal": saying(0.3, 0.7, 0.7), "local": saying(0.33, 0.7, 0.7)}
    second = {"personal": saying(0.4, 0.6, 0.6), "local": saying(0.6, 0.4, 0.4)}
    env, make = two_looks(found, second, times)
    assert behind_own_line(replace(env, swapped=None), S, 0.0, make) is found
    kept = behind_own_line(env, S, 0.0, make)
    losses = [(-log(0.7) - log(0.4)) / 2, (-(log(0.67) + 2 * log(0.7)) / 3 - log(0.6)) / 2]
    assert kept["personal"] is found["local"] and kept[OWN] == pytest.approx([*losses, 24, 0.0])
    closer = {"personal": second["personal"], "local": saying(0.5, 0.5, 0.5)}  # by 2.0, above two and not above four
    assert behind_own_line(env, S, 0.0, two_looks(found, closer, times)[1]) is found


def test_nobody_looks_twice_who_is_sure_by_one_look():
    def none(env):
        raise AssertionError("a second look")

    better, far = saying(0.2, 0.8, 0.8), saying(0.5, 0.5, 0.5)
    env = replace(env_of(), swapped=none)
    for personal, local in ((far, better), (better, far)):
        kept = behind_own_line(env, S, 0.0, giving({"personal": personal, "local": local}))
        assert np.array_equal(kept["personal"], better)


def test_of_values_the_smaller_error_decides_where_enough_samples_say_so():
    """Errors of 4 and of 2 % of a range: n log 2 is above two from three samples on."""
    for n, falls_back in ((2, False), (3, True)):
        y = np.zeros(n)
        scores = OutputScores(lambda z, y=y: 1 - np.abs(z - y), dict)
        judged = Labelled(y, lambda theta, n=n: np.full(n, theta[0]), scores=scores)
        env = replace(env_of(), validation=judged)
        found = {"global": np.array([0.3]), "personal": np.array([0.04]), "local": np.array([0.02])}
        kept = behind_own_line(env, S, 0.0, lambda env, found=found: found)
        assert (kept["personal"] is found["local"]) == falls_back
        if falls_back:
            assert kept[OWN][:3] == pytest.approx([log(40), log(20), n])
        mixture = behind_own_line(env, S, 1.0, lambda env, found=found: found)
        assert OWN not in mixture, "the fleet's choice is the local model already"


def test_of_equal_ones_and_without_samples_the_fleets_choice_stays():
    same = {"global": saying(0.5, 0.5, 0.5), "personal": saying(0.4, 0.6, 0.6), "local": saying(0.4, 0.6, 0.6)}
    assert behind_own_line(env_of(), S, 0.0, giving(same)) is same
    nobody = {**same, "local": saying(0.1, 0.9, 0.9)}
    for env in (env_of(np.zeros(0, np.int64)), replace(env_of(), validation=None)):
        assert behind_own_line(env, S, 0.0, giving(nobody)) is nobody


def test_the_ensemble_takes_the_weight_and_what_is_no_model_goes():
    models = {"personal": saying(0.5, 0.5, 0.5), FOREST: np.ones(4, np.float32), OWN: np.array([0.6, 0.4, 3, 0.5])}
    rest, ensemble = with_forest(models, Ensemble(0.25, (0, 1)))
    assert rest.keys() == {"personal"} and ensemble.weight == 0.5 and len(ensemble.forest) == 4
    assert with_forest({"personal": models["personal"]}, Ensemble(0.25))[1].weight == 0.25


# Whole runs -----------------------------------------------------------------------------------------------------
def poisoned(method):
    """The method, whose aggregator shows a model that says the opposite of what it has learnt."""
    show = method.show

    def shown(env, s):
        m = show(env, s)
        return replace(m, model=replace(m.model, values=-5 * m.model.values))

    shown.__annotations__["return"] = get_type_hints(show)["return"]
    return replace(method, show=shown)


def run(method=FEDAVG, s=S):
    settings = method.settings(eta_l=0.05, batch=8)
    return play(evaluated(settled(method, s)), settings, 4, envs=envs_of(method, settings, 4))[1]


def right(models, d):
    x, y = PARTS[d][2].x, PARTS[d][2].y
    p = combined(models.ensemble, logits(models.models["personal"], x), lambda: logits(models.models["local"], x), None)
    return int((p.argmax(1) == y).sum())


def test_a_poisoned_model_costs_devices_what_they_would_have_gained_and_next_to_nothing_else():
    s = AS_IT_IS
    bare, guarded = run(poisoned(FEDAVG), replace(s, keep_own=False)), run(poisoned(FEDAVG), s)
    total = np.zeros(3, int)
    for d in DEVICES:
        (one,), (other,) = told(bare, Models, d), told(guarded, Models, d)
        alone = replace(one, models={**one.models, "personal": one.models["local"]})
        total += [right(one, d), right(other, d), right(alone, d)]
        assert one.models["global"].tobytes() == other.models["global"].tobytes()
    assert total[0] < 0.8 * total[2] and total[1] > 0.95 * total[2], total
    assert not any(told(bare, OwnKept, d) for d in DEVICES)
    event = next(event for d in DEVICES for event in told(guarded, OwnKept, d))
    assert event.loss_own < event.loss and event.samples == 15
    assert f"the mean loss on 15 own samples is {event.loss_own:.3g}, {event.loss:.3g}" in event.what


def test_nothing_more_leaves_a_device_and_what_leaves_says_nothing_of_it():
    def crossed(keep):
        trace = run(s=replace(S, keep_own=keep))
        names = {"aggregator", *TREE}
        return [type(m).__name__ for sender, to, m in trace.crossed if {sender, to} <= names or sender in DEVICES]

    assert crossed(True) == crossed(False)


def test_a_device_with_windows_of_its_own_falls_back_on_a_forest_that_nobody_else_has_taught():
    """The shared model is poisoned before devices label, so what the fleet's labels teach is wrong, too."""
    s = replace(TREES, local_weights=(0.0,), steps=(0,))
    settings = FEDAVG.settings(eta_l=0.05, batch=8)
    method = evaluated(self_trained(settled(poisoned(FEDAVG), s), s))
    _, trace = play(method, settings, 6, envs=envs(FEDAVG, settings, 6))
    found = [told(trace, Models, d)[0].ensemble for d in DEVICES if told(trace, OwnKept, d)]
    assert found and all(e.weight in OWN_WEIGHTS and e.trees is not None for e in found)


def test_a_device_that_labels_its_windows_wrongly_falls_back_on_what_it_was_told(monkeypatch):
    """It fell back on a forest on its own labels only, which its samples said was the worse one."""
    d, settings = DEVICES[0], FEDAVG.settings(eta_l=0.05, batch=8)
    env, wrong = replace(envs(FEDAVG, settings, 6)[d], me=d), (LOOSE[d].y + 1) % 2
    monkeypatch.setattr(labelling, "label", lambda env, s, w, choice: SelfLabels(np.arange(len(wrong)), wrong))
    monkeypatch.setattr(labelling, "choose_labelling", lambda s, counts: 0)
    nothing = {name: np.zeros_like(env.theta0) for name in ("global", "personal", "local")}
    kept = behind_own_line(env, TREES, 0.0, giving(nothing))
    assert kept[FOREST].tobytes() == pack(forest(env, TREES, TAUGHT_FOREST)).tobytes() and kept[OWN][3] == 1.0


def test_given_labels_alone_must_be_ahead_of_the_devices_own_labels_by_as_much_as_of_the_fleet():
    assert [best_alone(np.array(losses), 2.0) for losses in ([9.0], [9, 8], [9, 8, 6.5], [9, 8, 5.9], [7, 8, 5.1])] == [
        0, 1, 1, 2, 0,
    ]  # fmt: skip


def swapping(d):
    """As the product changes samples of these envs over: validation is trained on, training is judged by."""
    train, validation, _ = PARTS[d]

    def swapped(env):
        more = {"features": lambda: train.x} if env.validation.features else {}
        own = env.own and replace(
            env.own, labels=validation.y, features=lambda copies, random: np.concatenate([validation.x] * (copies + 1)),
            taught=lambda rows, labels: {"grad_fn": validation, "samples": len(validation.y)}, grown={},
        )  # fmt: skip
        judged = replace(train.labelled(), **more)
        return replace(env, grad_fn=validation, samples=len(validation.y), validation=judged, own=own, swapped=None)

    return swapped


def test_the_second_look_is_at_models_made_of_the_other_samples_and_labels(monkeypatch):
    """In a run that labels windows: what is judged was taught by the validation part, by all that it was made of."""
    looks = list[tuple[int, int, int]]()

    def seen(env, s, ways):
        looks.append((len(env.validation.labels), (env.untaught or env).samples, len(env.own.labels)))
        return losses_of(env, s, ways)

    monkeypatch.setattr(own_line, "losses_of", seen)
    monkeypatch.setattr(own_line, "FAR_AHEAD", np.inf)
    settings, some = FEDAVG.settings(eta_l=0.05, batch=8), envs(FEDAVG, FEDAVG.settings(eta_l=0.05, batch=8), 6)
    some |= {d: replace(some[d], swapped=swapping(d)) for d in DEVICES}
    _, trace = play(evaluated(self_trained(settled(FEDAVG, TREES), TREES)), settings, 6, envs=some)
    assert {*looks} == {(15, 30, 30), (30, 15, 15)} and looks.count((30, 15, 15)) >= 1
    assert all(told(trace, Models, d) for d in DEVICES)


def test_a_newcomer_has_the_same_last_line():
    settings, method = FEDAVG.settings(), evaluated(settled(poisoned(FEDAVG), AS_IT_IS))
    net, _ = play(method, settings, 2, envs=envs_of(FEDAVG, settings, 2))
    root = net.nodes["aggregator"]
    env = replace(net.nodes["d4"].env, me="newcomer")
    state, _ = method.device.start(env)
    _, sends = method.device.receive(env, state, UP, Finished(2, method.show(root.env, root.record.state)))
    assert any(isinstance(send.message, OwnKept) for send in sends)
