"""Libraries that only some sensors need: loaded when such a sensor is opened, and missed by name."""

from __future__ import annotations

import importlib
from typing import Any

from edge_sdk.errors import UsageError

PACKAGES = {"serial": "pyserial", "bleak": "bleak", "smbus2": "smbus2"}
"""Module -> package that brings it; each is in an extra of pyproject.toml."""


def import_extra(module: str) -> Any:
    """Imports a library of an extra.

    Raises:
        UsageError: it is not installed; it says which package brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing here: pip install {PACKAGES[module]}") from error
