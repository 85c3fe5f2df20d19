"""The settings of a compilation: everything that the torch module itself does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

from edge_sdk.data.augment import Augment
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.plugged import PluggedTask
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import (
    FORECAST,
    LABELS,
    RECONSTRUCTION,
    STEP_VALUES,
    STEPS,
    VALUE,
    OutputTask,
    Reconstruction,
)
from edge_sdk.model.tasks.task_protocol import MOVED
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.shapes import Shape, as_number, as_numbers
from edge_sdk.models.ir.specification.losses import LOSSES, refuse_positions

NORMS = ("frozen", "batch", "running", "renorm")
DROPOUT = ("", "keep", "off")


OF_TASK = {
    VALUE: ("mean_squared_error", "huber"),
    LABELS: ("binary_cross_entropy",),
    STEPS: ("soft_cross_entropy",),
    STEP_VALUES: ("masked_squared_error", "masked_huber"),
    RECONSTRUCTION: ("mean_squared_error",),
    FORECAST: ("mean_squared_error",),
}
"""Task -> the losses that train it, the usual one first."""


def losses_of(task: OutputTask) -> Sequence[str]:
    """The losses that train a task, the usual one first."""
    return (task.loss,) if isinstance(task, PluggedTask) else OF_TASK[task.kind]


RESERVED = frozenset({"theta", "buffers", "y", "weights", "masks", "cotangent"})
"""Names of other inputs of graphs."""


@dataclass(frozen=True)
class DataInput:
    """One data input of a module.

    Attributes:
        shape: of one sample. below: the input holds integers in [0, below); None for floats.
        argument: of the module that it is given as; "": by its place.
    """

    name: str
    shape: tuple[int, ...]
    below: int | None = None
    argument: str = ""


@dataclass(frozen=True)
class Spec:
    """Settings of one compilation.

    Attributes:
        name: of the model, in the manifest.
        input: shape of one sample; of a module with several inputs, argument -> shape.
        classes: number of classes; 0 takes what the module returns.
        loss: a key of LOSSES. smoothing: of labels, for the cross entropy: that share is spread over all classes.
        below: the input holds integers in [0, below), for embeddings; of several inputs, argument -> below.
        norm: the statistics of batch normalisation in training: "frozen" ones, or those of the "batch"; with "running"
            those of the batch, and running statistics are part of theta, where a step of training moves them;
            "renorm" is the same, with outputs corrected towards those of the running statistics.
        groups: group name -> comma-separated prefixes of parameter names; None: the module's top-level parts.
        partial: groups that get a gradient graph of their own; None: all of them, if there are at least two.
        features: path of the layer whose result is offered as features; "" for none.
        blocked: also write the graphs in onnxruntime's blocked layout, for convolutions (used where it works).
        native: also write graphs in their native form, with operators of auscult-native (used where it is installed).
        max_batch: how many samples a device puts through at once; larger batches go in several steps, with the same
            result, or are refused where norms use the statistics of the batch. Fewer need less memory. None: chosen
            for speed (models/passes/scheduling/steps.py).
        dropout: what drops values at random in training is kept, with masks that devices draw ("keep"), or left out
            ("off"); "" refuses modules that have it.
        output: which of several results counts: a key, a field or a place; "": the only one.
        heads: further results -> weights: that many times the loss of each is added to the loss in training.
        class_names: names of the outputs, in their order; empty: the bundle does not say.
        signal: what the input is a window of; None: the bundle does not say.
        lora: rank of adapters, which alone are trained; 0: none. target: words in the paths of linear layers that get
            one. also: paths of layers that are trained whole beside them.
        augment: changes of samples that devices train with where a run does not say otherwise.
        task: what the outputs are, of a model that predicts something else than one class; None: the loss says it.
    """

    name: str
    input: tuple[int, ...] | Mapping[str, tuple[int, ...]]
    classes: int = 0
    loss: str = "cross_entropy"
    below: int | Mapping[str, int] | None = None
    norm: str = "frozen"
    groups: Mapping[str, str] | None = None
    partial: Sequence[str] | None = None
    features: str = ""
    blocked: bool = False
    native: bool = False
    max_batch: int | None = None
    dropout: str = ""
    output: str = ""
    class_names: tuple[str, ...] = ()
    signal: SignalSpec | None = None
    lora: int = 0
    target: Sequence[str] = ()
    also: Sequence[str] = ()
    smoothing: float = 0.0
    augment: Augment = field(default_factory=Augment)
    task: OutputTask | None = None
    heads: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise CompileError(f"loss {self.loss!r}: there are {', '.join(LOSSES)}")
        if not 0 <= self.smoothing < 1 or (self.smoothing and self.loss != "cross_entropy"):
            raise CompileError(f"smoothing {self.smoothing:g}: a share of 0 to 1, with the loss cross_entropy")
        if self.task is not None and self.loss not in (fits := losses_of(self.task)):
            raise CompileError(f"loss {self.loss} with task {self.task.kind}: expected {' or '.join(fits)}")
        if self.norm not in NORMS:
            raise CompileError(f"norm {self.norm!r}: there are {', '.join(NORMS)}")
        if self.dropout not in DROPOUT:
            raise CompileError(f"dropout {self.dropout!r}: there are keep and off")
        if self.max_batch is not None and self.max_batch < 1:
            raise CompileError(f"max_batch = {self.max_batch}: at least 1")
        if bool(self.lora) != bool(self.target) or (self.also and not self.lora):
            raise CompileError("adapters need a rank and layers, e.g. --lora 8 --target attn")
        for name, weight in self.heads.items():
            if not (isfinite(weight) and weight > 0) or name == self.output:
                raise CompileError(f"heads {name}={weight:g}: expected another result and a weight above 0")
        if not self.input:
            raise CompileError(f"input {self.input}: the shape of one sample, without the batch, e.g. 3,64")
        if self.signal is not None and self.signal.shape != self.input:
            raise CompileError(f"signal: windows of {self.signal.shape}, but the input is {self.input}")
        self.check_augment()
        for i in self.list_inputs():
            if not i.shape or any(d < 1 for d in i.shape):
                raise CompileError(f"input {i.shape}: the shape of one sample, without the batch, e.g. 3,64")
            if i.name in RESERVED or not i.name.isidentifier():
                raise CompileError(f"input {i.name!r}: this name has another meaning; rename the argument")

    def check_augment(self) -> None:
        if not self.augment.changes:
            return
        if self.task is not None and not self.task.augments:
            raise CompileError(
                f"augmentation with task {self.task.kind}: a changed window would be compared with itself as it was"
            )
        if self.task is not None and self.task.steps and self.augment.shift:
            raise CompileError(f"shift = {self.augment.shift:g} with task {self.task.kind}: {MOVED}")
        if isinstance(self.input, Mapping) or self.below is not None:
            raise CompileError("augmentation is for modules with one input, of floats")
        try:
            self.augment.check(tuple(self.input))
        except UsageError as error:
            raise CompileError(f"augmentation: {error}") from error

    def list_inputs(self) -> list[DataInput]:
        """The data inputs, in the order in which they are named.

        Raises:
            CompileError: `below` is for an input that is not there.
        """
        if not isinstance(self.input, Mapping):
            if isinstance(self.below, Mapping):
                raise CompileError(f"below {dict(self.below)}: there is one input, without a name")
            return [DataInput("x", tuple(self.input), self.below)]
        below = self.below if isinstance(self.below, Mapping) else {}
        strange = sorted(set(below) - set(self.input))
        if strange or isinstance(self.below, int):
            raise CompileError(f"below {self.below}: give NAME=N for one of {', '.join(self.input)}")
        return [DataInput(k, tuple(v), below.get(k), k) for k, v in self.input.items()]


def set_classes(spec: Spec, output: Shape) -> Spec:
    """The spec with its number of classes, checked against the module's output (0 where the loss has none)."""
    if spec.task is not None:
        check_output(spec.task, spec, as_numbers(output[1:]))
    if spec.loss != "cross_entropy":
        return replace(spec, classes=0)
    refuse_positions(output)
    made = as_number(output[1])
    if spec.classes and spec.classes != made:
        raise CompileError(f"classes = {spec.classes}, but the module returns {made} per sample")
    if spec.class_names and len(spec.class_names) != made:
        raise CompileError(f"class names: {len(spec.class_names)}, but the module returns {made} per sample")
    return replace(spec, classes=made)


