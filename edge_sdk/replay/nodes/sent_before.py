"""What a replay had sent before it was interrupted: nodes count from 0 whenever they start."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

LEDGERS, BEFORE = "hospital-*/ledger.json", "hospital-*/ledger-*.json"
"""Files in the replay's directory: what its hospitals have counted since they started, and what they had before."""
HOPS = ("device_to_hospital", "hospital_to_device", "hospital_to_aggregator", "aggregator_to_hospital")


def sent_before(out: Path) -> dict[str, int]:
    """Bytes that had crossed each hop before the replay went on; 0 where it was never interrupted."""
    found = Counter[str]()
    for path in out.glob(BEFORE):
        ledger = json.loads(path.read_text(encoding="utf-8"))
        down = list(ledger["down"].values())
        found["device_to_hospital"] += sum(hop["received"] for hop in down)
        found["hospital_to_device"] += sum(hop["sent"] for hop in down) + ledger["to_all"] * len(down)
        found["hospital_to_aggregator"] += ledger["up"]["sent"]
        found["aggregator_to_hospital"] += ledger["up"]["received"]
    return {hop: found[hop] for hop in HOPS}


def was_interrupted(out: Path) -> bool:
    """Says if the replay is one that went on: nobody knows what its devices had computed before."""
    return any(out.glob(BEFORE))


def keep_sent(out: Path) -> None:
    """Puts what hospitals have counted so far aside, each ledger in one step: whatever dies, it counts once.

    A ledger is at most half a second older than the end of its hospital.
    """
    for path in out.glob(LEDGERS):
        earlier = len([*path.parent.glob("ledger-*.json")])
        path.rename(path.with_name(f"ledger-{earlier + 1}.json"))
