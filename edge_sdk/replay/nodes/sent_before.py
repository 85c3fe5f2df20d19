"""What a replay had sent before it was interrupted: nodes count from 0 whenever they start."""

from __future__ import annotations

import json
from pathlib import Path

from edge_sdk.atomic import write_text

KEPT = "sent_before.json"
LEDGERS = "hospital-*/ledger.json"
"""Files in the replay's directory: what was sent before, and what its hospitals have counted since they started."""
HOPS = ("device_to_hospital", "hospital_to_device", "hospital_to_aggregator", "aggregator_to_hospital")


def sent_before(out: Path) -> dict[str, int]:
    """Bytes that had crossed each hop before the replay went on; 0 where it was never interrupted."""
    try:
        found = json.loads((out / KEPT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = {}
    return {hop: int(found.get(hop, 0)) for hop in HOPS}


def keep_sent(out: Path) -> None:
    """Adds what hospitals have counted to what was sent before, and removes their counts, which are theirs no more.

    A ledger is at most half a second older than the end of its hospital.
    """
    kept, ledgers = sent_before(out), sorted(out.glob(LEDGERS))
    for path in ledgers:
        ledger = json.loads(path.read_text(encoding="utf-8"))
        down = list(ledger["down"].values())
        kept["device_to_hospital"] += sum(hop["received"] for hop in down)
        kept["hospital_to_device"] += sum(hop["sent"] for hop in down) + ledger["to_all"] * len(down)
        kept["hospital_to_aggregator"] += ledger["up"]["sent"]
        kept["aggregator_to_hospital"] += ledger["up"]["received"]
    if ledgers:
        write_text(out / KEPT, json.dumps(kept))
    for path in ledgers:
        path.unlink()
