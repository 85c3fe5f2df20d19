"""What the doctor says of a node that runs: what it waits for, and whom it has suspended, from the notes that it keeps.

A service writes `ledger.json` in its directory (a device only now and then), so nobody has to ask the process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edge_sdk.nodes.daemon.device_file import LEDGER
from edge_sdk.nodes.hospital.suspensions import KEY, tell_remedy
from edge_sdk.tools.diagnostics.findings import Finding
from edge_sdk.tools.diagnostics.node_files import SERVICE, is_running


def examine_run(directory: Path, tier: str = "") -> Iterator[Finding]:
    """Findings about the process that works in a node's directory now, if one does; none is a fault of the machine."""
    if not is_running(directory):
        return
    if tier == SERVICE:  # whoever may know asks it
        yield Finding(
            "run", None, "it runs; `auscult runs ls` and `auscult fleet ls` say with whom and what it waits for"
        )
        return
    try:
        ledger = json.loads((directory / LEDGER).read_text())
        waiting, gauges = ledger["waiting"], ledger["gauges"]
        yield Finding("run", None, describe_waiting(waiting))
        for key, times in gauges.items():
            if key.startswith(KEY):
                child = key.removeprefix(KEY)
                yield Finding("suspended", None, f"{child} is left out", tell_remedy(child, int(times)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        yield Finding("run", None, f"it runs, and its notes in {directory / LEDGER} cannot be read yet")


def describe_waiting(waiting: Mapping[str, Any]) -> str:
    """What is waited for, since when, and for whom, in one line."""
    noted = f"noted at {clock_time(waiting['noted'])}"
    if not waiting["for"]:
        return f"at work, nothing is waited for ({noted})"
    seconds = max(0.0, waiting["noted"] - waiting["since"])
    who = ", ".join(map(str, waiting["children"].values()))
    since = f"since {clock_time(waiting['since'])}, {seconds:.0f} s"
    return f"{waiting['for']}{': ' * bool(who)}{who} ({since}; {noted})"


def clock_time(seconds: float) -> str:
    """Local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))
