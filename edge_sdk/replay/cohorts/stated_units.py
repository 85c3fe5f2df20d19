"""Units of the channels of a folder of traces, as an import or `auscult record` has noted them beside the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_sdk.data.live.resample import is_same_rate
from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.units import conversion
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.replay.traces.checking import read_units


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
            if first is not None and not same(units[first], unit):
                raise UsageError(
                    f"{folder}: {channel} is in {units[first]} in {first} and in {unit} in {name}, as noted beside the "
                    "traces; bring them to one unit"
                )
        found.append("" if first is None else units[first])
    return tuple(found)


def check_signal(path: Path, signal: SignalSpec | None, units: Sequence[str], rate_hz: float) -> None:
    """Raises UsageError if a bundle takes another rate than that of the traces, or a channel in another unit.

    Args:
        path: of the bundle. signal: what it takes; None: it does not say.
        units: of the traces' channels, in their order; empty: there are none.
        rate_hz: of the traces; 0: there are none.
    """
    if signal is None or len(units) != len(signal.channels):
        return
    if rate_hz and not is_same_rate(rate_hz, signal.rate_hz):
        raise UsageError(
            f"{path}: it takes {signal.rate_hz:g} Hz, and these traces have {rate_hz:g}; --rate {signal.rate_hz:g} "
            "resamples them, or leave --bundle out: a model is compiled for the traces as they are"
        )
    for name, wanted, unit in zip(signal.channels, signal.units, units, strict=True):
        if not same(unit, wanted):
            raise UsageError(
                f"{path}: it takes {name} in {wanted}, and these traces have it in {unit}, as noted beside them; "
                "convert them, or leave --bundle out: a model is compiled for the traces as they are"
            )


def same(one: str, other: str) -> bool:
    """Are these one unit, or is one of them not told?"""
    try:
        return conversion(one, other) == (1.0, 0.0)
    except UsageError:
        return False
