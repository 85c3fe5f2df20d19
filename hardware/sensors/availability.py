"""What the machine under a recording went through: battery, charger, heat and link, as a replay of days reads them.

    NAME.availability.csv      time,offline,charging,battery,celsius,metered      beside the trace NAME.csv

`edge_sdk/data/availability.py` says what the columns mean. What nothing on this machine tells is left empty.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from edge_sdk.hardware.boards.telemetry import Telemetry

HEADER = "time,offline,charging,battery,celsius,metered"


class AvailabilityFiles:
    """The files of one recording.

    Attributes:
        last: file -> time of its last line.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last: dict[str, str] = {}

    def note(self, name: str, at: float, telemetry: Telemetry) -> None:
        """Add a line to the file of a trace. One that is no later than the line before is left out: local time goes
        back by an hour once a year, and no reader takes lines that do.

        Args:
            at: seconds since 1970.
        """
        time = datetime.fromtimestamp(at).isoformat(timespec="seconds")
        if time <= self.last.get(name, ""):
            return
        with open(self.folder / f"{name}.availability.csv", "a", encoding="utf-8") as file:
            file.write(("" if name in self.last else f"{HEADER}\n") + to_line(time, telemetry) + "\n")
        self.last[name] = time


def to_line(time: str, told: Telemetry) -> str:
    links = [link.up for link in told.links.values() if link.up is not None]
    number = ["" if value is None else f"{value:g}" for value in (told.battery, told.hottest)]
    offline, metered = to_flag(not any(links) if links else None), to_flag(told.is_metered())
    return ",".join((time, offline, to_flag(told.charging), *number, metered))


def to_flag(value: bool | None) -> str:
    return "" if value is None else str(int(value))
