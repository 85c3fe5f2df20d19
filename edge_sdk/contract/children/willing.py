"""Why a device wants no training now: a closed list of reasons, each with its numbers, which a device also tells its
hospital. No text of a peer's own making is in it, so that nothing but these numbers can be told with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

APPLICATION = "application"
"""Kind of reason that is somebody's word, and no condition that passes by itself."""


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
