"""Questions that a device may put to whoever wears it: what was done in the stretches whose label would help most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.asking import choose, margins, means_of, stretches
from edge_sdk.data.store.sample_store import SampleStore, StoredWindows
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.nodes.device.live_samples import LiveSamples
from edge_sdk.nodes.kernels.own_windows import features_of
from edge_sdk.nodes.models.working_model import WorkingModel

LATEST, MOST_LABELLED = 4096, 2048
"""Windows without a label, and with one, that are looked at: the latest."""
LONGEST = 30.0
"""Seconds of a stretch, at most: so long can somebody remember that it was one thing."""
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LabelQuestion:
    """A stretch of time whose label would help; `Device.label(activity, began, ended)` answers it.

    Attributes:
        began, ended: seconds since 1970.
        likeliest: the two likeliest labels by the model that predicts, each with its probability; one where it knows
            one only, none before a run where the bundle has no names for its classes.
    """

    began: float
    ended: float
    likeliest: tuple[tuple[str, float], ...]


def find_questions(live: LiveSamples, working: WorkingModel, most: int) -> tuple[LabelQuestion, ...]:
    """Questions about what was observed, the most useful first, as `Device.questions` describes them."""
    if most < 1:
        raise UsageError(f"questions: most = {most}, expected a number of questions, 1 or more")
    if not isinstance(working.model.task, OneClass):
        what = f"{working.model.name} predicts {working.model.task.in_words(working.classes)}"
        raise UsageError(f"questions: {what}, and questions are for the names of classes")
    live.flush()
    normalise = live.signal.normalise
    loose, x = read(live.store, live.store.unlabelled(LATEST, LATEST), normalise)
    if not len(x):
        return ()
    _, known = read(live.store, live.store.labelled().take(slice(-MOST_LABELLED, None)), normalise)
    p = probabilities_of_all(working, x)
    parts = stretches(loose.recording, p.argmax(1), loose.began, loose.ended, LONGEST)
    mean, features = means_of(p, parts), means_of(features_of(x), parts)
    times = [(float(loose.began[begin]), float(loose.ended[end - 1])) for begin, end in parts]
    middle = np.array([(began + ended) / 2 for began, ended in times])
    order = choose(margins(mean), features, features_of(known), middle, most)
    return tuple(LabelQuestion(*times[at], likeliest(mean[at], name_classes(working))) for at in order)


def probabilities_of_all(working: WorkingModel, x: Floats) -> npt.NDArray[np.float64]:
    """Probabilities of windows x, (N, classes), by a model that rules no class out.

    A personal model that has settled rules out what this device has never had a label of, and is sure of the rest: it
    would never ask about what the device lacks most. Then the fleet's model is asked.
    """
    found = np.asarray(np.exp(working.log_probabilities(x, None)), np.float64)
    if "global" in working.kept.models and not found.any(axis=0).all():
        return np.asarray(np.exp(working.log_probabilities(x, "global")), np.float64)
    return found


def name_classes(working: WorkingModel) -> tuple[str, ...]:
    """Names of the classes; none, where no run was here and the bundle names none: numbers tell nobody anything."""
    return working.classes if working.run or working.model.bundle.class_names else ()


def likeliest(p: npt.NDArray[np.float64], classes: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """The two likeliest classes of probabilities (classes,), with these; none where they have no names."""
    if not classes:
        return ()
    order = [int(code) for code in np.argsort(-p, kind="stable")[:2]]
    return tuple((classes[code], float(p[code])) for code in order if p[code] > 0)


def read(
    store: SampleStore, stored: StoredWindows, normalise: Callable[[Floats], Floats]
) -> tuple[StoredWindows, Floats]:
    """Stored windows that are still there, and these as the model takes them."""
    found = [store.read(int(id)) for id in stored.ids]
    there = np.array([at for at, window in enumerate(found) if window is not None], np.intp)
    windows = [normalise(window[None])[0] for window in found if window is not None]
    x = np.stack(windows) if windows else np.zeros((0, *store.shape), np.float32)
    return stored.take(there), np.asarray(x, np.float32)
