"""What a device computes when it settles, and how the fleet chooses: pure functions of arrays.

p <- argmin over p of f_i(w + p) + penalty * ||p without its head||_1, by so many proximal steps     component
u <- so many steps on f_i from the initial model, by the same optimiser: training alone              local_model
log P(class) = (1 - weight) log P(class; w + p) + weight log P(class; u), over the device's own classes
forest <- extremely randomised trees on features of the device's own samples, in the place of u             forest
candidate = argmax of the validation samples that the whole fleet gets right                         choose
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, islice
from math import hypot, isfinite, sqrt

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra import prox
from edge_sdk.algebra.ensemble import Ensemble, Floats, log_probabilities, mixed, pooled, voted
from edge_sdk.algebra.forest import Forest, grow, log_votes
from edge_sdk.algebra.optim import SGD, Adam
from edge_sdk.algebra.running_statistics import step_with_statistics
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.environment.gradients import PHASES
from edge_sdk.contract.environment.samples import Labelled, OwnWindows, SelfLabels
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import UsageError
from edge_sdk.methods.settling.counting import MOST_SAMPLES as MOST_COUNTED
from edge_sdk.methods.settling.settings import TAUGHT_FOREST, Candidate, Settling
from edge_sdk.methods.shared.training import parts
from edge_sdk.methods.shared.training.local import Indices, InPlace, batches, gradient, steps_left

Counts = npt.NDArray[np.int64]

PERSONAL, LOCAL, TREES = 41, 42, 44  # purposes of randomness, apart from those of the methods
MOST_SAMPLES = 4000
"""Samples of a forest, copies and self-labelled ones included: so that a small device has it in seconds."""
POINTS = 256
"""Parts of a sample in which outputs that are no classes may be right."""
NO_OUTPUTS = np.zeros(0)
KEPT_NODES = 200_000
"""Nodes of the forests that a device keeps while a run lasts: some 3 MB."""


# Training -------------------------------------------------------------------------------------------------------
def component(env: NodeEnv, s: Settling, start: Vector, steps: Sequence[int]) -> Iterator[Vector]:
    """start + p after each of so many steps, ascending: p from zero, sparse but for its head if settings say so."""
    if s.personal == "dense":
        found = walk(env, s, start, steps, PERSONAL, None)
    else:
        found = walk(env, s, start, steps, PERSONAL, shrunk_but_head(env.layout, start, s.penalty * s.rate))
        found = (largest_but_head(env.layout, v, int(s.density * v.size)) for v in found)
    return (start + v for v in found)


def local_model(env: NodeEnv, s: Settling, steps: Sequence[int]) -> Iterator[Vector]:
    """The model trained alone from the initial one, after each of so many steps, ascending; on its own labels only."""
    env = env.untaught or env
    return (env.theta0 + v for v in walk(env, s, env.theta0, steps, LOCAL, None))


def walk(
    env: NodeEnv, s: Settling, start: Vector, steps: Sequence[int], purpose: int, shrink: InPlace | None
) -> Iterator[Vector]:
    """v, each time the same array, after each of so many steps of the optimiser on f_i(start + v), from v = 0."""
    if env.walked is None:
        yield from walk_anew(env, s, start, steps, purpose, shrink)
        return
    taught = None if env.self_labels is None else (env.self_labels.rows.tobytes(), env.self_labels.labels.tobytes())
    way = s, start.tobytes(), purpose, taught
    if not all((*way, n) in env.walked for n in steps):
        made = walk_anew(env, s, start, steps, purpose, shrink)
        env.walked.update({(*way, n): v.copy() for n, v in zip(steps, made, strict=True)})
    yield from (env.walked[*way, n].copy() for n in steps)


def walk_anew(
    env: NodeEnv, s: Settling, start: Vector, steps: Sequence[int], purpose: int, shrink: InPlace | None
) -> Iterator[Vector]:
    """v, as `walk` has it, whatever was walked to before."""
    v, drawn = np.zeros_like(start), endless(env, s, purpose)
    optimiser = (Adam if s.optimiser == "adam" else SGD)(s.rate, decay=s.weight_decay)
    memory = optimiser.remember(v)
    slope, done = gradient(env, env.rounds, purpose, rate=0), 0
    for n in steps:
        left, made, _, note = steps_left(slope, islice(drawn, n - done if env.samples else 0), v, *memory)
        optimiser.skip(made)
        for n_made, rows in enumerate(left, made + 1):
            with env.gradients.counting(PHASES):
                _, found = slope(start + v, rows)
            step_with_statistics(env.layout, optimiser, v, found)
            if shrink is not None:
                shrink(v)
            note(n_made, 0.0)
        done = n
        yield v


def forest(env: NodeEnv, s: Settling, kind: int) -> Forest | None:
    """A forest (of `Settling.forests`) on a device's own samples; None: they have no features, there are
    none, or settings want no trees.

    A run asks for the same one several times: when it labels, when it counts, when it predicts.
    """
    own, labels = env.own, env.self_labels if kind == TAUGHT_FOREST else None
    if own is None or not len(own.labels) or not s.trees:
        return None
    taught = None if labels is None else (labels.rows.tobytes(), labels.labels.tobytes())
    way = env.me, env.seed, env.rounds, s.trees, s.copies, kind, taught
    found: Forest = own.grown.pop(way, None) or forest_anew(env, s, kind, own, labels)
    own.grown[way] = found
    while len(own.grown) > 1 and sum(len(one.label) for one in own.grown.values()) > KEPT_NODES:
        own.grown.pop(next(iter(own.grown)))  # the one that was not asked for longest
    return found


def forest_anew(env: NodeEnv, s: Settling, kind: int, own: OwnWindows, labels: SelfLabels | None) -> Forest:
    """A forest, as `forest` has it, whatever was grown before."""
    if labels is not None:
        own.release()  # labels change after it: a forest and the copies that a gradient keeps need not lie side by side
    random = env.random(env.rounds, TREES, kind)
    x = own.features(min(s.copies, max(0, MOST_SAMPLES // len(own.labels) - 1)), random)
    y = np.tile(own.labels, len(x) // len(own.labels))
    if labels is not None:
        x = np.concatenate([x, own.unlabelled()[labels.rows]])
        y = np.concatenate([y, labels.labels])
    rows = np.sort(random.permutation(len(y))[:MOST_SAMPLES])
    x = x.T.take(rows, axis=1).T  # as `grow` keeps it, feature by feature, so that no second copy lies beside it
    return grow(x, y[rows], int(y.max()) + 1, s.trees, random)


def endless(env: NodeEnv, s: Settling, purpose: int) -> Iterator[Indices]:
    """Mini-batches, epoch after epoch; the same wherever and whenever they are drawn for this device and purpose."""
    random = env.random(env.rounds, purpose)
    return chain.from_iterable(batches(random, env.samples, s.batch, 1, env.least) for _ in count())


def shrunk_but_head(layout: Layout, like: Vector, threshold: float) -> InPlace:
    """v <- argmin_z 1/2 ||z - v||^2 + threshold * ||z without the head||_1, in place."""
    spare, spans = np.empty_like(like), but_head(layout)

    def shrink(v: Vector) -> None:
        for span in spans:
            prox.shrink(v[span], threshold, spare[span])

    return shrink


def largest_but_head(layout: Layout, v: Vector, count: int) -> Vector:
    """argmin_z ||z - v|| over all z with at most so many entries outside zero, of which the head's are not left out."""
    spans = but_head(layout)
    rest = np.concatenate([v[span] for span in spans]) if spans else v[:0]
    left = max(0, count - (v.size - rest.size))
    if np.count_nonzero(rest) <= left:
        return v
    rest[np.argpartition(np.abs(rest), len(rest) - left - 1)[: len(rest) - left]] = 0
    found, at = v.copy(), 0
    for span in spans:
        size = span.stop - span.start
        found[span], at = rest[at : at + size], at + size
    return found


