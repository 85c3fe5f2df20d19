"""All windows of a store, labelled or not, for models that reconstruct windows: labels say at most what is abnormal.

Of the latest OF_LATEST windows those without an abnormal moment are evenly thinned to MOST at most; all others stay,
for they are rare.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from edge_sdk.data.store.frozen_unlabelled import MOST, OF_LATEST
from edge_sdk.data.store.sample_store import SampleStore, StoredWindows
from edge_sdk.label_names import label_key


def every_window(store: SampleStore, abnormal: Sequence[str]) -> StoredWindows:
    """What a store knows of its windows, in order of time.

    Args:
        abnormal: labels of what is abnormal. A window with a moment of these has the first of them in this list as its
            label; another one that of all its moments, or "".
    """
    latest = store.select("1 ORDER BY ended DESC, id DESC LIMIT ?", OF_LATEST).take(slice(None, None, -1))
    with store.lock:
        spans = list(store.timeline.spans)
    keys = [label_key(name) for name in abnormal]
    labels, is_rare = list[str](), np.zeros(len(latest.ids), np.bool_)
    for at, (began, ended) in enumerate(zip(latest.began.tolist(), latest.ended.tolist(), strict=True)):
        said = set[str]()
        for span in spans[bisect_left(spans, began, key=lambda span: span.ended) :]:
            if span.began > ended:
                break
            said.add(label_key(span.activity))
        first = next((name for name, key in zip(abnormal, keys, strict=True) if key in said), None)
        is_rare[at] = first is not None
        labels.append(latest.labels[at] or "" if first is None else first)
    usual = np.flatnonzero(~is_rare)
    kept = np.union1d(usual[:: max(1, -(-len(usual) // MOST))], np.flatnonzero(is_rare))
    found = StoredWindows(latest.ids, latest.began, latest.ended, latest.recording, tuple(labels), latest.held)
    return found.take(kept)
