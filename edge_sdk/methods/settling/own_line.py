"""The last line within a run: a device that its own samples say is better off alone predicts with what it made alone.

The fleet chooses one way to predict for all its devices, as one device has few samples to choose by. But a shared model
that others have poisoned, counts that others have made up, or a choice that is right for everybody else can be wrong
for one device. So each device compares what was chosen with what it has by itself: a forest on its own labels and on
those that it gives its own windows without the shared model, alone or half and half with its local network, or a forest
on its labels only, as what a device labels itself can be wrong, too. The best of the first two is taken where its loss
on the device's validation samples is smaller by more than SURE, added up, and the last where it is by as much better
than these as well,

    loss = -log max(P(label), FLOOR)

since some twenty samples say more by their probabilities than by how many are right. No sample counts with more than
-log FLOOR, and few samples seldom decide. Of a model that predicts no class

    loss = log max((1 - mean credit) / SMALLEST, 1)

as of errors whose distribution is Laplace's with the mean that they have.

Where these samples do not decide, a device of classes looks a second time, with training and validation samples changed
over: all that it makes is made again from the validation samples, and judged by the training samples (cross-fitting in
two folds: V. Chernozhukov et al., "Double/debiased machine learning", The Econometrics Journal 21, 2018). Then

    n mean_1 + min(n, m) mean_2

decides, by more than SURE for each look, of n validation samples with mean loss mean_1 and m training samples with
mean_2: what was made from n samples says no more about what m will make than n samples do. Only the shared model has
seen the samples of the second look, which speaks for the fleet. Where the fleet is ahead by more than FAR_AHEAD in the
first look there is no second.

Nothing of another device enters the forest, and into the local network only how many of the settings' steps it makes
and by what statistics it standardises. So a poisoned fleet costs a device what it would have gained, and what its own
samples cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, log

import numpy as np

from edge_sdk.algebra.ensemble import Ensemble, Floats, combined, log_probabilities, mixed
from edge_sdk.algebra.forest import pack
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.samples import Labelled
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.settling import labelling
from edge_sdk.methods.settling.equations import ensemble, forest
from edge_sdk.methods.settling.settings import FOREST as ON_LABELS
from edge_sdk.methods.settling.settings import TAUGHT_FOREST, Settling
from edge_sdk.methods.shared.evaluation.beside import FOREST, OWN

FLOOR = 0.02
SMALLEST = 1e-3
"""Share of its range by which a value that is predicted is off at least, when models are compared."""
SURE = 2.0
"""Sum of losses, of each look, by which the own models must be ahead: odds of 7 to 1 for what the fleet has chosen."""
FAR_AHEAD = 5.0
"""Sum of losses by which what the fleet has chosen is so far ahead that a device does not look a second time."""
OWN_WEIGHTS = (0.5, 1.0)
"""Candidates for the weight of the forest beside the local network."""

Way = tuple[Mapping[str, Vector], float]
"""Models, and the weight of the own one among these: a way to predict."""
Make = Callable[[NodeEnv], Mapping[str, Vector]]
"""A device's env -> its models, as the fleet has chosen: "personal", "local" and perhaps FOREST."""


def behind_own_line(env: NodeEnv, s: Settling, weight: float, make: Make) -> Mapping[str, Vector]:
    """A device's models; those that it made alone in place of the personal one, and OWN, where its samples say so.

    Args:
        weight: of the own model in what the fleet has chosen.
        make: what the fleet has chosen; called a second time where the device takes a second look.
    """
    found, judged = make(env), env.validation
    if not s.keep_own or judged is None or not len(judged.labels):
        return found
    own = own_ways(env, s, found)
    losses, samples, sure = losses_of(env, s, [(found, weight), *own]), len(judged.labels), SURE
    best = best_alone(losses[1:], sure)
    if env.swapped is not None and -FAR_AHEAD <= losses[0] - losses[1 + best] <= SURE:
        again, others = second_look(env, s, weight, make)
        counted = min(samples, others)
        losses, samples = losses + again * (counted / others), samples + counted
        sure = 2 * SURE
        best = best_alone(losses[1:], sure)
    if not losses[0] - losses[1 + best] > sure:
        return found
    models, of_forest = own[best]
    told = [losses[0] / samples, losses[1 + best] / samples, samples, of_forest]
    return {**models, OWN: np.array(told, np.float32)}


