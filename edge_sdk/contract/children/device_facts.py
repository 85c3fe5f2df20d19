"""What a device tells of itself: facts of its machine, and why it wants no training now.

Facts are told where its owner lets it: version, board, charge of its battery. Nothing of a run depends on them:
hospitals pass them on to the console, for whoever looks after the fleet. Texts are short and printable, the charge
comes in steps of ten per cent, and each of the three is told only if the settings name it.

Reasons are a closed list, each with its numbers. No text of a peer's own making is in them, so that nothing but these
numbers can be told with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from edge_sdk.errors import UsageError

VERSION, BOARD, BATTERY = "version", "board", "battery"
TELLABLE = (VERSION, BOARD, BATTERY)
TOLD = (VERSION,)
"""What a device tells where its settings say nothing about it."""
LONGEST = 64  # characters of a text
STEP = 10  # per cent
APPLICATION = "application"
"""Kind of reason that is somebody's word, and no condition that passes by itself."""


@dataclass(frozen=True)
class DeviceFacts:
    """Facts of one machine.

    Attributes:
        version: of Auscult there; "": it does not say.
        board: name of the board or processor; "": it does not say.
        battery: charge in per cent, in steps of STEP; None: it has none, or does not say.
    """

    version: str = ""
    board: str = ""
    battery: int | None = None


def check_told(names: Collection[str]) -> None:
    """Raises UsageError for a fact that there is not."""
    if unknown := sorted({*names} - {*TELLABLE}):
        raise UsageError(f"tells = {unknown[0]!r}: expected some of {', '.join(TELLABLE)}")


def clean(text: str) -> str:
    """A text as it may be told: short, printable, on one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:LONGEST]


def in_tenths(share: float | None) -> int | None:
    """A charge from 0 to 1 as per cent, rounded down to a step; None: there is none."""
    return None if share is None else min(100, max(0, int(100 * share + 1e-9) // STEP * STEP))


@dataclass(frozen=True)
class Reason:
    """Reason for which a device does not train now.

    Attributes:
        kind: a key of SENTENCES; a later version may know more.
        value: what is measured: a share, degrees Celsius, joules, minutes since midnight or seconds.
        limit: what the device's budget allows, in the same unit.
    """

    kind: str
    value: float = 0.0
    limit: float = 0.0

    def __str__(self) -> str:
        say = SENTENCES.get(self.kind)
        return f"{self.kind} ({self.value:g}, limit {self.limit:g})" if say is None else say(self.value, self.limit)


Say = Callable[[float, float], str]


def say(text: str) -> Say:
    return lambda value, limit: text


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


SENTENCES: dict[str, Say] = {
    "battery": lambda value, limit: f"battery {percent(value)} < {percent(limit)}",
    "charging": say("not charging"),
    "celsius": lambda value, limit: f"{value:.0f} degrees Celsius > {limit:.0f}",
    "busy": lambda value, limit: f"others use {percent(value)} of the processor > {percent(limit)}",
    "hours": lambda value, limit: f"{int(value) // 60:02d}:{int(value) % 60:02d} is outside its hours",
    "metered": say("the link is metered"),
    "joules": lambda value, limit: f"{value:.0f} J of {limit:.0f} J for today are used up",
    "calm": lambda value, limit: f"may train since {value:.0f} s, begins after {limit:.0f} s",
    APPLICATION: say("the application says no"),
    "no_battery": say("nothing tells the battery's charge"),
    "no_charging": say("nothing tells whether it is charging"),
    "no_celsius": say("nothing tells the temperature"),
    "no_busy": say("nothing tells how busy the processor is"),
    "no_metered": say("nothing tells which link is used"),
    "no_joules": say("nothing tells what training takes: give the budget its watts"),
}
"""Kind of reason -> its sentence from value and limit."""
