"""Units of the channels of a folder of traces, as an import or `auscult record` has noted them beside the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_sdk.data.noted_units import read_units
from edge_sdk.errors import UsageError
from edge_sdk.nodes.evaluation.recorded_signal import is_same_unit


def stated_units(folder: Path, names: Sequence[str], channels: Sequence[str]) -> tuple[str, ...]:
    """A unit for each channel; "": none is noted.

    Args:
        names: of the traces that are used.

    Raises:
        UsageError: two traces have a channel in different units.
    """
    noted, found = read_units(folder), []
    for channel in channels:
        units = {name: noted.get(name, {}).get(channel, "") for name in names}
        first = next((name for name, unit in units.items() if unit), None)
        for name, unit in units.items():
            if first is not None and not is_same_unit(units[first], unit):
                raise UsageError(
                    f"{folder}: {channel} is in {units[first]} in {first} and in {unit} in {name}, as noted beside the "
                    "traces; bring them to one unit"
                )
        found.append("" if first is None else units[first])
    return tuple(found)
