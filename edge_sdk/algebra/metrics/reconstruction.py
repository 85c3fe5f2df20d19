"""Scores of reconstructed windows as sums that add up over windows, devices and hospitals, and what they come to.

Of each window, e is the mean over its numbers of (reconstructed - true)^2, its score as an anomaly, and v is the mean
of (true - mean of its channel in this window)^2. A device's threshold t is a quantile of e on its own validation
windows, and a window is an alarm where e > t.

normal, abnormal   windows that nobody calls abnormal, and those that somebody does
error, variance    sums of e and of v over the normal ones: 1 - error / variance is the share that is explained
alarms, found      alarms among the normal ones, and among the abnormal ones
thresholds         the thresholds of the devices, each once, and "judged" devices that have one
score:k:b          normal (k = 0) or abnormal (k = 1) windows whose e / (e + t) lies in bin b of BINS equal ones

So scores of several devices are compared in units of each one's own threshold, which is the edge in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics.classification import area
from edge_sdk.errors import UsageError

Floats = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]
Sums = Mapping[str, float]
BINS = 256
RECONSTRUCTION_ERROR, VARIANCE, QUANTILE = "reconstruction_error", "variance", "quantile"
"""Sums of evaluations in a run: one device's mean of e, whose sum over devices is for their unweighted mean; v over all
windows; the quantile of one device's e that the bundle's threshold is."""
TINY, LARGEST = np.finfo(np.float64).tiny, np.finfo(np.float64).max / 4


@dataclass(frozen=True)
class AnomalyScores:
    """Scores of one model over some windows.

    Attributes:
        normal, abnormal: windows.
        error: mean e over the normal ones. explained: share of their variance; None: they do not vary.
        alarms: share of the normal ones that are alarms; None: nobody has a threshold.
        found: share of the abnormal ones that are alarms; None: also where there is none.
        auroc: area under the ROC curve, by the bins; None: there are no windows of both kinds.
        auroc_error: it is off by so much at most.
        threshold: mean over the devices that have one; None: none has.
    """

    normal: float
    abnormal: float
    error: float | None
    explained: float | None
    alarms: float | None = None
    found: float | None = None
    auroc: float | None = None
    auroc_error: float = 0.0
    threshold: float | None = None


def window_errors(x: Floats, reconstructed: Floats) -> npt.NDArray[np.float64]:
    """The mean squared error of each window, (N,), of true and reconstructed ones, (N, ...) each."""
    if x.shape != reconstructed.shape:
        raise UsageError(f"windows of shape {x.shape} and reconstructions of {reconstructed.shape}")
    return per_window(np.square(reconstructed.astype(np.float64) - x))


def window_variances(x: Floats) -> npt.NDArray[np.float64]:
    """The variance of each window (N, ..., T) about the means of its channels, (N,)."""
    wide = x.astype(np.float64)
    return per_window(np.square(wide - wide.mean(-1, keepdims=True)))


def per_window(values: Floats) -> npt.NDArray[np.float64]:
    """Means over all axes but the first, (N,)."""
    return np.asarray(values.reshape(len(values), -1).mean(1) if len(values) else np.zeros(0), np.float64)


def threshold_of(errors: Floats, quantile: float) -> float | None:
    """The threshold that validation windows with these errors (N,) make; None: there are none."""
    return float(np.quantile(errors, quantile)) if len(errors) else None


def score_sums(errors: Floats, abnormal: Mask, threshold: float | None) -> dict[str, float]:
    """Sums of scores of windows with errors (N,), as the head of this module names them, but for "variance"."""
    counts = {"normal": float((~abnormal).sum()), "abnormal": float(abnormal.sum())}
    sums = {**counts, "error": float(errors[~abnormal].sum())}
    if threshold is None:
        return sums
    above = ~(errors <= threshold)  # also what is no number
    sums |= {"alarms": float(above[~abnormal].sum()), "found": float(above[abnormal].sum())}
    finite = np.where(np.isfinite(errors), errors, LARGEST)  # of a model that has diverged
    share = finite / np.maximum(finite + threshold, TINY)
    place = np.minimum((share * BINS).astype(np.int64), BINS - 1)
    for kind in (0, 1):
        bins = np.bincount(place[abnormal == bool(kind)], minlength=BINS)
        sums |= {f"score:{kind}:{b}": float(n) for b, n in enumerate(bins.tolist()) if n}
    return {**sums, "thresholds": threshold, "judged": 1.0}


def scores_of(sums: Sums) -> AnomalyScores:
    """What sums of one or several devices come to."""
    normal, abnormal, judged = sums["normal"], sums["abnormal"], sums.get("judged", 0.0)
    variance = sums.get(VARIANCE, 0.0)
    bins = {k: {b: sums[f"score:{k}:{b}"] for b in range(BINS) if f"score:{k}:{b}" in sums} for k in (0, 1)}
    ties = sum(n * bins[1].get(b, 0.0) for b, n in bins[0].items())
    pairs = sum(bins[0].values()) * sum(bins[1].values())
    return AnomalyScores(
        normal=normal,
        abnormal=abnormal,
        error=sums["error"] / normal if normal else None,
        explained=1 - sums["error"] / variance if variance > 0 else None,
        alarms=sums["alarms"] / normal if normal and judged else None,
        found=sums["found"] / abnormal if abnormal and judged else None,
        auroc=area(bins),
        auroc_error=ties / (2 * pairs) if pairs else 0.0,
        threshold=sums["thresholds"] / judged if judged else None,
    )
