"""Label names of a run, as the numbers that a model is trained with; and whether a run wants windows without one."""

from __future__ import annotations

from collections.abc import Iterable
from logging import Logger

import numpy as np
import numpy.typing as npt

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError


def class_codes(names: Iterable[str], classes: tuple[str, ...], where: str) -> npt.NDArray[np.int64]:
    """Label names as indices (N,) into the classes of a run.

    Raises:
        UsageError: a name is no class of the run. `where` says whose label it is.
    """
    index = {name: i for i, name in enumerate(classes)}
    names = list(names)
    unknown = sorted({n for n in names if n not in index})
    if unknown:
        raise UsageError(f"{where}: label {unknown[0]!r} is no class of this run; there are: {', '.join(classes)}")
    return np.asarray([index[n] for n in names], np.int64)


def wants_unlabelled(run: Run) -> bool:
    """Says whether devices of a run use windows without a label; those of others neither read nor hold them."""
    return bool(run.settle.get("label_times") or run.settle.get("statistics"))


def select_listed(samples: Samples, run: Run, what: str, log: Logger) -> Samples:
    """The samples whose label is a class of the run. Others are left out with a warning: the owner of a device may
    label what nobody has foreseen, and the device is of use all the same.

    Args:
        what: the samples in the warning, e.g. "watch-7: training".
    """
    known = np.asarray([label in run.classes for label in samples.labels], np.bool_)
    if known.all():
        return samples
    strange = sorted({label for label in samples.labels if label not in run.classes})
    said = f"{(~known).sum()} of {len(samples)} samples are left out, as run {run.id} has no class"
    log.warning("%s: %s %s; it has %s", what, said, ", ".join(strange[:5]), ", ".join(run.classes))
    return Samples(samples.x[known], tuple(label for label in samples.labels if label in run.classes))
