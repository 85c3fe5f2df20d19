"""What a trace says of its signal, beside what a bundle takes: order of the channels, their units, the rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_sdk.data.live.resample import is_same_rate
from edge_sdk.errors import UsageError
from edge_sdk.hardware.channel_names import find_columns
from edge_sdk.hardware.units import conversion
from edge_sdk.model.tasks.signal_spec import SignalSpec


def check_signal(
    bundle: Path, signal: SignalSpec | None, channels: Sequence[str], units: Sequence[str], rate_hz: float
) -> None:
    """Raises UsageError if a bundle takes another order of the channels, another unit or another rate than a trace has.

    Args:
        signal: what the bundle takes; None: it does not say, and nothing is checked.
        channels: of the trace, in their order. Names that say nothing to each other may be in any order.
        units: of these, "" where none is noted.
        rate_hz: of the trace; 0: nobody knows.
    """
    if signal is None or len(channels) != len(signal.channels):
        return
    columns = find_columns(channels, signal.channels)
    if columns is not None and columns != [*range(len(channels))]:
        raise UsageError(
            f"{bundle}: it takes {', '.join(signal.channels)}, in that order, and the trace has {', '.join(channels)}; "
            f"--channels {','.join(channels[k] for k in columns)} (channels in [data]) brings them into it"
        )
    for name, wanted, unit in zip(signal.channels, signal.units, units, strict=True):
        if not is_same_unit(unit, wanted):
            raise UsageError(
                f"{bundle}: it takes {name} in {wanted}, and the trace has it in {unit}, as noted beside it; convert "
                "one, or compile a model for the other"
            )
    if rate_hz and not is_same_rate(rate_hz, signal.rate_hz):
        raise UsageError(
            f"{bundle}: it takes {signal.rate_hz:g} Hz, and the trace has {rate_hz:g}; --rate {signal.rate_hz:g} "
            "(rate_hz in [data]) resamples it"
        )


def is_same_unit(one: str, other: str) -> bool:
    """Are these one unit, or is one of them not told?"""
    try:
        return conversion(one, other) == (1.0, 0.0)
    except UsageError:
        return False
