"""Scores that may cross a wire: a closed list of names, each with a range, checked before anybody adds them up.

A score is a sum over devices. Its name becomes a key of what a hospital saves and a line of the report, so a peer must
not choose it freely: many names would outgrow a hospital's record, and the last number in the name of a histogram is
the length of an array. A method that reports something new adds its name here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from edge_sdk.algebra.metrics import regression
from edge_sdk.algebra.metrics.classification import BINS, MOST_CLASSES
from edge_sdk.algebra.metrics.label_sets import F1
from edge_sdk.algebra.metrics.reconstruction import QUANTILE, RECONSTRUCTION_ERROR, VARIANCE
from edge_sdk.algebra.metrics.regression import ABSOLUTE, ERROR, MAE

LARGEST = 2.0**32
MODELS = ("global", "personal", "unseen", "companion", "local")
TEST = (
    "test_"  # before a score of the last evaluation that is on test samples, where the others are on validation samples
)
SQUARED = "_squared"
"""End of the names of sums of the squares of shares, for their spread over devices."""
METRICS = ("correct", "accuracy", "accuracy_squared", "loss", "samples", "devices")
UNTOLD = "untold"
"""Devices that are counted beside scores without theirs: their hospital has too few (nodes/policy/score_filter.py)."""
LOSS_DEVICES = "loss_devices"
"""Devices that have told the training loss which is beside it: who has no training samples has none to tell."""
PERSONAL_FACTS = ("personal_harmed", "personal_density")
"""Of an evaluation: devices whose personal model is right on fewer samples than the global one (reports.HARMED), and
shares of their personal components that are not zero. They are never masked: a sum of masked answers has none."""
OF_SETS = frozenset(f"{model}_{metric}" for model in MODELS for metric in (F1, f"{F1}_squared"))
"""Sums over devices of their own macro-F1 and of its squares, of models that predict sets of labels. They are never
masked either: a sum of masked histograms has the F1 of all samples together."""
OF_WINDOWS = frozenset(f"{model}_{metric}" for model in MODELS for metric in (RECONSTRUCTION_ERROR, VARIANCE, QUANTILE))
"""Of models that reconstruct windows: sums over devices of each one's mean error and of a quantile of its errors, and
over windows of how much they vary. Secret sums have none."""
STAGES = ("started", "trained", "settled")  # of FedAL, around which it measures what is forgotten

SIGNED = {"loss", "value", *(f"{model}_loss" for model in MODELS)}
"""Scores that may be below 0; no other may."""
OTHERS = {
    *("samples", "devices", LOSS_DEVICES),
    *("primal_residual", "dual_residual"),  # AugFL
    *("noise_0", "noise_1", "noise_2", "contributors"),  # HSGD
    *(f"{stage}_{what}" for stage in STAGES for what in ("accuracy", "own_accuracy")),
}
NAMES = SIGNED | OTHERS | {f"{model}_{metric}" for model in MODELS for metric in METRICS}
HISTOGRAM = re.compile(rf"({'|'.join(MODELS)})_auc:(\d{{1,4}}):[01]:(\d{{1,4}})")
CLOSED = NAMES | {UNTOLD, *PERSONAL_FACTS} | OF_SETS | OF_WINDOWS
"""All names but those with a number at their end."""
MOST = 2 * (len(CLOSED) + len(MODELS) * MOST_CLASSES * 2 * BINS)
ERRORS = re.compile(rf"({'|'.join(MODELS)})_({ABSOLUTE}|{regression.SQUARED}|{ERROR}|{MAE}):(\d{{1,2}})")
MOST_VALUES = 16
"""Sums of errors of predicted values (algebra/metrics/regression.py), by number, and how many a model has at most."""
SLACK = 1e-6  # relative: sums of fractions are rounded


def check_round(round: int) -> None:
    """Raises ValueError for a number of rounds below 0."""
    if round < 0:
        raise ValueError(f"round {round}, 0 or more")


def check_scores(scores: Mapping[str, float], count: float = LARGEST) -> None:
    """Check names, values, and that they go together.

    Args:
        count: devices of which they are sums.

    Raises:
        ValueError: they cannot be the scores of so many devices.
    """
    if len(scores) > MOST:
        raise ValueError(f"{len(scores)} scores, there are at most {MOST}")
    apart = {name.removeprefix(TEST): value for name, value in scores.items() if name.startswith(TEST)}
    for part in (apart, {name: value for name, value in scores.items() if not name.startswith(TEST)}):
        for name, value in part.items():
            check_score(name, value, part, count)


def check_score(name: str, value: float, scores: Mapping[str, float], count: float) -> None:
    of_values = ERRORS.fullmatch(name)
    if of_values is not None and int(of_values[3]) >= MOST_VALUES:
        raise ValueError(f"score {name!r}: there are at most {MOST_VALUES} values")
    if name not in CLOSED and of_values is None:
        check_histogram(name)
    if not (isfinite(value) and abs(value) <= LARGEST):
        raise ValueError(f"score {name!r} = {value} is not finite or above {LARGEST:.0f}")
    if value < 0 and name not in SIGNED and (of_values is None or of_values[2] != ERROR):
        raise ValueError(f"score {name!r} = {value} is below 0")
    if value > (most := most_of(name, scores, count)) + SLACK * (1 + most):
        raise ValueError(f"score {name!r} = {value:g}, of these devices and samples it is at most {most:g}")


def check_histogram(name: str) -> None:
    found = HISTOGRAM.fullmatch(name)
    if found is None:
        raise ValueError(
            f"score {name[:60]!r} is none of those that a method reports (methods/shared/aggregation/scores.py)"
        )
    if int(found[2]) >= MOST_CLASSES or int(found[3]) >= BINS:
        raise ValueError(f"score {name!r}: there are at most {MOST_CLASSES} classes and {BINS} bins")


def partial_histograms(sums: Mapping[str, float]) -> frozenset[str]:
    """Models, with TEST before them or not, whose histograms leave out samples that they were judged on.

    Each class has a histogram of all samples of a device. So where a sum has fewer, not every device in it has told
    its own, and it cannot be seen of how few devices they are.
    """
    counted: dict[tuple[str, str], float] = {}
    for name, value in sums.items():
        model, is_bin, place = name.partition("_auc:")
        if is_bin:
            key = model, place.partition(":")[0]
            counted[key] = counted.get(key, 0.0) + value
    return frozenset(model for (model, _), count in counted.items() if count != samples_of(model, sums))


def samples_of(model: str, sums: Mapping[str, float]) -> float:
    """Number of samples that a model, with TEST before it or not, was judged on."""
    part = TEST if model.startswith(TEST) else ""
    return sums.get(f"{model}_samples", sums.get(f"{part}samples", 0.0))


def most_of(name: str, scores: Mapping[str, float], count: float) -> float:
    """The largest value that a score may have beside the others: no device is right more often than it has samples."""
    model, _, metric = name.partition("_")
    if name in ("devices", UNTOLD) or metric in ("devices", "own_accuracy"):
        return count
    if name in PERSONAL_FACTS:
        return scores.get("devices", 0.0)
    if metric in ("accuracy", F1):
        return count if model in STAGES else scores.get(f"{model}_devices", scores.get("devices", 0.0))
    if metric in ("accuracy_squared", f"{F1}_squared"):
        return scores.get(name.removesuffix("_squared"), 0.0)
    if metric == "correct" or metric.startswith("auc:"):
        return scores.get(f"{model}_samples", scores.get("samples", 0.0))
    return LARGEST
