"""Units of channels, as sensors and bundles write them, and what turns a value of one into a value of another.

Spellings that mean the same are one: "m/s^2", "m/s2" and "m/s²"; "deg/s", "dps" and "°/s"; "uV" and "µV".
"""

from __future__ import annotations

from math import pi
from typing import NamedTuple

from edge_sdk.errors import UsageError

GRAVITY = 9.80665  # m/s^2, standard


class KnownUnit(NamedTuple):
    """A unit of a quantity: value in the quantity's base unit = scale * value + offset."""

    quantity: str
    scale: float
    offset: float = 0.0


UNITS = {
    "m/s2": KnownUnit("acceleration", 1.0),
    "g": KnownUnit("acceleration", GRAVITY),
    "mg": KnownUnit("acceleration", GRAVITY / 1000),
    "rad/s": KnownUnit("angular velocity", 1.0),
    "deg/s": KnownUnit("angular velocity", pi / 180),
    "mdeg/s": KnownUnit("angular velocity", pi / 180_000),
    "T": KnownUnit("magnetic field", 1.0),
    "mT": KnownUnit("magnetic field", 1e-3),
    "uT": KnownUnit("magnetic field", 1e-6),
    "nT": KnownUnit("magnetic field", 1e-9),
    "gauss": KnownUnit("magnetic field", 1e-4),
    "V": KnownUnit("voltage", 1.0),
    "mV": KnownUnit("voltage", 1e-3),
    "uV": KnownUnit("voltage", 1e-6),
    "nV": KnownUnit("voltage", 1e-9),
    "Pa": KnownUnit("pressure", 1.0),
    "hPa": KnownUnit("pressure", 100.0),
    "kPa": KnownUnit("pressure", 1000.0),
    "mmHg": KnownUnit("pressure", 133.322387415),
    "degC": KnownUnit("temperature", 1.0),
    "mdegC": KnownUnit("temperature", 1e-3),
    "K": KnownUnit("temperature", 1.0, -273.15),
    "degF": KnownUnit("temperature", 5 / 9, -160 / 9),
    "bpm": KnownUnit("rate", 1.0),
    "Hz": KnownUnit("rate", 60.0),
}
SPELLINGS = {
    "m/s^2": "m/s2", "m/s**2": "m/s2", "m/s²": "m/s2", "ms-2": "m/s2", "m s-2": "m/s2", "m·s⁻²": "m/s2",
    "degrees/s": "deg/s", "°/s": "deg/s", "dps": "deg/s", "mdps": "mdeg/s",
    "mbar": "hPa", "°C": "degC", "Celsius": "degC", "mCelsius": "mdegC", "°F": "degF",
    "1/min": "bpm", "beats/min": "bpm", "/min": "bpm",
}  # fmt: skip


def unit_of(text: str) -> KnownUnit | None:
    """The unit that a text names; None: this module does not know it."""
    written = text.strip().replace("µ", "u").replace("μ", "u")  # both of Unicode's micro signs
    return UNITS.get(SPELLINGS.get(written, written))


def conversion(source: str, target: str) -> tuple[float, float]:
    """Scale and offset: value in the target unit = scale * value in the source unit + offset.

    A unit that is not told ("") is taken for the other one, and so are equal texts of any kind.

    Raises:
        UsageError: they are of different quantities, or one of two different texts is unknown.
    """
    if not source or not target or source == target:
        return 1.0, 0.0
    one, other = unit_of(source), unit_of(target)
    unknown = [text for text, unit in ((source, one), (target, other)) if unit is None]
    if one is None or other is None:
        raise UsageError(f"{source!r} is not {target!r}, and {' and '.join(map(repr, unknown))} is no unit known here")
    if one.quantity != other.quantity:
        raise UsageError(f"{source!r} is a unit of {one.quantity}, {target!r} one of {other.quantity}")
    return one.scale / other.scale, (one.offset - other.offset) / other.scale
