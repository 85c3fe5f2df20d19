"""A task of your own, which another package brings along by the entry point `auscult.tasks` (docs/plugins.md).

It says how a label becomes what a network is trained with, by which loss, what people see of the network's outputs, and
by how much these are wrong. All that judges, tells and compares values (tasks/task.py) does the same for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.signal_spec import check_names

Floats = npt.NDArray[np.floating]
BINARY, SOFT = "binary_cross_entropy", "soft_cross_entropy"
OWN_LOSSES = ("mean_squared_error", "huber", BINARY, SOFT)
"""Losses that such a task may have: those with a number for each output."""
MOST_OUTPUTS = 64
SMALL = 1e-6
"""Share below which probabilities are taken to be this."""


class OwnTask:
    """What a network predicts for a sample: a class of your own says more than the defaults, one value by itself.

    Whatever its constructor takes are settings, texts with defaults, which a bundle keeps: `--task NAME:KEY=VALUE`.

    Attributes:
        outputs: numbers that the network returns for a sample, 1 to 64.
        loss: that trains it: "mean_squared_error", "huber", "binary_cross_entropy" (targets of 0 to 1 for logits), or
            "soft_cross_entropy" (targets that are probabilities of the outputs, for logits).
        names, units: of the K values that people see, 1 to 16; "" is no unit.

    >>> import numpy as np
    >>> class Doubled(OwnTask):
    ...     names, units = ("length",), ("cm",)
    ...     def target(self, label):
    ...         return [float(label) / 2]
    ...     def shown(self, outputs):
    ...         return outputs * 2
    ...     truth = shown
    >>> Doubled().errors(np.array([[1.0]]), np.array([[1.5]])).tolist()
    [[1.0]]
    """

    outputs: int = 1
    loss: str = "mean_squared_error"
    names: Sequence[str] = ("value",)
    units: Sequence[str] = ("",)

    def target(self, label: Any) -> Sequence[float] | None:
        """What the network is trained with for a label (the text of a class, a number or a tuple of numbers), one
        number for each output; None: the label is none of this task, and its sample is left out."""
        raise NotImplementedError

    def shown(self, outputs: Floats) -> Floats:
        """Values (N, K) that people see, in their units, of outputs (N, outputs)."""
        return outputs

    def truth(self, y: Floats) -> Floats:
        """Values (N, K) that `shown` should have given where the targets are y (N, outputs)."""
        return y

    def errors(self, y: Floats, outputs: Floats) -> Floats:
        """By how much outputs are wrong, (N, K), 0 where they are right: models are judged by the mean of |errors|."""
        return self.shown(outputs) - self.truth(y)


def check_own_task(task: Any) -> OwnTask:
    """A task whose attributes are as they have to be.

    Raises:
        UsageError: one is not; the text says what was expected.
    """
    if not isinstance(task, OwnTask):
        raise UsageError(f"it makes a {type(task).__name__}, expected an edge_sdk.OwnTask")
    if type(task.outputs) is not int or not 0 < task.outputs <= MOST_OUTPUTS:
        raise UsageError(f"outputs = {task.outputs!r:.60}, expected 1 to {MOST_OUTPUTS}")
    if task.loss not in OWN_LOSSES:
        raise UsageError(f"loss = {task.loss!r:.60}, expected one of {', '.join(OWN_LOSSES)}")
    check_names("names", tuple(task.names))
    return task


# What targets say as outputs ------------------------------------------------------------------------------------
def logits(p: Floats) -> npt.NDArray[np.float64]:
    """Logits of probabilities."""
    cut = np.clip(np.asarray(p, np.float64), SMALL, 1 - SMALL)
    return np.asarray(np.log(cut / (1 - cut)))


def log_shares(p: Floats) -> npt.NDArray[np.float64]:
    """Logarithms of probabilities."""
    return np.asarray(np.log(np.maximum(np.asarray(p, np.float64), SMALL)))


LINKS: Mapping[str, Callable[[Floats], npt.NDArray[np.float64]]] = {BINARY: logits, SOFT: log_shares}
"""Loss -> outputs that say what targets are; of other losses that is the targets themselves."""
