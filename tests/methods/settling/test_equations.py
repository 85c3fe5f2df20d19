"""What a device computes when it settles, against its definition; and the fleet's choice, against all others."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from edge_sdk.contract.environment.samples import Labelled, OutputScores, SelfLabels
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.settling import equations
from edge_sdk.methods.settling.settings import Candidate, Settling
from edge_sdk.methods.shared.training.local import batches
from edge_sdk.model.tasks.values import Values
from tests.methods.settling.problems import CLASSES, HEAD, LAYOUT, PARTS, THETA0, Network, envs_of, logits

SMALL = Settling(rate=0.02, batch=8, density=1.0, steps=(0, 5, 20), local_steps=(10, 30), local_weights=(0.0, 0.5, 1.0))
WHOLE = replace(SMALL, personal="dense")


def env_of(device="d0", **more):
    env = envs_of(FEDAVG, FEDAVG.settings(), 3, np.float64)[device]
    return replace(env, me=device, **more)


def adam(grad_fn, theta, indices, rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Kingma and Ba, algorithm 1, as it is written."""
    m = v = np.zeros_like(theta)
    for t, rows in enumerate(indices, 1):
        g = grad_fn(theta, rows)[1]
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        theta = theta - rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return theta


def drawn(env, purpose, count, batch):
    random, found = env.random(env.rounds, purpose), []
    while len(found) < count:
        found += list(batches(random, env.samples, batch, 1))
    return found[:count]


def test_the_local_model_is_adam_from_the_initial_one():
    env = env_of()
    for theta, steps in zip(equations.local_model(env, SMALL, (10, 30)), (10, 30), strict=True):
        literal = adam(env.grad_fn, THETA0, drawn(env, equations.LOCAL, steps, 8), SMALL.rate)
        np.testing.assert_allclose(theta, literal, rtol=1e-9)


def test_a_dense_component_is_adam_from_the_shown_model():
    env, start = env_of(), THETA0 + 0.1
    (theta,) = equations.component(env, WHOLE, start, (20,))
    literal = adam(env.grad_fn, start, drawn(env, equations.PERSONAL, 20, 8), SMALL.rate)
    np.testing.assert_allclose(theta, literal, rtol=1e-9)


def test_both_models_are_trained_on_batches_of_their_own():
    drawn_for = [drawn(env_of(), purpose, 4, 8) for purpose in (equations.PERSONAL, equations.LOCAL)]
    assert not all((a == b).all() for a, b in zip(*drawn_for, strict=True))


def test_a_number_of_steps_does_not_depend_on_the_others():
    env = env_of()
    among, (own,) = (
        list(equations.component(env, SMALL, THETA0, SMALL.steps)),
        equations.component(env, SMALL, THETA0, (20,)),
    )
    assert among[-1].tobytes() == own.tobytes() and among[0].tobytes() == THETA0.tobytes()


def test_a_sparse_component_leaves_the_head_free():
    env = env_of()
    (never,) = equations.component(env, replace(SMALL, penalty=50.0), THETA0, (20,))
    assert (never[~HEAD] == THETA0[~HEAD]).all() and (never[HEAD] != THETA0[HEAD]).all()
    (some,) = equations.component(env, replace(SMALL, penalty=0.6), THETA0, (20,))
    zero = (some == THETA0)[~HEAD].mean()
    assert 0.1 < zero < 1


def test_the_step_of_a_sparse_component_minimises_what_it_says():
    rng = np.random.default_rng(0)
    v = rng.normal(size=LAYOUT.size)
    z, threshold = v.copy(), 0.7
    equations.shrunk_but_head(LAYOUT, v, threshold)(z)

    def objective(u):
        return 0.5 * np.sum((u - v) ** 2) + threshold * np.abs(u[~HEAD]).sum()

    assert all(objective(z) <= objective(z + rng.normal(0, s, z.size)) for s in (1e-3, 0.1, 1) for _ in range(200))


@pytest.mark.parametrize("count", [15, 16, 22, 30, 35])
def test_the_largest_entries_are_kept_and_the_head(count):
    v = np.random.default_rng(count).normal(size=LAYOUT.size)
    found, head = equations.largest_but_head(LAYOUT, v, count), HEAD.sum()
    assert np.count_nonzero(found) == count and (found[HEAD] == v[HEAD]).all()
    kept = (found != 0) & ~HEAD
    assert (found[kept] == v[kept]).all()
    assert np.abs(v[kept]).min(initial=np.inf) >= np.abs(v[~kept & ~HEAD]).max(initial=0) and kept.sum() == count - head


