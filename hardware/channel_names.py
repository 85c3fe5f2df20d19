"""Names of channels, as sensors, loggers and bundles write them: which of them mean the same.

"accel_x", "acc_x", "ACC_X" and "ax" are one; so are "anglvel_y", "gyr_y", "gyro_y" and "gy"; "x" alone is an axis of
whatever the others are of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

KINDS = {
    **dict.fromkeys(("a", "acc", "accel", "accelerometer", "acceleration"), "accel"),
    **dict.fromkeys(("g", "gyr", "gyro", "gyroscope", "anglvel", "ang"), "anglvel"),
    **dict.fromkeys(("m", "mag", "magn", "magnetometer"), "magn"),
}
NAME = re.compile(r"(.*?)[ _.-]*([xyz])")


def find_columns(there: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """Where each of the wanted channels is among those that are there; None: the names do not say.

    By the same text, else by the same text but for case and separators, else by what they mean. Axes alone, such as x,
    y and z, are those of the others, if these are all of one kind.
    """
    for read in (str, fold, meaning):
        names = [read(name) for name in there]
        asked = [read(name) for name in wanted]
        if None not in asked and len({*asked}) == len(asked) and all(names.count(name) == 1 for name in asked):
            return [names.index(name) for name in asked]
    axes, asked_axes = axes_of(there), axes_of(wanted)
    if axes is None or asked_axes is None or "" not in (kind_of(there), kind_of(wanted)):
        return None
    return [axes.index(axis) for axis in asked_axes] if sorted(axes) == sorted(asked_axes) else None


def fold(name: str) -> str:
    """A name without case and separators."""
    return re.sub(r"[ _.-]", "", name.casefold())


def meaning(name: str) -> tuple[str, str] | None:
    """Kind and axis of a channel; the kind is "" where only the axis is told. None: it is none of these."""
    found = NAME.fullmatch(name.casefold().removeprefix("in_"))
    if found is None or (found[1] and found[1] not in KINDS):
        return None
    return KINDS.get(found[1], ""), found[2]


def kind_of(names: Sequence[str]) -> str:
    """Kind of the first channel; "": it tells none."""
    return (meaning(names[0]) or ("", ""))[0] if names else ""


def axes_of(names: Sequence[str]) -> list[str] | None:
    """The axes of channels that are all of one kind, or of which no kind is told; None: they are something else."""
    found = [meaning(name) for name in names]
    told = [one for one in found if one is not None]
    return [axis for _, axis in told] if len(told) == len(names) and len({kind for kind, _ in told}) == 1 else None
