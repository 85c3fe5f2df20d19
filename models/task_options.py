"""Options of `compile` that say what a model predicts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.plugged import find_plugged
from edge_sdk.model.tasks.reconstruction import USUAL_QUANTILE
from edge_sdk.model.tasks.task import (
    CLASS,
    FORECAST,
    LABELS,
    RECONSTRUCTION,
    STEP_VALUES,
    STEPS,
    VALUE,
    Forecast,
    OutputTask,
    Reconstruction,
    SeveralLabels,
    StepClasses,
    StepValues,
    Values,
)
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.losses import LOSSES
from edge_sdk.models.ir.specification.spec import losses_of


def add_task_options(p: argparse.ArgumentParser) -> None:
    """Options that say what the outputs are, and by which loss they are trained."""
    words = (
        "what it predicts: one class (default), value (numbers), labels (a set of names, also none), steps (a class at "
        "each step of a window), step_values (numbers at each), the window itself "
    )
    words += (
        "(reconstruction) or its last values (forecast), whose error is an anomaly score; or a task of another package"
    )
    p.add_argument("--task", metavar="TASK", help=words)
    words = "(cross_entropy; of values and reconstructions mean_squared_error, of labels binary_cross_entropy, of "
    words += "steps soft_cross_entropy, of values at steps masked_squared_error)"
    p.add_argument("--loss", choices=sorted(LOSSES), help=words)
    words = f"of the errors on a device's own validation windows, above which a window is an alarm ({USUAL_QUANTILE})"
    p.add_argument("--quantile", type=float, metavar="SHARE", help=words)
    words = "values at the end of a window that are forecast, of each channel: the module sees the window without them"
    p.add_argument("--horizon", type=int, metavar="VALUES", help=words)
    words = "of a window, each of which has a class or values of its own: the module returns logits (batch, classes, "
    words += "steps), or (batch, values, steps)"
    p.add_argument("--steps", type=int, metavar="STEPS", help=words)
    p.add_argument(
        "--unit", metavar="UNIT,...", help="of the values, one for each output, such as bpm; none where it has none"
    )
    words = "of the labels or the classes of steps, one for each output; of the values (default: whoever has the data "
    words += "names them)"
    p.add_argument("--names", metavar="NAME,...", help=words)
    p.add_argument(
        "--range",
        action="append",
        metavar="LOW,HIGH",
        help="between which the values are expected; said once for each of them. The network works on -1 to 1 "
        "there, and predicts beyond it, too (default: on the numbers themselves)",
    )


def usual_loss(task: OutputTask | None) -> str:
    """The loss of a task where none is stated. `task`: None: one class."""
    return "cross_entropy" if task is None else losses_of(task)[0]


def read_task_options(args: argparse.Namespace) -> OutputTask | None:
    """The values or labels that the options name; None: the task is one class.

    Raises:
        CompileError: options of another task, or some that do not go together.
    """
    if args.horizon is not None and args.task != FORECAST:
        raise CompileError(f"--horizon is of forecasts: say --task {FORECAST}")
    if args.steps is not None and args.task not in (STEPS, STEP_VALUES):
        raise CompileError(f"--steps is of windows with something at each: say --task {STEPS} or {STEP_VALUES}")
    if args.task == CLASS:
        if args.unit is not None or args.names or args.range:
            raise CompileError(f"--unit, --names and --range are of values or labels: say --task {VALUE} or {LABELS}")
        if args.quantile is not None:
            raise CompileError(f"--quantile is of errors of windows: say --task {RECONSTRUCTION} or {FORECAST}")
        return None
    if args.classes or args.class_names:
        raise CompileError(f"--task {args.task}: it has no classes; leave --classes and --class-names out")
    try:
        return READ.get(args.task, read_plugged)(args)
    except UsageError as error:
        raise CompileError(str(error)) from error


def read_reconstruction(args: argparse.Namespace) -> Reconstruction:
    """The reconstruction whose threshold --quantile says."""
    if args.unit is not None or args.names or args.range:
        raise CompileError(f"--unit, --names and --range: leave them out with --task {args.task}")
    return Reconstruction(USUAL_QUANTILE if args.quantile is None else args.quantile)


def read_forecast(args: argparse.Namespace) -> Forecast:
    """The forecast over --horizon."""
    if args.horizon is None:
        raise CompileError(f"--task {FORECAST}: say how many values at a window's end are forecast, e.g. --horizon 16")
    return Forecast(read_reconstruction(args).quantile, args.horizon)


def read_plugged(args: argparse.Namespace) -> OutputTask:
    """The task of another package, which says its names and units itself."""
    if args.unit is not None or args.names or args.range or args.quantile is not None:
        raise CompileError(f"--unit, --names, --range and --quantile: leave them out with --task {args.task}")
    return find_plugged(args.task)


def read_labels(args: argparse.Namespace) -> SeveralLabels:
    """The labels that --names lists."""
    if args.unit is not None or args.range:
        raise CompileError(f"--unit and --range are of values: leave them out with --task {LABELS}")
    if not (names := read_words(args.names)):
        raise CompileError(f"--task {LABELS}: name the labels in the order of the outputs, e.g. --names af,pvc,noise")
    return SeveralLabels(names)


def read_steps(args: argparse.Namespace) -> StepClasses:
    """The classes that --names lists at each of --steps steps."""
    if args.unit is not None or args.range:
        raise CompileError(f"--unit and --range are of values: leave them out with --task {STEPS}")
    if not (names := read_words(args.names)) or args.steps is None:
        raise CompileError(
            f"--task {STEPS}: say how many steps a window has, and name the classes in the order of the outputs, e.g. "
            "--steps 16 --names wake,light,deep,rem"
        )
    return StepClasses(names, args.steps)


def read_step_values(args: argparse.Namespace) -> StepValues:
    """The values at each of --steps steps."""
    if args.steps is None:
        raise CompileError(f"--task {STEP_VALUES}: say how many steps a window has, e.g. --steps 16")
    each = read_values(args)
    return StepValues(each.units, each.names, each.low, each.high, args.steps)


def read_values(args: argparse.Namespace) -> Values:
    """The values that --unit, --names and --range describe."""
    ranges = [read_range(text) for text in args.range or []]
    low, high = tuple(a for a, _ in ranges), tuple(b for _, b in ranges)
    names, units = read_words(args.names), tuple((args.unit or "").split(","))
    count = max(len(names), len(units), len(ranges))
    return Values(units * count if len(units) == 1 else units, names, low, high)


READ: Mapping[str, Callable[[argparse.Namespace], OutputTask]] = {
    VALUE: read_values,
    LABELS: read_labels,
    STEPS: read_steps,
    STEP_VALUES: read_step_values,
    RECONSTRUCTION: read_reconstruction,
    FORECAST: read_forecast,
}


def read_range(text: str) -> tuple[float, float]:
    """Two numbers with a comma between."""
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise CompileError(f"--range {text}: expected two numbers with a comma between, e.g. 40,180") from error
    return low, high


def read_words(text: str | None) -> tuple[str, ...]:
    """Words with commas between them; none: no words."""
    return tuple(word.strip() for word in text.split(",")) if text else ()


def read_number(option: str, text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError as error:
        raise CompileError(f"{option} {text}: expected a number") from error
