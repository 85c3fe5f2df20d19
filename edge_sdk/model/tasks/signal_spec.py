"""The signal that a bundle's model takes: channels, units, rate, stride and normalisation, as its manifest says.

It is part of the bundle, so an application cannot cut windows otherwise than the samples of training were cut. A
bundle without one (a table, an image, a bundle of before) is used with samples that are ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

TEXT = 64  # characters of a name at most


@dataclass(frozen=True)
class SignalSpec:
    """Windows of a signal, (channels, window) each.

    Attributes:
        channels: names, in the order of the input's first axis.
        units: one for each channel; "" where it has none.
        rate_hz: samples per second.
        window: samples per window.
        stride: samples from the start of a window to the start of the next.
        mean, scale: for each channel, (x - mean) / scale is what the model takes; empty: x itself.

    Raises:
        UsageError: these do not go together.
    """

    channels: tuple[str, ...]
    units: tuple[str, ...]
    rate_hz: float
    window: int
    stride: int
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_names("channels", self.channels)
        if not isinstance(self.rate_hz, (int, float)) or not 0 < self.rate_hz <= 1e6:
            raise UsageError(f"signal: rate_hz = {self.rate_hz!r}, expected samples per second, above 0")
        for name in ("window", "stride"):
            if type(value := getattr(self, name)) is not int or not 0 < value <= 1 << 20:
                raise UsageError(f"signal: {name} = {value!r}, expected a number of samples, 1 or more")
        if len(self.units) != len(self.channels) or any(type(u) is not str or len(u) > TEXT for u in self.units):
            raise UsageError(f"signal: units = {self.units!r:.80}, expected one text for each channel")
        for values in (self.mean, self.scale):
            if len(values) not in (0, len(self.channels)) or not all(map(isfinite, values)):
                raise UsageError(f"signal: normalise = {values!r:.80}, expected one number for each channel")
        if len(self.mean) != len(self.scale) or not all(value > 0 for value in self.scale):
            raise UsageError(f"signal: scale = {self.scale!r:.80}, expected one for each mean, above 0")

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one window."""
        return len(self.channels), self.window

    def normalise(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Windows float32 (N, channels, window) as the model takes them."""
        if not self.mean:
            return x
        mean, scale = (np.asarray(values, np.float32)[:, None] for values in (self.mean, self.scale))
        return np.asarray((x - mean) / scale, np.float32)

    def restore(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Values (N, channels, any number) as the model makes them, in the units of the channels."""
        if not self.mean:
            return np.asarray(x, np.float64)
        mean, scale = (np.asarray(values, np.float64)[:, None] for values in (self.mean, self.scale))
        return np.asarray(x * scale + mean)

    def describe(self) -> str:
        """The signal in words, e.g. "ax, ay, az (g) at 32 Hz, windows of 64 samples every 32"."""
        units = ", ".join(dict.fromkeys(unit for unit in self.units if unit))
        said = f"{', '.join(self.channels)}{f' ({units})' if units else ''} at {self.rate_hz:g} Hz"
        return f"{said}, windows of {self.window} samples every {self.stride}" + (", normalised" if self.mean else "")


def check_names(what: str, names: Any) -> None:
    """Raises UsageError unless these are different texts that can be shown."""
    right = isinstance(names, tuple) and all(type(n) is str and 0 < len(n) <= TEXT and n.isprintable() for n in names)
    if not right or not names or len(set(names)) < len(names):
        raise UsageError(f"{what} = {str(names)[:80]}: expected different names of 1 to {TEXT} printable characters")


def write_signal(signal: SignalSpec) -> dict[str, Any]:
    """The manifest's entry for a signal."""
    found: dict[str, Any] = {
        "channels": list(signal.channels),
        "units": list(signal.units),
        "rate_hz": float(signal.rate_hz),
        "window": signal.window,
        "stride": signal.stride,
    }
    if signal.mean:
        found["normalise"] = {"mean": list(signal.mean), "scale": list(signal.scale)}
    return found


def read_signal(entry: Any, inputs: Sequence[Mapping[str, Any]]) -> SignalSpec:
    """The signal that a manifest describes.

    Args:
        inputs: of the manifest; the only one is of the signal's shape.

    Raises:
        UsageError, TypeError, KeyError: it is none, or not of the input's shape.
    """
    known = {"channels", "units", "rate_hz", "window", "stride", "normalise"}
    if not isinstance(entry, dict) or set(entry) - known:
        raise UsageError(f"signal = {str(entry)[:80]}: expected an object with {', '.join(sorted(known))}")
    if not isinstance(entry["channels"], list) or not isinstance(entry["units"], list):
        raise UsageError("signal: channels and units are lists")
    how = entry.get("normalise", {"mean": [], "scale": []})
    mean, scale = (tuple(float(value) for value in how[name]) for name in ("mean", "scale"))
    names = tuple(entry["channels"]), tuple(entry["units"])
    found = SignalSpec(*names, entry["rate_hz"], entry["window"], entry["stride"], mean, scale)
    if len(inputs) != 1 or tuple(inputs[0]["shape"]) != found.shape:
        raise UsageError(f"signal: windows of shape {found.shape}, the input is {[i['shape'] for i in inputs]}")
    return found


def read_class_names(names: Any, classes: int) -> tuple[str, ...]:
    """Names of a manifest's classes.

    Raises:
        UsageError: they are not as many different texts as there are classes.
    """
    found = tuple(names) if isinstance(names, list) else names
    check_names("class_names", found)
    if len(found) != classes:
        raise UsageError(f"class_names: {len(found)} names, there are {classes} classes")
    return tuple(found)
