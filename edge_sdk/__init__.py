"""Auscult on a device and in a hospital: numpy, onnxruntime, paho-mqtt and msgpack, never torch.

Names are loaded when they are first used, so that a command that needs one of them does not wait for all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_sdk.device import Device as Device
    from edge_sdk.errors import AuscultError as AuscultError
    from edge_sdk.errors import PeerError as PeerError
    from edge_sdk.errors import UsageError as UsageError
    from edge_sdk.hospital import Hospital as Hospital
    from edge_sdk.methods import METHODS as METHODS
    from edge_sdk.model import Model as Model
    from edge_sdk.patients import Patients as Patients
    from edge_sdk.run import Run as Run
    from edge_sdk.samples import Samples as Samples

HOMES = {
    "AuscultError": "errors",
    "Device": "device",
    "Hospital": "hospital",
    "METHODS": "methods",
    "Model": "model",
    "Patients": "patients",
    "PeerError": "errors",
    "Run": "run",
    "Samples": "samples",
    "UsageError": "errors",
}

__all__ = [
    "METHODS",
    "AuscultError",
    "Device",
    "Hospital",
    "Model",
    "Patients",
    "PeerError",
    "Run",
    "Samples",
    "UsageError",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"edge_sdk has no {name}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"edge_sdk.{HOMES[name]}"), name)