def check_output(task: OutputTask, spec: Spec, output: tuple[int, ...]) -> None:
    """Raises CompileError if a module's output for one sample is not what its task needs."""
    if isinstance(task, Reconstruction):
        if isinstance(spec.input, Mapping) or spec.below is not None:
            raise CompileError(f"task {task.kind}: a module with one input, of floats, is for it")
        if output != (wanted := task.output_of(spec.input)):
            raise CompileError(
                f"task {task.kind}: a window is {tuple(spec.input)}, and the module returns {output} per sample; "
                f"return what has the shape {wanted}"
            )
    elif task.steps and output != (wanted := task.output_of(())):
        what = "logits of the classes" if task.kind == STEPS else "the values"
        raise CompileError(
            f"task {task.kind}: the module returns {output} per sample; return {what} at each step, {wanted}"
        )
    elif not task.steps and output != (task.outputs,):
        raise CompileError(
            f"task {task.kind}: {task.outputs} outputs are named (--names; of values --unit or --range), but the "
            f"module returns {output} per sample; return one row of numbers, (batch, {task.outputs})"
        )


def find_target_shape(spec: Spec, output: Shape) -> tuple[int, ...]:
    """(-classes,) where y is labels, else the shape of y for one sample."""
    return (-spec.classes,) if spec.loss == "cross_entropy" else as_numbers(output[1:])