def but_head(layout: Layout) -> tuple[slice, ...]:
    """Where the entries of all layers but the last lie."""
    head = parts.named(layout, parts.LAST)
    return parts.spans(slot for slot in layout.slots if slot not in head)


# Judging --------------------------------------------------------------------------------------------------------
def correct_counts(env: NodeEnv, s: Settling, start: Vector) -> tuple[Counts, int]:
    """Counts of a device's validation samples: those that are right with each candidate, and all.

    Models are judged while they are trained, one after the other: no more than one is held at a time.
    """
    labels = validation(env).labels
    if not len(labels):
        return np.zeros(len(s.candidates), np.int64), 0
    if (scores := validation(env).scores) is not None:
        return points(env, s, start, scores.credits)
    of = scored(env, s)
    personal = dict(zip(s.steps, map(of, component(env, s, start, s.steps)), strict=True))
    local = dict(zip(s.local_steps, map(of, local_model(env, s, s.local_steps)), strict=True))

    like = next(iter(personal.values()), next(iter(local.values())))
    forests = {kind: votes_of(env, s, forest(env, s, kind), like.shape[1]) for kind in s.forests} if s.trees else {}

    def right(c: Candidate) -> int:
        own = forests[c.forest] if c.forest else local.get(c.local_steps)
        if c.weight > 0 and own is None:
            return 0
        if c.weight == 0 or own is None:
            found = personal[c.steps]
        else:
            found = own if c.weight == 1 else pooled(personal[c.steps], own, c.weight)
        return int((found.argmax(1) == labels).sum())

    return np.array([right(c) for c in s.candidates], np.int64), len(labels)