def best_alone(losses: Floats, sure: float) -> int:
    """Index of the best of `own_ways`, by sums of losses. The one with given labels only is taken where it is ahead of
    the others by more than `sure`: a device goes without its own labels no sooner than without the fleet."""
    best = int(np.argmin(losses[: len(OWN_WEIGHTS)]))
    plain = len(OWN_WEIGHTS)
    return plain if len(losses) > plain and losses[best] - losses[plain] > sure else best


def second_look(env: NodeEnv, s: Settling, weight: float, make: Make) -> tuple[Floats, int]:
    """Summed losses as of `losses_of` with training and validation samples changed over, and of how many samples."""
    if env.own is not None:
        env.own.release()  # what the gradients of the first look hold does not lie beside those of the second
    assert env.swapped is not None
    env = env.swapped(env.untaught or env)
    assert env.validation is not None
    found = make(env)
    return losses_of(env, s, [(found, weight), *own_ways(env, s, found)]), len(env.validation.labels)


def losses_of(env: NodeEnv, s: Settling, ways: Sequence[Way]) -> Floats:
    """Sums of bounded losses on a device's validation samples of ways to predict: the fleet's choice goes first."""
    assert env.validation is not None
    known, judged = ensemble(env, s, 0.0).classes, env.validation
    return len(judged.labels) * np.array([mean_loss(judged, models, weight, known) for models, weight in ways])


def own_ways(env: NodeEnv, s: Settling, found: Mapping[str, Vector]) -> list[Way]:
    """Ways in which a device predicts alone, with what it made alone as its personal model; the last with no label but
    those that it was given.

    Args:
        found: as `behind_own_line` takes them.
    """
    own = {**found, "personal": found["local"]}
    own.pop(FOREST, None)
    if not (s.trees and env.own is not None and len(env.own.labels) and env.validation and env.validation.features):
        return [(own, 0.0)]
    env = env.untaught or env
    plain = pack(forest(env, s, TAUGHT_FOREST if s.label_times else ON_LABELS))  # one that it labels by, if it labels
    taught = taught_forest(env, s) if s.label_times else None
    ways: list[Way] = [({**own, FOREST: plain if taught is None else taught}, weight) for weight in OWN_WEIGHTS]
    return [*ways, ({**own, FOREST: plain}, 1.0)] if s.label_times else ways


def taught_forest(env: NodeEnv, s: Settling) -> Vector | None:
    """A device's forest, packed, on its labels and on those that it gives its windows by its forest alone; None: it
    gives none.

    The threshold of these is its own choice, too, by its own validation samples.
    """
    by_itself = replace(s, label_weights=(1.0,))
    counts, _ = labelling.labelling_counts(env, by_itself, env.theta0)
    env = labelling.taught_by(env, by_itself, env.theta0, labelling.choose_labelling(by_itself, counts))
    return None if env.self_labels is None else pack(forest(env, s, TAUGHT_FOREST))


def mean_loss(judged: Labelled, models: Mapping[str, Vector], weight: float, known: tuple[int, ...]) -> float:
    """Mean bounded loss on samples of models together, with a weight of the own one.

    Args:
        known: classes that may be predicted; empty: all.
    """
    if judged.scores is not None:
        how, outputs = Ensemble(weight), judged.logits(models["personal"])
        credit = float(judged.scores.credits(mixed(how, outputs, lambda: judged.logits(models["local"]))).mean())
        return log(max((1 - credit) / SMALLEST, 1)) if isfinite(credit) else inf
    p = np.exp(log_predicted(judged, models, weight, known))[np.arange(len(judged.labels)), judged.labels]
    return float(-np.log(np.maximum(p, FLOOR)).mean())


def log_predicted(judged: Labelled, models: Mapping[str, Vector], weight: float, known: tuple[int, ...]) -> Floats:
    """Log-probabilities (samples, classes) of models together, with a weight of the own one."""
    how = Ensemble(weight, known, models.get(FOREST, Ensemble().forest))
    features: Callable[[], Floats] = judged.features or no_features
    scores = combined(how, judged.logits(models["personal"]), lambda: judged.logits(models["local"]), features)
    return log_probabilities(scores)


def no_features() -> Floats:
    raise AssertionError("a forest is chosen only where samples have features")