def test_equal_entries_are_no_way_around_the_density():
    v = np.full(LAYOUT.size, -0.5)
    assert np.count_nonzero(equations.largest_but_head(LAYOUT, v, 20)) == 20


def test_a_sparse_component_is_as_sparse_as_settings_say_after_any_number_of_steps():
    env, s = env_of(), replace(SMALL, penalty=0.0, density=0.6)
    for theta in equations.component(env, s, THETA0, (1, 2, 20)):
        assert np.count_nonzero(theta != THETA0) == int(0.6 * LAYOUT.size)


def test_counts_are_those_of_every_candidate_by_itself():
    env, start = env_of(), THETA0 + 0.2
    correct, samples = equations.correct_counts(env, SMALL, start)
    y, x = PARTS["d0"][1].y, PARTS["d0"][1].x
    assert samples == len(y) == 15
    for c, count in zip(SMALL.candidates, correct, strict=True):
        (personal,) = equations.component(env, SMALL, start, (c.steps,))
        (local,) = equations.local_model(env, SMALL, (c.local_steps,))
        p = [np.exp(logits(t, x)) for t in (personal, local)]
        for q in p:
            q[:, [k for k in range(CLASSES) if k not in env.own_classes]] = 0
            q /= q.sum(1, keepdims=True)
        product = p[0] ** (1 - c.weight) * p[1] ** c.weight
        assert count == (product.argmax(1) == y).sum(), c


def test_outputs_that_are_no_classes_count_by_how_near_they_come():
    """Values in halves of a range: right is 1 less the error as a share of it, of the mean of both models' outputs."""
    env, start, x = env_of(), THETA0 + 0.2, PARTS["d0"][1].x
    y = np.random.default_rng(1).uniform(-1, 1, (len(x), CLASSES)).astype(np.float32)
    task = Values(units=("bpm",) * CLASSES, low=(40.0,) * CLASSES, high=(180.0,) * CLASSES)
    judged = OutputScores(lambda outputs: task.credits(y, outputs), dict)
    env = replace(env, validation=Labelled(y, lambda theta: logits(theta, x), scores=judged))
    points, samples = equations.correct_counts(env, SMALL, start)
    assert samples == equations.POINTS * len(x)
    for c, count in zip(SMALL.candidates, points, strict=True):
        (personal,) = equations.component(env, SMALL, start, (c.steps,))
        (local,) = equations.local_model(env, SMALL, (c.local_steps,))
        z = (1 - c.weight) * logits(personal, x) + c.weight * logits(local, x)
        error = np.minimum(np.abs(task.in_unit(z) - task.in_unit(y)) / (180 - 40), 1).mean(1)
        assert count == int(equations.POINTS * (1 - error).sum()), c


def test_no_class_is_predicted_that_the_device_never_had():
    env = env_of("d5")  # one class
    correct, samples = equations.correct_counts(env, SMALL, THETA0)
    assert (correct == samples).all()
    unmasked, _ = equations.correct_counts(env, replace(SMALL, mask=False), THETA0)
    assert unmasked.min() < samples


def test_candidates_are_each_there_once():
    found = SMALL.candidates
    wanted = {Candidate(n, k, 0.5) for n, k in product(SMALL.steps, SMALL.local_steps)}
    wanted |= {Candidate(n, 0, 0.0) for n in SMALL.steps} | {Candidate(0, k, 1.0) for k in SMALL.local_steps}
    assert len(found) == len(set(found)) and set(found) == wanted


def test_the_choice_has_the_most_correct_answers_beside_the_best_local_model():
    rng = np.random.default_rng(1)
    for _ in range(50):
        correct = rng.integers(0, 30, len(SMALL.candidates))
        index, alone, _ = equations.choose(SMALL, correct)
        every = list(enumerate(SMALL.candidates))
        local = [i for i, c in every if c.weight == 1]
        assert correct[alone] == max(correct[i] for i in local) and alone in local
        steps = SMALL.candidates[alone].local_steps
        beside = [i for i, c in every if c.weight == 0 or c.local_steps == steps]
        assert correct[index] == max(correct[i] for i in beside) and index in beside


def test_of_equals_the_personalised_model_with_the_fewest_steps_is_chosen():
    index, alone, _ = equations.choose(SMALL, np.zeros(len(SMALL.candidates), np.int64))
    assert SMALL.candidates[index] == Candidate(0, 0, 0.0) and SMALL.candidates[alone] == Candidate(0, 10, 1.0)


