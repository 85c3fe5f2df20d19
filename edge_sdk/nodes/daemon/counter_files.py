"""What a service writes beside its run: bytes and counters, as JSON that is always whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.live.loop.runtime import Runtime


def list_counters(runtime: Runtime) -> dict[str, Any]:
    """What a node has counted, and how things stand there, for a ledger."""
    return {"counters": runtime.counters.totals(), "gauges": runtime.gauges(), "waiting": runtime.waiting()}


def count_bytes(counters: Mapping[str, int], peer: str) -> dict[str, int]:
    """Bytes of MQTT payloads, seen from here."""
    return {"sent": counters.get(f"bytes_out.{peer}", 0), "received": counters.get(f"bytes_in.{peer}", 0)}


def write_json(path: Path, value: Any) -> None:
    """In one piece: a reader sees the old file or the new one."""
    write_text(path, json.dumps(value, indent=1) + "\n")
