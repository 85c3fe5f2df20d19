"""The strongest neighbours of a network that reconstructs windows or forecasts their ends, by one device's windows.

pca        of reconstructions: the windows' first 2, 4, 8 or 16 principal components, and what they say of a window; its
           error is as the network's
ridge      of forecasts: ridge regression of a window's end on all before it, each channel without its last value before
           the end; penalty 1, 10, 100 or 1000
last       of forecasts: the last value before the end, again and again: what each forecast must beat
distance   the squared Mahalanobis distance of a window's features from the mean, with the covariance of O. Ledoit and
           M. Wolf ("A well-conditioned estimator", 2004): a score as an anomaly, and no reconstruction
network    the run's own, as the devices have trained it alone

Labels choose nothing, as training needs none: the fleet chooses the number of components or the penalty, and "alone"
among pca, or ridge and last, and network, by the error on validation windows. With all components the error would be 0,
and say nothing of what is unusual, so 16 are the most: as many numbers as the zoo's autoencoder passes on. "pooled" is
pca, or ridge, on all training windows in one place. Test windows are only judged by what was chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics.reconstruction import threshold_of, window_errors
from edge_sdk.model.tasks.forecast import Forecast
from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.replay.metrics.scores import ALONE, LOCAL, POOLED
from edge_sdk.replay.neighbours.candidates import NETWORK
from edge_sdk.replay.neighbours.features import Floats, features_of, kind_of_features
from edge_sdk.replay.neighbours.fitted import fit_components, fit_mahalanobis, fit_ridge, is_installed
from edge_sdk.replay.neighbours.holders import MOST_POOLED
from edge_sdk.replay.neighbours.output_models import Array, Parts, Rows, added
from edge_sdk.replay.neighbours.told import COMPUTED, LEFT_OUT, MISSING, UNDEFINED

PCA, RIDGE, LAST, DISTANCE = "pca", "ridge", "last", "distance"
ALONE_PCA, ALONE_RIDGE, ALONE_LAST, ALONE_DISTANCE = (f"alone_{kind}" for kind in (PCA, RIDGE, LAST, DISTANCE))
Score = Callable[[Array], Floats]
"""Windows (N, ...) -> how unusual each is, (N,), from 0 up."""


@dataclass(frozen=True)
class Detector:
    """A kind of model without gradients, of which the fleet chooses one.

    Attributes:
        fit: training windows, setting and seed -> error of each window.
        settings: to choose from. setting: what that is called.
    """

    name: str
    fit: Callable[[Array, float, int], Score]
    settings: Sequence[float]
    setting: str


def kinds_of(task: Reconstruction) -> list[Detector]:
    """The kinds for a task, with a setting first, which "pooled" is of, too."""
    if not isinstance(task, Forecast):
        return [Detector(PCA, fit_pca, (2, 4, 8, 16), "components")]
    ridge = Detector(RIDGE, partial(fit_ahead, task), (1.0, 10.0, 100.0, 1000.0), "penalty")
    return [ridge, Detector(LAST, lambda *_: partial(last_errors, task), (0,), "")]


def look_for_detectors(
    task: Reconstruction,
    parts: Callable[[str], Parts],
    written: Sequence[Mapping[str, Any]],
    most: int,
    seed: int,
    say: Callable[[str], Any],
) -> tuple[dict[str, Any], Rows]:
    """What was found, in JSON's types (neighbours/told.py), and each device's rows.

    Args:
        parts: device -> its samples. written: what devices have written at the end. most: devices that are judged.
    """
    if not most or not is_installed():
        return {"state": MISSING if most else LEFT_OUT}, {}
    chosen = written[:most]
    own = {str(d["device"]): choosing_by_normal(parts(str(d["device"]))) for d in chosen}
    first = next(iter(own.values()))[0][0]
    if first.dtype.names is not None or not kind_of_features(first):
        return {"state": UNDEFINED, "why": "samples of this kind have no features"}, {}
    say(f"the strongest neighbours: what {len(own)} devices reach alone without the network (--no-neighbours: not)")
    began = time.monotonic()
    trained = [str(d["device"]) for d in chosen if not d["newcomer"]]
    kinds = kinds_of(task)
    chosen_of = {kind.name: choose_setting(kind, own, trained, seed) for kind in kinds}
    errors = {name: error for name, (_, error) in chosen_of.items()}
    networks = [d["sums"].get("validation", {}).get(LOCAL) for d in chosen if d["device"] in {*trained}]
    if networks and all(sums is not None for sums in networks):
        errors[NETWORK] = task.badness(added(networks))
    best = min(errors, key=lambda name: errors[name])
    together = np.concatenate([own[n][0][0] for n in trained])
    drawn = np.sort(np.random.default_rng([seed, 23]).permutation(len(together))[:MOST_POOLED])
    first_kind, setting = kinds[0], chosen_of[kinds[0].name][0]
    pooled = first_kind.fit(together[drawn], setting, seed)
    rows = {
        str(d["device"]): rows_of(task, own[str(d["device"])], [(k, chosen_of[k.name][0]) for k in kinds], pooled, seed)
        for d in chosen
    }
    for d in chosen:
        found = rows[str(d["device"])]
        alone = d["sums"].get("test", {}).get(LOCAL) if best == NETWORK else found[f"alone_{best}"]
        found |= {} if alone is None else {ALONE: alone}
    told = {
        "state": COMPUTED,
        "on": "windows",
        "chosen": best,
        first_kind.setting: setting,
        "samples": sum(len(own[n][1][1]) for n in trained),
        "kinds": {kind: {"error": error} for kind, error in errors.items()},
        "pooled": {"chosen": first_kind.name},
        "devices": len(own),
        "of": len(written),
        "seconds": round(time.monotonic() - began, 1),
    }
    return told, rows


def choosing_by_normal(parts: Parts) -> Parts:
    """The samples of a device without those for choices that somebody calls abnormal."""
    train, (x, y), test = parts
    normal = ~y["abnormal"] if y.dtype.names else np.ones(len(y), np.bool_)
    return train, (x[normal], y[normal]), test


def choose_setting(kind: Detector, own: Mapping[str, Parts], trained: Sequence[str], seed: int) -> tuple[float, float]:
    """The setting with the smallest error on the fleet's validation windows together, and this error."""
    errors = {
        value: sum(float(kind.fit(own[n][0][0], value, seed)(own[n][1][0]).sum()) for n in trained)
        for value in kind.settings
    }
    best = min(errors, key=lambda value: errors[value])
    return best, errors[best]


