"""Reads the facts of this machine that a device tells its hospital: see edge_sdk/contract/children/device_facts.py."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from edge_sdk.contract.children.device_facts import BATTERY, BOARD, VERSION, DeviceFacts, clean, in_tenths
from edge_sdk.hardware.boards.telemetry import read_power_supplies
from edge_sdk.hardware.probe import read_board, read_processor
from edge_sdk.version import find_version

ROOT = Path("/")
LOOK = 300.0  # seconds between two looks at the battery


def facts_reader(tells: Collection[str]) -> Callable[[], DeviceFacts]:
    """Makes what reads these facts, each time it is called; those that do not change are read once."""
    version = clean(find_version()) if VERSION in tells else ""
    board = clean(read_board() or read_processor()) if BOARD in tells else ""

    def read() -> DeviceFacts:
        return DeviceFacts(version, board, in_tenths(read_power_supplies(ROOT)[0]) if BATTERY in tells else None)

    return read
