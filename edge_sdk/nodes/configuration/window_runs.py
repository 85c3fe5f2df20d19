"""Recommended runs for windows of sensors on the network of features: method, settings, phases, changes of windows.

The network (models/zoo/features.py) is standardised by the fleet; devices label their own windows in turns, settle, and
have a forest of their own beside the shared model; windows are changed at random while devices train. The figures
behind it: docs/settling.md. They were chosen on validation samples of two data sets, and are not a paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edge_sdk.algebra.vectors import Layout
from edge_sdk.data.augment import AXES
from edge_sdk.methods import METHODS
from edge_sdk.methods.settling.settings import NOISY
from edge_sdk.methods.standardising.equations import slots
from edge_sdk.model.tasks.task import VALUE, ModelTask, OneClass, Task

METHOD = "fedslr"
"""Method where neither it nor a setting of it is stated: drift correction alone, without low rank (docs/methods.md)."""
NETWORKS = ("features", "features-conv")
"""Networks of the zoo for windows, the smallest first: features alone, and with a convolutional branch."""
NOISY_METHOD = "fedavg"
"""Method of a run with noise: the aggregator's mean of what others remember gathers the noise of all rounds."""
ROUNDS, NOISY_ROUNDS = 50, 15
"""Rounds; with noise fewer, since each of them needs the more noise the more there are."""
SETTLE: Mapping[str, Any] = {
    "optimiser": "adam", "rate": 0.003, "weight_decay": 0.003, "batch": 64, "steps": [0, 50, 200],
    "local_steps": [100, 300], "personal": "dense", "trees": 100, "label_times": 3, "label_every": 15,
}  # fmt: skip
TRAINING: Mapping[str, Any] = {"eta_l": 0.1, "decay": 0.99, "batch": 64, "local_epochs": 5}
"""Settings of local training on features, of every method that has them."""
BY_METHOD: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"weighting": "uniform"},
    "fedslr": {"eta_g": 3.0, "global_penalty": "none", "lam": 0.0, "personal_epochs": 0},
}
VALUES_STEP = 0.01
"""Local step size, in place of 0.1, of a run whose network predicts values."""
WINDOW, LEAST_CLASSES = 2, 2
"""Axes of a window; classes below which there is nothing to choose between."""


def settle_of(noisy: bool) -> Mapping[str, Any]:
    """Recommended phases; with noise in the run the candidates are those of such runs, which are fewer."""
    return {key: value for key, value in SETTLE.items() if not (noisy and key in NOISY)}


def is_window_network(layout: Layout, shape: tuple[int, ...], task: Task) -> bool:
    """True for a network on features of windows that the fleet standardises, and that tells classes apart: phases count
    samples that are right, which values and sets of labels are not."""
    classes = task.classes if isinstance(task, OneClass) else 0
    return slots(layout) is not None and len(shape) == WINDOW and classes >= LEAST_CLASSES


def training_of(method: str, rounds: int) -> Mapping[str, Any]:
    """Recommended settings of a method's local training on features, those that it has.

    However long a run is, its step becomes no smaller than that of `ROUNDS` rounds. Drift correction needs that: each
    device's correction follows the gradient by its own steps, and once these are next to nothing, all that is left is a
    server that goes on by corrections of long ago, until the loss grows without bound.
    """
    known = {f.name for f in fields(METHODS[method].settings)}
    decay = round(float(TRAINING["decay"]) ** min(1.0, ROUNDS / max(rounds, 1)), 6)
    every = {**TRAINING, "decay": decay, **BY_METHOD.get(method, {})}
    return {key: value for key, value in every.items() if key in known}


def steps_of(method: str, task: ModelTask | None) -> Mapping[str, Any]:
    """Recommended step size of a method, by the setting's name, for a task that wants another one than classes; of
    other tasks, and of a method that has none, nothing.

    Of one value for a window a squared error has steeper slopes than cross-entropy: steps that suit classes leave it,
    or diverge. The network of values at steps does better with those of classes.
    """
    if task is None or task.kind != VALUE:
        return {}
    known = {f.name for f in fields(METHODS[method].settings)}
    return {key: VALUES_STEP for key in ("eta_l",) if key in known}


def changes_of(shape: tuple[int, ...]) -> Mapping[str, Any]:
    """Changes of windows: turned where channels come in threes, and scaled; a few copies of each, made once."""
    turned = {"rotation": 0.25} if shape[0] % AXES == 0 else {}
    return {**turned, "scale": 0.15, "copies": 8}
