"""A folder of samples that are ready as a cohort: one device for each NPZ file, NAME.npz.

A file is as in a device's settings (`edge_sdk.data.samples.Stored`): texts, images, signals that somebody has cut, or
several inputs of each sample. It says itself what is for training, for choices and for judging.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_sdk.contract.run import checked_name
from edge_sdk.data.public_inputs import read_public
from edge_sdk.data.samples import Samples, SplitSamples, read_samples
from edge_sdk.errors import UsageError
from edge_sdk.records import list_inputs
from edge_sdk.replay.cohorts.cohort import Cohort, Shapes, count_nodes
from edge_sdk.replay.datasets.table import Floats

PUBLIC = "public.npz"
"""In such a folder: `x` float32 (P, ...), inputs that all devices know, and no device."""


@dataclass(frozen=True, kw_only=True)
class ReadyOptions:
    """What may be said of a folder of samples that are ready.

    Attributes:
        public: inputs that all devices are to know, at least; they are in a file of their own. 0: none.
    """

    public: int = 0


def is_ready(folder: Path) -> bool:
    """Does a folder hold samples that are ready, rather than traces?"""
    return any(folder.glob("*.npz")) and not any(folder.glob("*.csv"))


def cohort_of_samples(folder: Path, hospitals: int, how: ReadyOptions) -> Cohort:
    """Forms a cohort with one device for each file.

    Raises:
        UsageError: a file cannot be read, has nothing to be judged by or other inputs than the first one, or there are
            too few public inputs.
    """
    paths = {path.stem: path for path in sorted(folder.glob("*.npz")) if path.name != PUBLIC}
    if not paths:
        raise UsageError(f"{folder}: has no file NAME.npz of a device")
    names = [checked_name(name, "device name (from the file's)") for name in paths]
    found = {name: read_samples(path) for name, path in paths.items()}
    shapes = shapes_of(found[names[0]])
    for name, samples in found.items():
        check_samples(paths[name], samples, shapes, paths[names[0]])
    public = read_inputs_of_all(folder, how.public)
    tree = {f"hospital-{h + 1}": tuple(names[h::hospitals]) for h in range(min(hospitals, len(names)))}
    classes = tuple(
        sorted({label for samples in found.values() for part in parts_of(samples) for label in part.labels})
    )
    return Cohort(
        summary=f"{count_nodes(tree)}, {len(classes)} classes, samples that are ready",
        tree=tree,
        classes=classes,
        shapes=shapes,
        reshape=False,
        generated=False,
        tables=lambda *_: {name: {"samples": path.resolve()} for name, path in paths.items()},
        public=public,
        chooses=all(samples.validation is not None and len(samples.validation) for samples in found.values()),
    )


def parts_of(samples: SplitSamples) -> tuple[Samples, ...]:
    """The parts that there are."""
    return tuple(part for part in (samples.train, samples.held_out, samples.validation) if part is not None)


def shapes_of(samples: SplitSamples) -> Shapes:
    """Shapes of the inputs of one sample."""
    return {name: values.shape[1:] for name, values in list_inputs(samples.train.x).items()}


def check_samples(path: Path, samples: SplitSamples, shapes: Shapes, first: Path) -> None:
    """Raises UsageError if a device could not be judged, or its inputs are not those of the first one."""
    if not len(samples.held_out):
        raise UsageError(f"{path}: has no held_out_x and held_out_labels; a replay judges models by samples apart")
    if (own := shapes_of(samples)) != shapes:
        raise UsageError(f"{path}: one sample is {dict(own)}, in {first.name} it is {dict(shapes)}")


def read_inputs_of_all(folder: Path, wanted: int) -> Floats | None:
    """The public inputs of a folder, if it has some.

    Raises:
        UsageError: there are fewer than are wanted.
    """
    path = folder / PUBLIC
    found = read_public(path).x if path.is_file() else None
    if wanted and (found is None or len(found) < wanted):
        have = "is no such file" if found is None else f"are {len(found)}"
        raise UsageError(f"{path}: {wanted} public inputs are needed, x float32 ({wanted}, ...), and there {have}")
    return found
