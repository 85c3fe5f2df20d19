"""What a command line and the data say of the values that are to be predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.tasks.plugged import PluggedTask
from edge_sdk.model.tasks.task import VALUE, OneClass, OutputTask, Reconstruction, StepClasses, StepValues, Values


def words(text: str) -> tuple[str, ...]:
    """Words with commas between them."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def asked_values(
    target: str, unit: str, ranges: Sequence[str], found: npt.NDArray[np.floating], steps: int = 0
) -> Values:
    """The values that are asked for.

    Args:
        target: names, with commas between them. unit: of each, or one for all. ranges: LOW,HIGH of each; none: what
            `found` has.
        found: (N, K), values that devices learn from or choose by, some of each column; NaN where there is none.
        steps: of a window that have values each; 0: a window has.

    Raises:
        UsageError: these do not go together.
    """
    names, units = words(target), tuple(unit.split(",")) if unit else ("",)
    units = units * len(names) if len(units) == 1 else units
    if ranges:
        ends = [read_range(text) for text in ranges]
    else:
        ends = [widened(float(a), float(b)) for a, b in zip(np.nanmin(found, 0), np.nanmax(found, 0), strict=True)]
    low, high = tuple(a for a, _ in ends), tuple(b for _, b in ends)
    of = tuple(one.strip() for one in units), names, low, high
    try:
        return StepValues(*of, steps) if steps else Values(*of)
    except UsageError as error:
        raise UsageError(f"--target {target}: {error}") from error


def widened(low: float, high: float) -> tuple[float, float]:
    """A range about these ends, rounded to a hundredth of what lies between; of equal ends 1 to both sides."""
    if not high > low:
        return low - 1, high + 1
    step = 10.0 ** np.floor(np.log10((high - low) / 10))
    return float(np.round(np.floor(low / step) * step, 9)), float(np.round(np.ceil(high / step) * step, 9))


def read_range(text: str) -> tuple[float, float]:
    """Two numbers with a comma between."""
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise UsageError(f"--range {text}: expected two numbers with a comma between, e.g. 40,180") from error
    return low, high


def option_of(asked: OutputTask) -> str:
    """The option that has asked for a task."""
    if isinstance(asked, Reconstruction) or asked.steps:
        return f"--task {asked.kind}"
    if isinstance(asked, PluggedTask):
        return f"--task {asked.option}"
    return f"{'--target' if asked.kind == VALUE else '--labels'} {','.join(asked.named())}"


def check_asked(bundle: Bundle, asked: OutputTask | None, unit: str = "") -> None:
    """Raises UsageError if a bundle predicts something else than the data are read for.

    Args:
        asked: None: the data are in classes.
        unit: of values, as it was stated; "": it was not.
    """
    name, task = bundle.manifest["name"], bundle.task
    if asked is None and isinstance(task, Reconstruction):
        said = f"the data are read for classes: `auscult replay --task {task.kind}` takes such bundles"
        raise UsageError(f"bundle {name} predicts {task.in_words()}, and {said}")
    if asked is None:
        if not isinstance(task, OneClass):
            raise UsageError(
                f"bundle {name} predicts {task.in_words()}, and the data are read for classes: say which columns "
                "are to be predicted, --target NAME (samples that are ready need labels that are numbers) or --labels"
            )
        return
    option = option_of(asked)
    how = option if isinstance(asked, PluggedTask) else f"--task {asked.kind}"
    if isinstance(task, OneClass) or task.kind != asked.kind:
        raise UsageError(f"{option}: bundle {name} predicts {task.in_words()}; compile it with {how}")
    if isinstance(asked, StepClasses):
        if task != asked:
            said = f"--labels {','.join(asked.names)} --steps {asked.steps}"
            raise UsageError(f"{option} {said}: bundle {name} predicts {task.in_words()}")
    elif asked.steps and task.steps != asked.steps:
        raise UsageError(f"--steps {asked.steps}: bundle {name} predicts {task.in_words(asked.named())}")
    elif isinstance(asked, Reconstruction):
        if task != asked:
            own, stated = task.entry(), asked.entry()
            differ = next(key for key in stated if own[key] != stated[key])
            raise UsageError(f"--{differ} {stated[differ]:g}: bundle {name} predicts {task.in_words()}; compile it so")
    elif isinstance(asked, PluggedTask) and task != asked:
        raise UsageError(f"{option}: bundle {name} predicts {task.in_words()}; compile it with {how}")
    elif task.named(asked.named()) != asked.named() or task.outputs != asked.outputs:
        raise UsageError(f"{option}: bundle {name} predicts {task.in_words()}")
    if unit and isinstance(task, Values) and isinstance(asked, Values) and task.units != asked.units:
        raise UsageError(f"--unit {unit}: bundle {name} predicts {task.in_words(asked.names)}")
