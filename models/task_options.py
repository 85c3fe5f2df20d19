"""Options of `compile` that say what a model predicts."""

from __future__ import annotations

import argparse

from edge_sdk.errors import UsageError
from edge_sdk.model.task import CLASS, VALUE, Values
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.losses import LOSSES

USUAL = {CLASS: "cross_entropy", VALUE: "mean_squared_error"}
"""Task -> its loss, where none is stated."""


def add_task_options(p: argparse.ArgumentParser) -> None:
    """Options that say what the outputs are, and by which loss they are trained."""
    p.add_argument(
        "--task", choices=[*USUAL], default=CLASS, help="what it predicts: one class (default), or values (numbers)"
    )
    p.add_argument("--loss", choices=sorted(LOSSES), help="(cross_entropy; of values mean_squared_error)")
    p.add_argument(
        "--unit", metavar="UNIT,...", help="of the values, one for each output, such as bpm; none where it has none"
    )
    p.add_argument("--names", metavar="NAME,...", help="of the values (default: whoever has the data names them)")
    p.add_argument(
        "--range",
        action="append",
        metavar="LOW,HIGH",
        help="between which the values are expected; said once for each of them. The network works on -1 to 1 "
        "there, and predicts beyond it, too (default: on the numbers themselves)",
    )


def read_task_options(args: argparse.Namespace) -> Values | None:
    """The values that the options name; None: the task is one class.

    Raises:
        CompileError: options of values without them, or values that do not go together.
    """
    if args.task == CLASS:
        if args.unit is not None or args.names or args.range:
            raise CompileError(f"--unit, --names and --range are of values: say --task {VALUE}")
        return None
    if args.classes or args.class_names:
        raise CompileError(f"--task {VALUE}: a model of values has no classes; leave --classes and --class-names out")
    ranges = [read_range(text) for text in args.range or []]
    low, high = tuple(a for a, _ in ranges), tuple(b for _, b in ranges)
    names, units = read_words(args.names), tuple((args.unit or "").split(","))
    count = max(len(names), len(units), len(ranges))
    try:
        return Values(units * count if len(units) == 1 else units, names, low, high)
    except UsageError as error:
        raise CompileError(str(error)) from error


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
