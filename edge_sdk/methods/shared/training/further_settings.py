"""Settings of a method of one's own: those of training, and further ones whose defaults say of what type they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, field, make_dataclass
from typing import Any

import numpy as np

from edge_sdk.errors import UsageError

TYPES = {"bool": (bool,), "int": (int,), "float": (float, int), "str": (str,)}
NOTE = "note"
"""What a setting's metadata has for whoever gives it a value of another type: the end of that sentence."""


def extended(base: type, given: Mapping[str, Any]) -> type:
    """The settings of a method, a frozen dataclass below `base`.

    Args:
        given: name -> default of a further setting, whose type this says, or of one that `base` has.

    Raises:
        UsageError: a default is no number, text, True or False, or another one than its setting takes.
    """
    if not given:
        return base
    fields = [make_field(name, default, base.__dataclass_fields__.get(name)) for name, default in given.items()]  # type: ignore[attr-defined]
    return make_dataclass("Settings", fields, bases=(base,), frozen=True, kw_only=True)


def make_field(name: str, default: Any, known: Field[Any] | None) -> tuple[str, Any, Any]:
    """A setting as `make_dataclass` takes it. `known`: the field that there is already."""
    value = default.item() if isinstance(default, np.generic) else default
    found = type(value).__name__
    if type(value) not in (bool, int, float, str):
        raise UsageError(f"settings: {name} = {default!r:.60}: a default is a number, a text, True or False")
    if known is None:
        note = f"; by its default {value} it has no fractions, with {float(value)} it would" if found == "int" else ""
        return name, type(value), field(default=value, metadata={NOTE: note})
    wanted = str(known.type)
    if type(value) not in TYPES.get(wanted, ()):
        raise UsageError(f"settings: {name} = {default!r:.60}: expected {wanted}, as its default {known.default!r}")
    return name, known.type, field(default=float(value) if wanted == "float" else value)
