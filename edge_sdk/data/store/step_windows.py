"""Windows of a store with their values, or the class or values of each of their steps, by what people have said of
stretches of time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np

from edge_sdk.data.steps import step_edges
from edge_sdk.data.store.frozen_unlabelled import OF_LATEST
from edge_sdk.data.store.sample_store import SampleStore, StoredWindows
from edge_sdk.data.store.timeline import LabelledSpan
from edge_sdk.label_names import STEP_JOIN

Combine = Callable[[Mapping[str, float], float], str]
"""(what was said -> seconds, seconds of which nothing was said) -> what a step is; "": too little was said."""


def step_windows(store: SampleStore, steps: int, combine: Combine) -> StoredWindows:
    """Windows of which a step has a label, of the latest OF_LATEST, in order of time.

    What was said of the time that the samples of a step stand for is combined to the step's label. Labels of windows
    are such texts as "rest|rest|", with nothing for a step without one.
    """
    latest = store.select("1 ORDER BY ended DESC, id DESC LIMIT ?", OF_LATEST).take(slice(None, None, -1))
    with store.lock:
        spans = list(store.timeline.spans)
    window = store.shape[1]
    shares = (step_edges(window, steps) - 1 / 2) / max(1, window - 1)
    labels = list[str]()
    for began, ended in zip(latest.began.tolist(), latest.ended.tolist(), strict=True):
        edges = (began + shares * (ended - began)).tolist()
        said = [combine(*said_of(spans, a, b)) for a, b in pairwise(edges)]
        labels.append(STEP_JOIN.join(said) if any(said) else "")
    found = replace(latest, labels=tuple(labels))
    return found.take(np.flatnonzero([label != "" for label in labels]))


def mean_windows(store: SampleStore, combine: Combine) -> StoredWindows:
    """Windows with values, in order of time: those of which one thing was said from their first sample to their last,
    and of the latest OF_LATEST those of which all that was said can be combined: heart rates of each second."""
    latest, whole = step_windows(store, 1, combine), store.labelled()
    earlier = whole.take(np.flatnonzero(~np.isin(whole.ids, latest.ids)))
    parts = {f.name: [getattr(one, f.name) for one in (earlier, latest)] for f in fields(latest) if f.name != "labels"}
    columns = {name: np.concatenate(both) for name, both in parts.items()}
    found = StoredWindows(**columns, labels=(*earlier.labels, *latest.labels))
    return found.take(np.lexsort((found.ids, found.ended)))


def said_of(spans: Sequence[LabelledSpan], began: float, ended: float) -> tuple[dict[str, float], float]:
    """What was said of the time between two moments -> seconds; and the seconds of which nothing was."""
    lasted, unknown = dict[str, float](), ended - began
    for span in spans[bisect_left(spans, began, key=lambda span: span.ended) :]:
        if span.began >= ended:
            break
        own = min(ended, span.ended) - max(began, span.began)
        lasted[span.activity] = lasted.get(span.activity, 0.0) + own
        unknown -= own
    return lasted, unknown
