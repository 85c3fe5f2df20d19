"""The strongest neighbours of models that predict values, sets of labels or steps: linear models and trees on features.

kind      grid
trees     300 extremely randomised trees, at least 1 or 3 samples in a leaf
linear    on standardised features: of values ridge regression, penalty 1, 10, 100 or 1000; of labels a logistic
          regression for each, penalty 1, 10, 100 or 1000; of another package's task as of values, on its targets; of
          steps a multinomial logistic regression, as trees on features of each step and of those about it; of values
          at steps as of values, on these features, by 50 trees
network   the run's own, as the devices have trained it alone

Of each kind the fleet chooses one setting, and then the kind, by what the task calls better on validation samples.
"pooled" is the best of trees and linear on all training samples in one place. Test samples are only judged by
what was chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.model.tasks.own import LINKS
from edge_sdk.model.tasks.plugged import PluggedTask
from edge_sdk.model.tasks.task import LABELS, OutputTask, StepClasses, StepValues
from edge_sdk.replay.metrics.scores import ALONE, ALONE_LINEAR, ALONE_TREES, LOCAL, POOLED
from edge_sdk.replay.neighbours.candidates import LINEAR, NETWORK, TREES
from edge_sdk.replay.neighbours.features import features_of, kind_of_features
from edge_sdk.replay.neighbours.fitted import fit_logistic, fit_ridge, fit_value_trees, is_installed
from edge_sdk.replay.neighbours.holders import MOST_POOLED
from edge_sdk.replay.neighbours.step_models import fit_step_values, fit_steps, step_features
from edge_sdk.replay.neighbours.told import COMPUTED, LEFT_OUT, MISSING, UNDEFINED

Array = npt.NDArray[Any]
Parts = tuple[tuple[Array, Array], tuple[Array, Array], tuple[Array, Array]]
"""Training, validation and test samples: inputs (N, ...) and targets (N, K)."""
Predict = Callable[[Array], Array]
GRID = [(TREES, 1.0), (TREES, 3.0), (LINEAR, 1.0), (LINEAR, 10.0), (LINEAR, 100.0), (LINEAR, 1000.0)]
ROWS = {TREES: ALONE_TREES, LINEAR: ALONE_LINEAR}
Rows = dict[str, dict[str, dict[str, float]]]
"""Device -> model -> sums of scores on its test samples, and "samples"."""


def look_for_output_models(
    task: OutputTask,
    parts: Callable[[str], Parts],
    written: Sequence[Mapping[str, Any]],
    most: int,
    seed: int,
    say: Callable[[str], Any],
) -> tuple[dict[str, Any], Rows]:
    """What was found, in JSON's types (told.py), and each device's rows.

    Args:
        parts: device -> its samples. written: what devices have written at the end. most: devices that are judged.
    """
    if not most or not is_installed():
        return {"state": MISSING if most else LEFT_OUT}, {}
    names = [str(d["device"]) for d in written][:most]
    own = {name: parts(name) for name in names}
    first = own[names[0]][0][0]
    if first.dtype.names is not None or not kind_of_features(first):
        return {"state": UNDEFINED, "why": "samples of this kind have no features"}, {}
    say(f"the strongest neighbour: what {len(names)} devices reach alone by their best model (--no-neighbours: not)")
    began = time.monotonic()
    seen: dict[str, Any] = {n: [(seen_of(task, x) if len(x) else None, y) for x, y in p] for n, p in own.items()}
    trained = [n for n, d in zip(names, written, strict=False) if not d["newcomer"]]
    alone = {n: [fit(task, kind, value, x, y, seed) for kind, value in GRID] for n, ((x, y), *_) in seen.items()}
    chosen = choose(task, alone, seen, trained)
    networks = [d["sums"].get("validation", {}).get(LOCAL) for d in written if d["device"] in {*trained}]
    errors = {kind: error for kind, (_, error) in chosen.items()}
    if networks and all(sums is not None for sums in networks):
        errors[NETWORK] = task.badness(added(networks))
    best = min(errors, key=lambda kind: errors[kind])
    kind, together = choose_pooled(task, seen, trained, seed)
    rows = {
        n: rows_of(task, alone[n], chosen, best, together, seen[n][2], d) for n, d in zip(names, written, strict=False)
    }
    told = {
        "state": COMPUTED,
        "on": kind_of_features(first),
        "chosen": best,
        "samples": sum(len(seen[n][1][1]) for n in trained),
        "kinds": {kind: {"error": error} for kind, error in errors.items()},
        "pooled": {"chosen": kind},
        "devices": len(names),
        "of": len(written),
        "seconds": round(time.monotonic() - began, 1),
    }
    return told, rows


def seen_of(task: OutputTask, x: Array) -> Array:
    """Features of samples, (N, F); of steps (N, S, F)."""
    return step_features(x, task.steps) if task.steps else features_of(x)


def fit(task: OutputTask, kind: str, value: float, x: Array, y: Array, seed: int) -> Predict:
    """A model of features (N, F) and targets (N, K), which predicts what the network's outputs would be.

    Args:
        value: samples in a leaf, or the penalty.
    """
    if isinstance(task, StepClasses):
        return fit_steps(kind == TREES, value, x, y, seed)
    if isinstance(task, StepValues):
        return fit_step_values(kind == TREES, value, x, task.known_rows(y), seed)
    trees = fit_value_trees(x, y, int(value), seed) if kind == TREES else None
    if task.kind == LABELS:
        return (lambda rows: logits(trees(rows))) if trees else fit_logistic(x, y, 1 / value)
    plain = trees or fit_ridge(x, y, value)
    link = LINKS.get(task.loss) if isinstance(task, PluggedTask) else None
    return plain if link is None else lambda rows: link(plain(rows))


def logits(p: Array) -> Array:
    """Logits of probabilities."""
    cut = np.clip(p, 1e-9, 1 - 1e-9)
    return np.asarray(np.log(cut / (1 - cut)))


def added(several: Sequence[Mapping[str, float] | None]) -> dict[str, float]:
    """Sums of several devices together."""
    found: dict[str, float] = {}
    for sums in several:
        for name, value in (sums or {}).items():
            found[name] = found.get(name, 0.0) + value
    return found


def choose(
    task: OutputTask,
    models: Mapping[str, Sequence[Predict]],
    seen: Mapping[str, Any],
    trained: Sequence[str],
) -> dict[str, tuple[int, float]]:
    """Settings that are best on the fleet's validation samples: kind -> place in GRID, and how bad they are."""
    found: dict[str, tuple[int, float]] = {}
    for at, (kind, _) in enumerate(GRID):
        error = badness_on(task, {n: models[n][at] for n in trained}, seen)
        if kind not in found or error < found[kind][1]:
            found[kind] = at, error
    return found


