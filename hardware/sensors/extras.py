"""Libraries that only some sensors need: loaded when such a sensor is opened, and missed by the name of their extra."""

from __future__ import annotations

import importlib
from typing import Any

from edge_sdk.errors import UsageError

EXTRAS = {"serial": "serial", "bleak": "ble", "smbus2": "i2c"}
"""Module -> extra of pyproject.toml that brings it."""


def import_extra(module: str) -> Any:
    """Imports a library of an extra.

    Raises:
        UsageError: it is not installed; it says with which extra it comes.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing here: pip install 'auscult[{EXTRAS[module]}]'") from error
