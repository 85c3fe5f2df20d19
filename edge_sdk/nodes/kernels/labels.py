"""Labels that are of use in a run, and whether a run wants windows without one."""

from __future__ import annotations

from collections.abc import Sequence
from logging import Logger

import numpy as np
import numpy.typing as npt

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.model.tasks.task import ModelTask


def wants_unlabelled(run: Run) -> bool:
    """Says whether devices of a run use windows without a label; those of others neither read nor hold them."""
    return bool(run.settle.get("label_times") or run.settle.get("statistics"))


def select_listed(samples: Samples, run: Run, what: str, log: Logger, task: ModelTask) -> Samples:
    """The samples that the task trains on, as a rule those whose label is a class of the run. Others are left out with
    a warning: the owner of a device may label what nobody has foreseen, and the device is of use all the same.

    Args:
        what: the samples in the warning, e.g. "watch-7: training".
        task: of the model.
    """
    known = task.listed(samples.labels, run.classes)
    if known.all():
        return samples
    pairs = list(zip(samples.labels, known.tolist(), strict=True))
    strange = sorted({str(label) for label, fits in pairs if not fits})
    said = f"{(~known).sum()} of {len(samples)} samples are left out, as run {run.id}"
    log.warning("%s: %s %s", what, said, task.unlisted(strange[:5], run.classes))
    return kept(samples, known)


def kept(samples: Samples, mask: npt.NDArray[np.bool_]) -> Samples:
    """The samples that a mask (N,) chooses."""
    if mask.all():
        return samples
    labels = tuple(label for label, fits in zip(samples.labels, mask.tolist(), strict=True) if fits)
    return Samples(samples.x[mask], labels)


def listed_of(samples: Samples, task: ModelTask, names: Sequence[str]) -> Samples:
    """The samples that a model may be trained on. Of a task that needs labels these are all: a label that is no one of
    the task's is an error, which its `targets` tell."""
    return samples if task.needs_labels else kept(samples, task.listed(samples.labels, names))
