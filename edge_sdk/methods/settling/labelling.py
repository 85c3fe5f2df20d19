"""Labels that a device gives its own windows, and the fleet's choice whether that pays: pure functions of arrays.

teacher      log q = label_sharpness ((1 - a) log P(class; w) + a log P(class; forest)), own classes only      mixture
in time      log q <- mean of log q over label_smooth neighbours of a recording                              smoothed
taken        windows whose largest q is above a threshold; of one class at most a bounded share              confident
a, threshold of those that are precise enough on the fleet's validation samples, the most right labels         choose

The forest is on what the device has labels of, its own and those it gave before: time after time it learns from the
shared model what its own samples cannot tell it, and the shared model learns from windows that nobody has labelled.

Sources: D.-H. Lee, "Pseudo-Label", ICML workshop 2013 (confident predictions as labels); Q. Xie et al., "Self-training
with Noisy Student", CVPR 2020 (a teacher, changed inputs for the student, again and again); A. Blum and T. Mitchell,
"Combining labeled and unlabeled data with co-training", COLT 1998 (two teachers that see differently).
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.ensemble import Floats, log_probabilities, pooled, voted
from edge_sdk.algebra.forest import Forest, log_votes
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.samples import OwnWindows, SelfLabels
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.settling.equations import Counts, ensemble, forest, validation, votes_of
from edge_sdk.methods.settling.settings import TAUGHT_FOREST, Settling

NO_LABELS = SelfLabels(np.zeros(0, np.int64), np.zeros(0, np.int64))
MOST_LABELS = 4096
"""Windows that a device labels at most: it trains on all of them, with their changed copies."""
LEAST_CLASSES = 2
"""A device that knows one class only would call everything by its name."""


# Teaching -------------------------------------------------------------------------------------------------------
def taught(env: Any, labels: SelfLabels) -> Any:
    """A device's env with labels that it gave itself: its gradient has these windows, too."""
    before = env.untaught or env
    labels = NO_LABELS if env.own is None else still_there(env.own, labels)
    if not len(labels.rows):
        return before
    return replace(before, **env.own.taught(labels.rows, labels.labels), self_labels=labels, untaught=before)


def still_there(own: OwnWindows, labels: SelfLabels) -> SelfLabels:
    """The labels of windows that are still there, wherever they are now: a device that was started again may have
    others, as where its copy of them was damaged, or another run was taken up in between."""
    rows, marks = labels.rows, labels.marks
    fits = len(rows) > 0 and bool(rows.max() < own.count)
    if not len(marks) or own.marks is None:
        return labels if fits else NO_LABELS
    if fits and np.array_equal(own.marks()[rows], marks):
        return labels
    place = {mark: row for row, mark in enumerate(own.marks().tolist())}
    found = {place[m]: label for m, label in zip(marks.tolist(), labels.labels.tolist(), strict=True) if m in place}
    rows = np.array(sorted(found), np.int64)
    return SelfLabels(rows, np.array([found[row] for row in rows.tolist()], np.int64), own.marks()[rows])


def taught_by(env: Any, s: Settling, w: Vector, choice: int) -> Any:
    """A device's env after `label_times` turns of labelling and of growing a forest on that, from its own labels on.

    With its training and validation samples changed over (`NodeEnv.swapped`), the env is taught in the same way.
    """
    labels = NO_LABELS
    env = env.untaught or env
    for _ in range(s.label_times):
        labels = label(learning(env, labels), s, w, choice)
    swap = env.swapped
    found = taught(env, labels)
    return found if swap is None else replace(found, swapped=lambda env: taught_by(swap(env), s, w, choice))


def learning(env: Any, labels: SelfLabels) -> Any:
    """A device's env of which a forest learns these labels, too; its gradient does not."""
    return replace(env, self_labels=labels) if len(labels.rows) else env


def label(env: NodeEnv, s: Settling, w: Vector, choice: int) -> SelfLabels:
    """Labels of the windows that a device is sure of, by the shared model w and a forest on what it has now."""
    own = env.own
    if choice < 0 or own is None or not own.count or count_classes(env, own) < LEAST_CLASSES:
        return NO_LABELS
    known = classes_of(env, s, own)
    weight, threshold = options(s)[choice]
    logits = own.logits(w)
    shared = log_probabilities(logits, known)
    found = forest(env, s, TAUGHT_FOREST)
    p = np.exp(
        smoothed(
            mixture(s, shared, votes(found, own.unlabelled(), shared, known), weight), own.recording, s.label_smooth
        )
    )
    sure = confident(p, threshold, s.label_share, count_classes(env, own))
    marks = sure.marks if own.marks is None else own.marks()[sure.rows]
    return replace(sure, labels=own.sets[sure.labels] if len(own.sets) else sure.labels, marks=marks)


def count_classes(env: NodeEnv, own: OwnWindows) -> int:
    """Classes, or sets of labels, that a device has samples of."""
    return len(own.sets) or len(env.own_classes)


def classes_of(env: NodeEnv, s: Settling, own: OwnWindows) -> tuple[int, ...]:
    """Classes that a device may label with; empty: all that its outputs have, as where these are the sets it knows."""
    return () if len(own.sets) else ensemble(env, s, 0.0).classes


def votes(found: Forest | None, features: Floats, like: Floats, known: tuple[int, ...]) -> Floats | None:
    return None if found is None else voted(log_votes(found, features), like.shape[1], known)


