"""What pages and the API show of the service: plain dictionaries and texts, made of rows, reports and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from aggregator.service.application.formats import ago
from aggregator.service.application.service import FleetService
from aggregator.service.database.database import Row
from aggregator.service.fleet.enrolment import APPROVED, DENIED, LOST, REMOVED, SUSPENDED, WAITING
from aggregator.service.fleet.monitor import ORDER, WORDS, SeenDevice, SeenHospital
from aggregator.service.fleet.traffic import DOWN, UP, find_hops
from aggregator.service.runs.round_table import tabulate
from aggregator.service.runs.run_metrics import RunLines
from aggregator.service.runs.runs import (
    FAILED,
    FINISHED,
    PAUSED,
    PROPOSED,
    QUEUED,
    RUNNING,
    STOPPED,
    find_over,
    list_actions,
)
from edge_sdk.live.loop.fleet_report import HERE, TRAINING
from edge_sdk.methods.shared.aggregation.scores import UNTOLD

RECENT = 6
MOST_ABSENT = 20
"""Devices of one hospital that a run's page names."""
BELOW = {"device_up": UP, "device_down": DOWN}


def describe_run(service: FleetService, row: Row, whole: bool = False) -> dict[str, Any]:
    """A run as JSON has it. `whole`: with its rounds, complaints and the last lines of its log."""
    lines, wanted = service.supervisor.lines_of(row["id"]), row["wanted"]
    lines.read_on()
    rate, left = lines.seconds_per_round(), max(0, wanted["rounds"] - lines.round)
    found: dict[str, Any] = {
        "id": row["id"],
        "state": row["state"],
        "wish": row["wish"],
        "why": row["why"],
        "waits": service.supervisor.queue.waits.get(row["id"], "") if row["state"] in (QUEUED, RUNNING) else "",
        "actions": list_actions(row),
        "method": wanted["method"],
        "round": lines.round,
        "rounds": wanted["rounds"],
        "devices": lines.rounds[-1]["devices"] if lines.rounds else None,
        "loss": lines.latest_loss(),
        "accuracy": lines.latest_accuracies(),
        **lines.latest_errors(),
        "score": lines.score,
        "macro_f1": lines.latest_macro_f1(),
        "seconds_per_round": rate,
        "seconds_left": None if rate is None or row["state"] != RUNNING else rate * left,
        "created": row["created"],
        "started": row["started"],
        "ended": row["ended"],
        "by": row["by"],
        "cloned": row["cloned"],
        "hospitals": row["hospitals"],
        "wanted": wanted,
    }
    if whole:
        found["curve"] = tabulate(lines.lines)
        found["hops"] = describe_hops(service, lines, row["id"])
        found["not_counted"] = list_not_counted(service, row, lines)
        found["complaints"] = lines.complaints
        found["log"] = service.supervisor.read_log(row["id"], 60)
    return found


def describe_hops(service: FleetService, lines: RunLines, id: str) -> dict[str, int | None]:
    """Hop -> bytes of a run so far; None where no hospital reports its devices by name."""
    below = find_hops(service.database, id).values()
    totals: dict[str, int] = next((line["bytes"] for line in reversed(lines.lines) if "bytes" in line), {})
    found: dict[str, int | None] = {key: sum(h[way] for h in below) if below else None for key, way in BELOW.items()}
    return found | {"hospital_up": totals.get("bytes_in", 0), "hospital_down": totals.get("bytes_out", 0)}


def list_not_counted(service: FleetService, row: Row, lines: RunLines) -> list[dict[str, str]]:
    """Who is not counted in a run now, and why: its hospitals and their devices, while it goes on; and whose scores
    the latest round does not tell."""
    found: list[dict[str, str]] = []
    for hospital in service.monitor.list_hospitals() if row["state"] == RUNNING else ():
        if hospital.name in row["hospitals"]:
            found += list_absent(hospital, row["id"])
    untold = int(lines.rounds[-1].get("sums", {}).get(UNTOLD, 0)) if lines.rounds else 0
    why = "counted in the latest round without scores: their hospital has too few devices to tell them"
    return found + [{"name": f"{untold} device{'s' * (untold != 1)}", "why": why}] * bool(untold)


def list_absent(hospital: SeenHospital, run: str) -> list[dict[str, str]]:
    """A hospital of a run that is not in it, or else its devices that are not, with reasons."""
    if why := why_hospital(hospital):
        return [{"name": hospital.name, "why": why}]
    if run not in hospital.run.split(", "):
        return [{"name": hospital.name, "why": "is not in this run yet"}]
    own = [d for d in hospital.devices if hospital.trainings == 1 or d.run == run]
    absent = [d for d in own if d.state not in (HERE, TRAINING)]
    shown = [{"name": d.name, "why": d.why or WORDS[d.state]} for d in absent[:MOST_ABSENT]]
    more = len(absent) - len(shown)
    return shown + [{"name": f"{more} more of {hospital.name}", "why": "see the fleet"}] * (more > 0)


