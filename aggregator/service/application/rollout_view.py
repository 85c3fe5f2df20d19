"""What pages and the API show of rollouts: how far they are, what devices said, and what became of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from aggregator.service.application.alerts import Need
from aggregator.service.application.formats import DAY
from aggregator.service.application.service import FleetService
from aggregator.service.database.database import Row
from aggregator.service.models.rollouts import is_active, list_rollouts
from aggregator.service.runs.runs import FINISHED, QUEUED, RUNNING, list_actions
from edge_sdk.errors import UsageError
from edge_sdk.methods.rollout.plan import count_failures, count_having

KEPT, BACK, UNDONE, LEAVING, JUDGED = "kept", "rolled back", "undone", "going back", "judged"


def describe_rollout(service: FleetService, row: Row) -> dict[str, Any]:
    """A rollout as JSON has it.

    `stages`: a line for each that is over. `missed`: devices that it was for, and that were not there: away, or without
    room for it beside a training (`evaluations`). `counts`: sums over all stages, by the names of
    methods/rollout/plan.py. `accuracy`: on the devices' own held-out samples, before and after; None where there were
    none.
    """
    lines = service.supervisor.lines_of(row["id"])
    lines.read_on()
    settings = row["wanted"]["settings"]
    stages = [line for line in lines.lines if line["kind"] == "stage"]
    verdict = next((line for line in reversed(lines.lines) if line["kind"] == "rollout"), None)
    latest: Mapping[str, Any] = verdict or (stages[-1] if stages else {})
    counts, target = latest.get("counts", {}), stages[-1]["target"] if stages else None
    samples, undo = counts.get("samples", 0), undone_in(row)
    outcome = find_outcome(row, stages, verdict)
    return {
        "id": row["id"],
        "state": row["state"],
        "wish": row["wish"],
        "outcome": outcome,
        "why": latest.get("fault", "") or row["why"],
        "actions": [action for action in list_actions(row) if action != "first"],
        "may_undo": not (undo or settings.get("only_judge")) and row["state"] != QUEUED,
        "only_judge": bool(settings.get("only_judge")),
        "beside": row["beside"] > 0,
        "undo": undo,
        "undone_by": [r["id"] for r in list_rollouts(service.database) if undone_in(r) == row["id"]],
        "model": describe_model(service, settings.get("model", "")),
        "target": target,
        "missed": max(0, (target or 0) - int(counts.get("asked", 0))) if outcome in (KEPT, JUDGED) and not undo else 0,
        "having": count_having(counts),
        "failed": count_failures(counts),
        "counts": counts,
        "accuracy": {name: counts.get(name, 0) / samples for name in ("before", "after")} if samples else None,
        "stages": [describe_stage(stage, before) for stage, before in zip(stages, [None, *stages], strict=False)],
        "of_stages": stages[-1]["stages"] if stages else None,
        "wanted": {**settings, "hospitals": row["wanted"]["hospitals"]},
        "hospitals": row["hospitals"],
        "by": row["by"],
        "created": row["created"],
        "started": row["started"],
        "ended": row["ended"],
    }


def undone_in(row: Row) -> str:
    """Id of the rollout that this one takes back; "": none."""
    return str(row["wanted"]["settings"].get("undo", ""))


def describe_stage(stage: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """One stage by itself: its counts are sums over all stages so far, from which those before are taken."""
    earlier = {} if before is None else before["counts"]
    own = {name: value - earlier.get(name, 0) for name, value in stage["counts"].items()}
    samples = own.get("samples", 0)
    shares = {name: own.get(name, 0) / samples if samples else None for name in ("before", "after")}
    about = {key: stage[key] for key in ("stage", "upto", "fault", "time")}
    return {**about, "asked": own.get("asked", 0), "having": count_having(own), "samples": samples, **shares}


def find_outcome(row: Row, stages: Sequence[Mapping[str, Any]], verdict: Mapping[str, Any] | None) -> str:
    """What has become of a rollout, in a word or two; the run's state where nothing more is known."""
    if row["state"] == FINISHED and row["wanted"]["settings"].get("only_judge"):
        return JUDGED
    if verdict is not None and row["state"] == FINISHED:
        return KEPT if verdict["kept"] else UNDONE if row["wanted"]["settings"].get("undo") else BACK
    if row["state"] == RUNNING and stages and stages[-1]["fault"]:
        return LEAVING
    return str(row["state"])


def describe_model(service: FleetService, sha256: str) -> dict[str, Any] | None:
    """Name, kind and hash of a model; None: the rollout brings none, or it is gone."""
    try:
        row = service.registry.find(sha256) if sha256 else None
    except UsageError:
        row = None
    return None if row is None else {key: row[key] for key in ("sha256", "name", "kind", "run")}


def list_needs(service: FleetService) -> list[Need]:
    """Rollouts of the last day that were halted."""
    found = []
    for row in list_rollouts(service.database):
        if is_active(row) or (row["ended"] or 0) > time.time() - DAY:
            rollout = describe_rollout(service, row)
            if rollout["outcome"] in (BACK, LEAVING):
                found.append(Need(f"Rollout {row['id']} was halted", rollout["why"], f"/rollouts/{row['id']}"))
    return found
