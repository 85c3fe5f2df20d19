"""Which kind of data a replay has, and the cohort that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError, nearest
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.cohorts.datasets import Dealing, cohort_of_dataset
from edge_sdk.replay.cohorts.ready import ReadyOptions, cohort_of_samples, is_ready
from edge_sdk.replay.cohorts.traces import Cutting, cohort_of_traces
from edge_sdk.replay.datasets import DATASETS


def form_cohort(data: str, hospitals: int, seed: int, options: Mapping[str, Any], splits: bool = False) -> Cohort:
    """Forms a cohort from a folder of that name, of traces or of samples that are ready, else from a data set.

    Args:
        options: fields of Cutting, of ReadyOptions or of Dealing.
        splits: the features of each sample are divided between hospital and device.

    Raises:
        UsageError: it is neither, cannot be read, or an option is for the other kind.
    """
    if Path(data).is_dir():
        if splits:
            raise UsageError(f"{data}: {WHOLE}")
        if is_ready(Path(data)):
            ready = ReadyOptions(**check_options(ReadyOptions, options, "traces or a data set", data))
            return cohort_of_samples(Path(data), hospitals, ready)
        cutting = Cutting(**check_options(Cutting, options, "a data set", data))
        return cohort_of_traces(Path(data), hospitals, seed, cutting)
    if data.partition(":")[0] not in DATASETS:
        raise UsageError(
            f"{data}: neither a folder of traces or samples nor a data set, NAME[:PATH] of {', '.join(DATASETS)}"
        )
    dealing = Dealing(**check_options(Dealing, options, "a folder of traces", data))
    return cohort_of_dataset(data, hospitals, seed, dealing, splits)


DIVIDED = [f"{name}{':PATH' * one.needs}" for name, one in DATASETS.items() if one.halves is not None]
WHOLE = (
    "a device has whole samples here, and this method trains a split model, on features that are divided between "
    f"hospital and device; data sets that are: {', '.join(DIVIDED)}"
)


def check_options(kind: type, options: Mapping[str, Any], other: str, data: str) -> Mapping[str, Any]:
    """Returns the options, or raises UsageError naming one that is for the other kind of data, or that there is not."""
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    if strange := next((key for key in options if key not in known), ""):
        every = {name for one in (ReadyOptions, Cutting, Dealing) for name in one.__dataclass_fields__}
        if strange not in every:
            raise UsageError(f"data have no option {strange}{nearest(strange, known)}; {', '.join(sorted(known))}")
        raise UsageError(f"--{strange.replace('_', '-')} is for {other}, and {data} is none")
    return options