def describe_hospitals(service: FleetService, *names: str) -> list[dict[str, Any]]:
    """Hospitals as JSON has them, without their devices; `names`: only these.

    A node stays in a run that has ended until the next one begins; here it is in none then.
    """
    every = [h for h in service.monitor.list_hospitals() if not names or h.name in names]
    over = find_over(service.database, {id for h in every for id in h.run.split(", ")} - {""})
    runs = [", ".join(id for id in h.run.split(", ") if id not in over) for h in every]
    return [{**describe_hospital(h, devices=False), "run": run} for h, run in zip(every, runs, strict=True)]


def describe_hospital(hospital: SeenHospital, devices: bool = True) -> dict[str, Any]:
    """A hospital as JSON has it."""
    found = {f.name: getattr(hospital, f.name) for f in fields(hospital)}
    found |= {
        "counts": dict(hospital.counts),
        "silent": hospital.is_silent,
        "here": hospital.here,
        "why": why_hospital(hospital),
    }
    found["devices"] = [describe_device(device) for device in hospital.devices] if devices else []
    return found


def describe_device(device: SeenDevice) -> dict[str, Any]:
    """A device as JSON has it."""
    return {**vars(device), "why": device.why}  # flat: asdict copies deeply, ten thousand times


def why_hospital(hospital: SeenHospital) -> str:
    """What is the matter with a hospital, in a sentence; or empty."""
    if not hospital.heard:
        return 'nothing has been heard of it: does it run, and do its settings say reports = "names"?'
    if hospital.is_silent:
        return f"nothing has been heard of it for {ago(hospital.heard)}"
    return hospital.refusal or hospital.waiting


def list_devices(service: FleetService, text: str = "", state: str = "", sort: str = "") -> list[SeenDevice]:
    """Devices of all hospitals. `text`: part of a name, a hospital's or a reason; `state`: only those; `sort`: one of
    SORTS, after a dash for the opposite order."""
    found = [device for hospital in service.monitor.list_hospitals() for device in hospital.devices]
    if text:
        found = [d for d in found if text.lower() in f"{d.name} {d.hospital} {d.why} {d.version} {d.board}".lower()]
    if state:
        found = [d for d in found if d.state == state]
    key = SORTS.get(sort.removeprefix("-"), SORTS[""])
    return sorted(found, key=key, reverse=sort.startswith("-"))


def find_told(devices: list[SeenDevice]) -> dict[str, bool]:
    """Facts of their machines that some devices tell: columns of nothing are not shown."""
    return {
        "version": any(device.version for device in devices),
        "board": any(device.board for device in devices),
        "battery": any(device.battery is not None for device in devices),
    }


SORTS: Mapping[str, Any] = {
    "": lambda d: (ORDER[d.state], d.hospital, d.name),
    "name": lambda d: (d.name, d.hospital),
    "hospital": lambda d: (d.hospital, d.name),
    "heard": lambda d: -(d.heard or 0.0),
    "up": lambda d: -d.bytes_in,
    "down": lambda d: -d.bytes_out,
    "late": lambda d: -d.late,
    "why": lambda d: (not d.why, d.why, d.name),
    "version": lambda d: (not d.version, d.version, d.name),
    "board": lambda d: (not d.board, d.board, d.name),
    "battery": lambda d: (d.battery is None, d.battery or 0, d.name),
}
"""Name of a sorting -> its key; the first is used where none is asked for."""

STATE_WORDS = {
    PROPOSED: "awaits approval",
    QUEUED: "waiting",
    RUNNING: "running",
    PAUSED: "paused",
    STOPPED: "stopped",
    FINISHED: "finished",
    FAILED: "failed",
    WAITING: "asks",
    APPROVED: "approved",
    DENIED: "denied",
    SUSPENDED: "suspended",
    REMOVED: "removed",
    LOST: "to be replaced",
} | WORDS
"""States of runs and devices in words."""

ACTIONS = {
    "run.queue": "queued",
    "run.start": "started",
    "run.approve": "was approved",
    "run.pause": "to be paused",
    "run.resume": "to be resumed",
    "run.stop": "to be stopped",
    "run.first": "put first",
    **{f"run.{state}": state for state in (PAUSED, STOPPED, FINISHED, FAILED)},
    "run.hospitals": "has other hospitals",
    "model.bundle": "is in the registry",
    "model.global": "left its model",
    "model.promote": "is in use",
    "model.propose": "is proposed",
    "model.deny": "is not to be used",
    "schedule.add": "was set",
    "schedule.remove": "is no more",
    "schedule.due": "has enough new samples",
    "service.start": "was started",
    "service.backup": "was backed up",
    "service.restore": "was put back from a backup",
    "rollout.queue": "is to be rolled out",
    "rollout.undo": "is to be taken back",
    "enrol.token": "has an invitation",
    "enrol.revoke": "has an invitation less",
    "enrol.ask": "asks to be enrolled",
    "enrol.certificate": "was given a certificate",
    "enrol.approve": "belongs to the fleet",
    "enrol.deny": "does not belong to the fleet",
    "enrol.suspend": "is suspended",
    "enrol.remove": "was removed",
    "enrol.replace": "is to be replaced",
    "people.add": "may use the console",
    "people.remove": "may use the console no longer",
    "session.make": "signed in",
    "session.end": "signed out",
    "token.make": "has a new token",
    "token.revoke": "has a token less",
    "refused": "was refused",
}
"""Actions of the audit log in words, behind what they are of."""
