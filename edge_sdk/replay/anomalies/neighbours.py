"""The strongest neighbours of a network that reconstructs windows, each of one device's training windows.

pca        the windows' first 2, 4, 8 or 16 principal components, and what they say of a window; its error is as the
           network's
distance   the squared Mahalanobis distance of a window's features from the mean, with the covariance of O. Ledoit and
           M. Wolf ("A well-conditioned estimator", 2004): a score as an anomaly, and no reconstruction
network    the run's own, as the devices have trained it alone

Labels choose nothing, as training needs none: the fleet chooses the number of components, and "alone" among pca and
network, by the error on validation windows. With all components the error would be 0, and say nothing of what is
unusual, so 16 are the most: as many numbers as the zoo's autoencoder passes on. "pooled" is pca on all training windows
in one place. Test windows are only judged by what was chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics.reconstruction import threshold_of, window_errors
from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.replay.metrics.scores import ALONE, LOCAL, POOLED
from edge_sdk.replay.neighbours.candidates import NETWORK
from edge_sdk.replay.neighbours.features import Floats, features_of, kind_of_features
from edge_sdk.replay.neighbours.fitted import fit_components, fit_mahalanobis, is_installed
from edge_sdk.replay.neighbours.holders import MOST_POOLED
from edge_sdk.replay.neighbours.output_models import Array, Parts, Rows, added
from edge_sdk.replay.neighbours.told import COMPUTED, LEFT_OUT, MISSING, UNDEFINED

PCA, DISTANCE = "pca", "distance"
ALONE_PCA, ALONE_DISTANCE = "alone_pca", "alone_distance"
COMPONENTS = (2, 4, 8, 16)
Score = Callable[[Array], Floats]
"""Windows (N, ...) -> how unusual each is, (N,), from 0 up."""


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
    own = {str(d["device"]): parts(str(d["device"])) for d in chosen}
    first = next(iter(own.values()))[0][0]
    if first.dtype.names is not None or not kind_of_features(first):
        return {"state": UNDEFINED, "why": "samples of this kind have no features"}, {}
    say(f"the strongest neighbours: what {len(own)} devices reach alone without the network (--no-neighbours: not)")
    began = time.monotonic()
    trained = [str(d["device"]) for d in chosen if not d["newcomer"]]
    components, errors = choose_components(own, trained, seed)
    networks = [d["sums"].get("validation", {}).get(LOCAL) for d in chosen if d["device"] in {*trained}]
    kinds = {PCA: errors}
    if networks and all(sums is not None for sums in networks):
        kinds[NETWORK] = task.badness(added(networks))
    best = min(kinds, key=lambda kind: kinds[kind])
    together = np.concatenate([own[n][0][0] for n in trained])
    drawn = np.sort(np.random.default_rng([seed, 23]).permutation(len(together))[:MOST_POOLED])
    pooled = fit_pca(together[drawn], components, seed)
    rows = {str(d["device"]): rows_of(task, own[str(d["device"])], components, pooled, seed) for d in chosen}
    for d in chosen:
        found = rows[str(d["device"])]
        alone = d["sums"].get("test", {}).get(LOCAL) if best == NETWORK else found[ALONE_PCA]
        found |= {} if alone is None else {ALONE: alone}
    told = {
        "state": COMPUTED,
        "on": "windows",
        "chosen": best,
        "components": components,
        "samples": sum(len(own[n][1][1]) for n in trained),
        "kinds": {kind: {"error": error} for kind, error in kinds.items()},
        "pooled": {"chosen": PCA},
        "devices": len(own),
        "of": len(written),
        "seconds": round(time.monotonic() - began, 1),
    }
    return told, rows


def choose_components(own: Mapping[str, Parts], trained: Sequence[str], seed: int) -> tuple[int, float]:
    """The number of components with the smallest error on the fleet's validation windows together, and this error."""
    errors = {
        count: sum(float(fit_pca(own[n][0][0], count, seed)(own[n][1][0]).sum()) for n in trained)
        for count in COMPONENTS
    }
    best = min(errors, key=lambda count: errors[count])
    return best, errors[best]


def fit_pca(x: Array, components: int, seed: int) -> Score:
    """The error of what the first principal components of windows x say of a window."""
    reconstruct = fit_components(flat(x), components, seed)

    def errors(rows: Array) -> Floats:
        if not len(rows):
            return np.zeros(0)
        return window_errors(flat(rows), reconstruct(flat(rows)))

    return errors


def fit_distance(x: Array) -> Score:
    """The squared Mahalanobis distance from windows x, by standardised features."""
    distance = fit_mahalanobis(features_of(x))
    return lambda rows: distance(features_of(rows)) if len(rows) else np.zeros(0)


def flat(x: Array) -> Floats:
    """Windows as rows of numbers (N, ...)."""
    return np.asarray(x.reshape(len(x), -1), np.float64)


def rows_of(
    task: Reconstruction, parts: Parts, components: int, pooled: Score, seed: int
) -> dict[str, dict[str, float]]:
    """Model -> sums of scores on one device's test windows."""
    (x, _), (chosen, _), (test, y) = parts
    detectors = {ALONE_PCA: fit_pca(x, components, seed), ALONE_DISTANCE: fit_distance(x), POOLED: pooled}
    found = dict[str, dict[str, float]]()
    for name, score in detectors.items():
        limit = threshold_of(score(chosen), task.quantile)
        sums = {"samples": float(len(y)), **task.judged_scores(y, score(test), limit)}
        found[name] = without_error(sums) if name == ALONE_DISTANCE else sums
    return found


def without_error(sums: Mapping[str, float]) -> dict[str, float]:
    """Sums of a score that is no error of reconstruction."""
    return {name: value for name, value in sums.items() if name not in ("error", "variance")}