def choose_pooled(task: OutputTask, seen: Mapping[str, Any], trained: Sequence[str], seed: int) -> tuple[str, Predict]:
    """The kind and the best of all settings, on all training samples in one place; of many samples some are drawn."""
    x, y = (np.concatenate([seen[n][0][i] for n in trained]) for i in (0, 1))
    most = max(1, MOST_POOLED // max(1, task.steps))
    drawn = np.sort(np.random.default_rng([seed, 23]).permutation(len(x))[:most])
    models = [(kind, fit(task, kind, value, x[drawn], y[drawn], seed)) for kind, value in GRID]
    return min(models, key=lambda pair: badness_on(task, dict.fromkeys(trained, pair[1]), seen))


def badness_on(task: OutputTask, models: Mapping[str, Predict], seen: Mapping[str, Any]) -> float:
    """Badness of models on the validation samples of their devices together; 0 where there are none."""
    parts = {name: seen[name][1] for name in models}
    sums = [counted(task, y, models[name](x)) for name, (x, y) in parts.items() if x is not None]
    return task.badness(added(sums)) if sums else 0.0


def rows_of(
    task: OutputTask,
    models: Sequence[Predict],
    chosen: Mapping[str, tuple[int, float]],
    best: str,
    together: Predict,
    test: tuple[Array | None, Array],
    d: Mapping[str, Any],
) -> dict[str, dict[str, float]]:
    """Model -> sums of scores on one device's test samples."""
    x, y = test
    if x is None:
        return {}
    found = {ROWS[kind]: counted(task, y, models[at](x)) for kind, (at, _) in chosen.items()}
    found[POOLED] = counted(task, y, together(x))
    alone = d["sums"].get("test", {}).get(LOCAL) if best == NETWORK else found[ROWS[best]]
    return found if alone is None else {**found, ALONE: alone}


def counted(task: OutputTask, y: Array, predicted: Array) -> dict[str, float]:
    return {"samples": float(len(y)), **task.judged(y, predicted)}