def fit_pca(x: Array, components: float, seed: int) -> Score:
    """The error of what the first principal components of windows x say of a window."""
    reconstruct = fit_components(flat(x), int(components), seed)

    def errors(rows: Array) -> Floats:
        if not len(rows):
            return np.zeros(0)
        return window_errors(flat(rows), reconstruct(flat(rows)))

    return errors


def fit_ahead(task: Forecast, x: Array, penalty: float, seed: int) -> Score:
    """The error of a ridge regression of the ends of windows x on all before them."""
    predict = fit_ridge(*changes(task, x), penalty)

    def errors(rows: Array) -> Floats:
        if not len(rows):
            return np.zeros(0)
        before, after = changes(task, rows)
        return window_errors(after, predict(before))

    return errors


def changes(task: Forecast, x: Array) -> tuple[Floats, Floats]:
    """What comes before the ends of windows x and these ends, as rows, each channel without its last value before."""
    last = task.before(x)[..., -1:]
    return flat(task.before(x) - last), flat(task.part(x) - last)


def last_errors(task: Forecast, x: Array) -> Floats:
    """The error of a forecast that says the last value before a window's end again and again."""
    if not len(x):
        return np.zeros(0)
    _, after = changes(task, x)
    return window_errors(after, np.zeros_like(after))


def fit_distance(x: Array) -> Score:
    """The squared Mahalanobis distance from windows x, by standardised features."""
    distance = fit_mahalanobis(features_of(x))
    return lambda rows: distance(features_of(rows)) if len(rows) else np.zeros(0)


def flat(x: Array) -> Floats:
    """Windows as rows of numbers (N, ...)."""
    return np.asarray(x.reshape(len(x), int(np.prod(x.shape[1:]))), np.float64)  # none, too


def rows_of(
    task: Reconstruction, parts: Parts, kinds: Sequence[tuple[Detector, float]], pooled: Score, seed: int
) -> dict[str, dict[str, float]]:
    """Model -> sums of scores on one device's test windows. `kinds`: each with the setting that was chosen."""
    (x, _), (chosen, _), (test, y) = parts
    detectors = {f"alone_{kind.name}": kind.fit(x, value, seed) for kind, value in kinds}
    detectors |= {ALONE_DISTANCE: fit_distance(x), POOLED: pooled}
    found = dict[str, dict[str, float]]()
    for name, score in detectors.items():
        limit = threshold_of(score(chosen), task.quantile)
        sums = {"samples": float(len(y)), **task.judged_scores(y, score(test), limit)}
        found[name] = without_error(sums) if name == ALONE_DISTANCE else sums
    return found


def without_error(sums: Mapping[str, float]) -> dict[str, float]:
    """Sums of a score that is no error of reconstruction."""
    return {name: value for name, value in sums.items() if name not in ("error", "variance")}