def points(env: NodeEnv, s: Settling, start: Vector, credits: Callable[[Floats], Floats]) -> tuple[Counts, int]:
    """Counts as of `correct_counts`, of a model that predicts no class: by how near its outputs come to targets.

    Both are in units of a POINTS-th of a sample, or of larger parts where a device would count more than it may.

    Args:
        credits: outputs -> of each validation sample how right they are, from 0 to 1.
    """
    outputs, samples = validation(env).logits, len(validation(env).labels)
    unit = max(1, min(POINTS, MOST_COUNTED // samples))
    personal = {n: outputs(w).copy() for n, w in zip(s.steps, component(env, s, start, s.steps), strict=True)}
    local = {n: outputs(w).copy() for n, w in zip(s.local_steps, local_model(env, s, s.local_steps), strict=True)}

    def right(c: Candidate) -> int:
        found = mixed(Ensemble(c.weight), personal.get(c.steps, NO_OUTPUTS), lambda: local[c.local_steps])
        total = float(credits(found).sum())
        return int(unit * total) if isfinite(total) else 0

    return np.array([right(c) for c in s.candidates], np.int64), unit * samples


def votes_of(env: NodeEnv, s: Settling, forest: Forest | None, classes: int) -> Floats | None:
    """Log-probabilities of the validation samples by a forest; None: there is none, or they have no features."""
    features = validation(env).features
    if forest is None or features is None:
        return None
    return voted(log_votes(forest, features()), classes, ensemble(env, s, 0.0).classes)


def scored(env: NodeEnv, s: Settling) -> Callable[[Vector], Floats]:
    """theta -> log-probabilities of the validation samples."""
    judged, classes = validation(env), ensemble(env, s, 0.0).classes
    return lambda theta: log_probabilities(judged.logits(theta), classes)


def validation(env: NodeEnv) -> Labelled:
    """The samples that choices are made on.

    Raises:
        UsageError: this device has not been given any, not even an empty set.
    """
    if env.validation is None:
        raise UsageError(f"device {env.me}: settling chooses on validation samples, and none were split off here")
    return env.validation


def ensemble(env: NodeEnv, s: Settling, weight: float) -> Ensemble:
    """The way in which this device predicts with a local model of that weight."""
    return Ensemble(weight, env.own_classes if s.mask else ())


# The fleet's choice ---------------------------------------------------------------------------------------------
def choose(s: Settling, correct: Counts, samples: int = 0, doubt: float = 0.0) -> tuple[int, int, int]:
    """Indices of the candidate that is best for the fleet, of the best model alone, and of the best network alone.

    The local network's steps are chosen first, as for devices that train alone; then steps and weight beside that local
    network or a forest, for the whole fleet: a single device has too few validation samples to choose by. Of equal
    candidates the personalised model on its own goes first, then mixtures, each with fewer steps before more; training
    alone is last.

    A mixture of a personalised model and such a forest goes before the best candidate if it is within a standard error
    of it: two models that err differently are what newcomers and later weeks are better off with, and so few validation
    samples cannot tell it from the best.

    Args:
        correct: of each candidate. samples: how many there are.
        doubt: standard deviation of noise in each count; two counts then differ by it, too.
    """
    every = list(enumerate(s.candidates))
    network = best([i for i, c in every if c.is_alone and not c.forest], correct)
    alone = best([network, *(i for i, c in every if c.is_alone and c.forest)], correct)
    steps = s.candidates[network].local_steps
    allowed = [i for i, c in every if c.weight == 0]
    allowed += [i for i, c in every if 0 < c.weight < 1 and (c.forest or c.local_steps == steps)]
    lonely = [*(i for i, c in every if c.weight == 1 and not c.is_alone), alone]
    chosen = best([*allowed, *(lonely if 1 in s.local_weights or not allowed else [])], correct)
    mixed = [i for i, c in every if 0 < c.weight < 1 and c.forest == TAUGHT_FOREST and c.steps]
    near = hypot(standard_error(int(correct[chosen]), samples), sqrt(2) * doubt)
    if mixed and correct[best(mixed, correct)] >= correct[chosen] - near:
        chosen = best(mixed, correct)
    return chosen, alone, network


def standard_error(right: int, samples: int) -> float:
    """Standard deviation of a count of right samples, of a binomial distribution with this share."""
    return sqrt(max(0, right) * max(0, samples - right) / samples) if samples else 0.0


def best(some: Sequence[int], correct: Counts) -> int:
    """The first of the indices with the largest count."""
    return max(some, key=lambda i: int(correct[i]))