def test_training_alone_is_counted_but_not_chosen_where_settings_leave_it_out():
    s = replace(SMALL, local_weights=(0.0,))
    correct = np.array([9 if c.weight == 1 else 1 for c in s.candidates])
    index, alone, _ = equations.choose(s, correct)
    assert s.candidates[index].weight == 0 and s.candidates[alone].weight == 1


def test_a_device_without_training_samples_keeps_the_shown_model():
    empty = Network(np.zeros((0, 5)), np.zeros(0, np.int64))
    env = env_of(grad_fn=empty, samples=0)
    (theta,) = equations.component(env, SMALL, THETA0, (20,))
    assert theta.tobytes() == THETA0.tobytes()


def test_a_device_with_an_empty_validation_part_counts_nothing():
    empty = Network(np.zeros((0, 5)), np.zeros(0, np.int64))
    correct, samples = equations.correct_counts(env_of(validation=empty.labelled()), SMALL, THETA0)
    assert samples == 0 and not correct.any()


def test_a_device_without_a_validation_part_says_so():
    with pytest.raises(UsageError, match="d0: settling chooses on validation samples"):
        equations.correct_counts(env_of(validation=None), SMALL, THETA0)


@pytest.mark.parametrize(
    "wrong, said",
    [
        (dict(steps=()), "steps = "),
        (dict(steps=(5, 0)), "ascending"),
        (dict(local_weights=(0.0, 1.5)), "between 0 and 1"),
        (dict(rate=0.0), "rate = 0.0"),
        (dict(optimiser="lion"), "one of adam, sgd"),
        (dict(density=0.0), "density = 0.0"),
        (dict(personal="thin"), "one of dense, sparse"),
        (dict(start="p"), "one of global, personal"),
    ],
)
def test_settings_say_what_is_wrong(wrong, said):
    with pytest.raises(UsageError, match=said):
        Settling(**wrong)


def test_a_mixture_with_a_taught_forest_goes_first_within_a_standard_error():
    s = replace(SMALL, trees=5, label_times=1)
    mixed = [i for i, c in enumerate(s.candidates) if c.forest == 2 and 0 < c.weight < 1 and c.steps]
    correct = np.full(len(s.candidates), 50)
    personal = next(i for i, c in enumerate(s.candidates) if c.weight == 0)
    correct[personal], correct[mixed[1]] = 80, 77
    assert equations.choose(s, correct, 100)[0] == mixed[1]  # a standard error of 80 in 100 is 4
    correct[mixed[1]] = 75
    assert equations.choose(s, correct, 100)[0] == personal


def test_training_alone_by_a_forest_is_chosen_where_it_is_clearly_best():
    s = replace(SMALL, trees=5, label_times=1)
    kinds = {c.forest: i for i, c in enumerate(s.candidates) if c.weight == 1 and c.forest}
    correct = np.full(len(s.candidates), 100)
    correct[kinds[1]] = 280
    assert equations.choose(s, correct, 300)[:2] == (kinds[1], kinds[1])
    correct[kinds[2]] = 281
    assert equations.choose(s, correct, 300)[:2] == (kinds[2], kinds[1])


# Twice the same way --------------------------------------------------------------------------------------------
def test_who_keeps_what_it_has_walked_to_comes_to_the_same_and_walks_once():
    """The fleet's choice asks for several numbers of steps, and the evaluation after it for one of them."""
    calls = []

    def counted(env):
        return replace(env, grad_fn=lambda theta, rows: calls.append(1) or env.grad_fn(theta, rows))

    start = THETA0 + 0.1
    anew, kept = counted(env_of()), counted(env_of(walked={}))
    for s in (SMALL, replace(SMALL, personal="dense")):
        expected = [v.copy() for v in equations.component(anew, s, start, s.steps)]
        assert [v.tobytes() for v in equations.component(kept, s, start, s.steps)] == [v.tobytes() for v in expected]
        calls.clear()
        (again,) = equations.component(kept, s, start, s.steps[-1:])
        assert again.tobytes() == expected[-1].tobytes() and not calls
        (other,) = equations.component(kept, s, start + 1, s.steps[-1:])  # from another model
        assert calls and other.tobytes() != again.tobytes()


def test_labels_of_its_own_are_another_way():
    taught = SelfLabels(np.array([0, 1]), np.array([2, 0]))
    walked = {}
    (before,) = equations.component(env_of(walked=walked), SMALL, THETA0, SMALL.steps[-1:])
    size = len(walked)
    (after,) = equations.component(env_of(walked=walked, self_labels=taught), SMALL, THETA0, SMALL.steps[-1:])
    assert len(walked) == 2 * size and after.tobytes() == before.tobytes()
