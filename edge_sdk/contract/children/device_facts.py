"""What a device tells of the machine that it is, where its owner lets it: version, board, charge of its battery.

Nothing of a run depends on it: hospitals pass it on to the console, for whoever looks after the fleet. Texts are short
and printable, the charge comes in steps of ten per cent, and each of the three is told only if the settings name it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from edge_sdk.errors import UsageError

VERSION, BOARD, BATTERY = "version", "board", "battery"
TELLABLE = (VERSION, BOARD, BATTERY)
TOLD = (VERSION,)
"""What a device tells where its settings say nothing about it."""
LONGEST = 64  # characters of a text
STEP = 10  # per cent


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