def mixture(s: Settling, shared: Floats, trees: Floats | None, weight: float) -> Floats:
    """log q (samples, classes); without a forest the shared model's own."""
    found = shared if trees is None else pooled(shared, trees, weight)
    return log_probabilities(s.label_sharpness * found)


def smoothed(log_q: Floats, recording: npt.NDArray[np.int64], neighbours: int) -> Floats:
    """Geometric means of probabilities over `neighbours` windows around each one, within its recording.

    Args:
        log_q: (M, K), in order of time within a recording. recording: (M,), windows of one lie side by side.
    """
    out, floor = np.empty_like(log_q), np.where(np.isfinite(log_q), np.maximum(log_q, np.log(1e-6)), -np.inf)
    ends = (np.flatnonzero(np.r_[recording[1:] != recording[:-1], True]) + 1).tolist() if len(recording) else []
    ruled_out, start = ~np.isfinite(log_q).any(0), 0
    for end in ends:
        part = np.where(ruled_out, 0.0, floor[start:end])
        total = np.vstack([np.zeros(part.shape[1]), np.cumsum(part, 0)])
        at = np.arange(end - start)
        low, high = np.maximum(0, at - neighbours // 2), np.minimum(end - start, at + neighbours // 2 + 1)
        out[start:end] = (total[high] - total[low]) / (high - low)[:, None]
        start = end
    out[:, ruled_out] = -np.inf
    return log_probabilities(out) if len(out) else out


def confident(p: Floats, threshold: float, share: float, classes: int) -> SelfLabels:
    """Windows whose largest probability is above the threshold; of one class at most `share` times an even share of all
    that are sure, the surest ones, and of all at most MOST_LABELS."""
    top, codes = p.max(1), p.argmax(1)
    sure = np.flatnonzero(top > threshold)
    sure = np.sort(sure[np.argsort(-top[sure], kind="stable")[:MOST_LABELS]])
    most, rows = max(1, int(share * len(sure) / classes)), list[npt.NDArray[np.intp]]()
    for code in np.flatnonzero(np.bincount(codes[sure])):
        of_class = sure[codes[sure] == code]
        rows.append(of_class[np.argsort(-top[of_class], kind="stable")[:most]])
    kept = np.sort(np.concatenate(rows)) if rows else sure
    return SelfLabels(kept.astype(np.int64), codes[kept].astype(np.int64))


# The fleet's choice ---------------------------------------------------------------------------------------------
def options(s: Settling) -> list[tuple[float, float]]:
    """(weight of the forest, threshold) of each way to label."""
    return [(weight, threshold) for weight in s.label_weights for threshold in s.label_thresholds]


def count_size(s: Settling) -> int:
    """Counts that a device tells: of each weight the samples that are right; of each option those sure, those right."""
    return len(s.label_weights) + 2 * len(options(s))


def labelling_counts(env: NodeEnv, s: Settling, w: Vector) -> tuple[Counts, int]:
    """A device's counts on its validation samples, in the order of `count_size`, and how many samples these are.

    Nothing is smoothed there: a few labelled seconds have no neighbours. So what is above a threshold is right more
    often when windows are labelled than these counts say. The forest is one on the labels that the device was given:
    one that has learnt from its own labels is surer than it is right. A device with no window to label counts nothing.
    """
    env = env.untaught or env
    if env.own is None or not env.own.count:
        return np.zeros(count_size(s), np.int64), 0
    judged, known = env.own.judged or validation(env), classes_of(env, s, env.own)
    if not len(judged.labels) or count_classes(env, env.own) < LEAST_CLASSES:
        return np.zeros(count_size(s), np.int64), 0
    shared = log_probabilities(judged.logits(w), known)
    trees = votes_of(env, s, forest(env, s, TAUGHT_FOREST), shared.shape[1])
    right, sure_right = list[int](), list[int]()
    for weight in s.label_weights:
        p = np.exp(mixture(s, shared, trees, weight))
        is_right = p.argmax(1) == judged.labels
        right.append(int(is_right.sum()))
        for threshold in s.label_thresholds:
            sure = p.max(1) > threshold
            sure_right += [int(sure.sum()), int((sure & is_right).sum())]
    return np.array([*right, *sure_right], np.int64), len(judged.labels)


def choose_labelling(s: Settling, counts: Counts) -> int:
    """Index into `options` of the fleet's choice; -1: no option is precise enough, so nothing is labelled.

    Of the options that are precise enough the one with the most right labels.
    """
    sure, right = counts[len(s.label_weights) :].reshape(-1, 2).T
    precise = (sure > 0) & (right >= s.label_precision * sure)
    return int(np.argmax(np.where(precise, right, -1))) if precise.any() else -1


def still_pays(s: Settling, counts: Counts, choice: int, samples: int, share: float, doubt: float = 0.0) -> bool:
    """True if the mixture of a choice is right about as often as when it was chosen: within a standard error.

    A model that has learnt from its own labels is surer than it is right, so its precision above a threshold says
    little; how often it is right says whether these labels do harm. Other devices may have answered this time.

    Args:
        samples: validation samples of those who have answered now; 0: nothing can be said.
        share: of the samples that it got right when it was chosen.
        doubt: standard deviation of noise in each count, now and then.
    """
    if not samples:
        return True
    now = int(counts[choice // len(s.label_thresholds)])
    share = min(max(share, 0.0), 1.0)  # with noise it may be no share
    return now / samples >= share - hypot(sqrt(share * (1 - share) / samples), sqrt(2) * doubt / samples)
