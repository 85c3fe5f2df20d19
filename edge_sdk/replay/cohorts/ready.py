"""A folder of samples that are ready as a cohort: one device for each NPZ file, NAME.npz.

A file is as in a device's settings (`edge_sdk.data.samples.Stored`): texts, images, signals that somebody has cut, or
several inputs of each sample. It says itself what is for training, for choices and for judging.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_sdk.contract.run import checked_name
from edge_sdk.data.public_inputs import read_public
from edge_sdk.data.samples import Label, Samples, SplitSamples, read_samples
from edge_sdk.errors import UsageError
from edge_sdk.label_names import NORMAL, STEP_JOIN, in_order
from edge_sdk.model.tasks.task import STEP_VALUES, STEPS, StepClasses, StepValues, Values
from edge_sdk.records import list_inputs
from edge_sdk.replay.anomalies.asked import AskedTask
from edge_sdk.replay.cohorts.cohort import Cohort, Shapes, count_nodes
from edge_sdk.replay.datasets.table import Floats
from edge_sdk.replay.labels.asked import asked_labels, asked_steps
from edge_sdk.replay.values.asked import asked_values, words

PUBLIC = "public.npz"
"""In such a folder: `x` float32 (P, ...), inputs that all devices know, and no device."""


@dataclass(frozen=True, kw_only=True)
class ReadyOptions(AskedTask):
    """What may be said of a folder of samples that are ready.

    Attributes:
        public: inputs that all devices are to know, at least; they are in a file of their own. 0: none.
        target, unit, range: of labels that are numbers, see `traces.Cutting`; `target` only names them.
        labels: of which each sample has a set, as there; of steps their classes.
        task, abnormal, quantile, horizon, steps: of samples to be reconstructed or forecast, or with a class at each
            step, or a task of another package.
    """

    public: int = 0
    target: str = ""
    unit: str = ""
    range: tuple[str, ...] = ()
    labels: str = ""

    def __post_init__(self) -> None:
        self.check_asked(False, self.labels, self.target)


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
    labels = [label for samples in found.values() for part in parts_of(samples) for label in part.labels]
    learned = [label for samples in found.values() for part in parts_of(samples, False) for label in part.labels]
    texts = [*map(str, labels)]
    others = [name for name in ("target", "unit", "range", "labels") if getattr(how, name)]
    own = how.plugged(texts if all(isinstance(label, str) for label in labels) else (), others)
    task = (
        own
        or how.reconstruction(texts, length_of(shapes))
        or steps_of(folder, texts, how)
        or asked_labels(how.labels, texts)
        or values_of(folder, labels, learned, how)
    )
    run_names = () if how.words is None else (NORMAL, *how.words)
    classes = tuple(in_order({*texts})) if task is None else task.named(run_names)
    kinds = f"{len(classes)} classes" if task is None else task.in_words()
    return Cohort(
        summary=f"{count_nodes(tree)}, {kinds}, samples that are ready",
        tree=tree,
        classes=classes,
        shapes=shapes,
        largest=largest_in(found.values()),
        reshape=False,
        generated=False,
        tables=lambda *_: {name: {"samples": path.resolve()} for name, path in paths.items()},
        public=public,
        task=task,
        unit=how.unit,
        chooses=all(samples.validation is not None and len(samples.validation) for samples in found.values()),
    )


def steps_of(folder: Path, texts: Sequence[str], how: ReadyOptions) -> StepClasses | None:
    """The classes of steps that labels are; None: they are something else.

    Raises:
        UsageError: they are not of one number of steps, that which is stated, or not of the classes that are.
    """
    if how.task != STEPS:
        return None
    sizes = sorted({steps_in(text) for text in texts if text})
    wanted = next(iter(sizes), 1) if how.steps is None else how.steps
    if strange := next((size for size in sizes if size != wanted), None):
        raise UsageError(f"{folder}: a label of {strange} steps, expected {wanted}, with {STEP_JOIN!r} between them")
    return asked_steps(how.labels, (name for text in texts for name in text.split(STEP_JOIN)), wanted)


def values_of(folder: Path, labels: Sequence[Label], learned: Sequence[Label], how: ReadyOptions) -> Values | None:
    """The values that labels are; None: they are names of classes.

    Args:
        learned: labels that are not held out, whose range it is where none is stated: devices train between its ends.

    Raises:
        UsageError: they are of several kinds, or something is said of values and there are none.
    """
    if how.task == STEP_VALUES:
        return step_values_of(folder, labels, learned, how)
    if all(isinstance(label, str) for label in labels):
        if how.target or how.unit or how.range:
            raise UsageError(
                f"{folder}: labels are texts, the names of classes; --target, --unit, --range are of numbers"
            )
        return None
    if len(kinds := {len(label) if isinstance(label, tuple) else type(label) for label in labels}) > 1:
        raise UsageError(f"{folder}: labels are of {len(kinds)} kinds; all are texts, or numbers and equally many")
    found = np.array(learned, np.float64).reshape(len(learned), -1)
    names = how.target or ",".join(
        ["value"] if found.shape[1] == 1 else [f"value {k + 1}" for k in range(found.shape[1])]
    )
    return asked_values(names, how.unit, how.range, found)


def step_values_of(folder: Path, labels: Sequence[Label], learned: Sequence[Label], how: ReadyOptions) -> Values:
    """The values at each step that labels are: numbers, value by value and along time, or texts. Args: of `values_of`.

    Raises:
        UsageError: they are not of one number of steps, that which is stated, or not of the values that are named.
    """
    names = words(how.target) or ("value",)
    sizes = {steps_in(label) / (1 if isinstance(label, str) else len(names)) for label in labels if label != ""}
    wanted = next(iter(sizes), 1) if how.steps is None else how.steps
    if strange := [size for size in sizes if size != wanted or size % 1]:
        raise UsageError(f"{folder}: a label of {strange[0]:g} steps of {', '.join(names)}, expected {wanted:g}")
    plain = StepValues(("",) * len(names), names, steps=int(wanted))
    found = np.moveaxis(plain.numbers(learned, str(folder)), 1, 2).reshape(-1, len(names))
    known = found[np.isfinite(found).all(1)]
    if not len(known):
        raise UsageError(f"{folder}: no label has a step whose values are known")
    return asked_values(",".join(names), how.unit, how.range, known, int(wanted))


def steps_in(label: Label) -> int:
    """Steps that a text has, or numbers of another label."""
    return label.count(STEP_JOIN) + 1 if isinstance(label, str) else len(label) if isinstance(label, tuple) else 1


def parts_of(samples: SplitSamples, held_out: bool = True) -> tuple[Samples, ...]:
    """The parts that there are, with the one that is held out or without it."""
    parts = samples.train, samples.held_out if held_out else None, samples.validation
    return tuple(part for part in parts if part is not None)


def largest_in(every: Iterable[SplitSamples]) -> int | None:
    """The largest value, where samples are one array of whole numbers from 0; None: they are something else."""
    arrays = [part.x for samples in every for part in parts_of(samples)]
    if not all(is_whole(x) for x in arrays):
        return None
    return max((int(x.max()) for x in arrays if x.size), default=None)


def is_whole(x: Floats) -> bool:
    """Are all values of an array whole and not negative, be they integers or floats?"""
    return not x.dtype.names and bool((x >= 0).all() and (x.dtype.kind in "iu" or (x == np.floor(x)).all()))


def length_of(shapes: Shapes) -> int:
    """Values of a window along time, its last axis; 0: samples are rows of numbers, or have several inputs."""
    (first, *rest) = shapes.values()
    return 0 if rest or len(first) < 2 else first[-1]


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
