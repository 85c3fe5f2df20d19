"""What pages and the API show of the service: plain dictionaries and texts, made of rows, reports and metrics."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from aggregator.service.application.certificate_ends import list_ending
from aggregator.service.application.formats import DAY, ago, size
from aggregator.service.application.service import FleetService
from aggregator.service.database.database import Row
from aggregator.service.fleet.enrolment import APPROVED, DENIED, LOST, REMOVED, SUSPENDED, WAITING
from aggregator.service.fleet.monitor import ORDER, WORDS, SeenDevice, SeenHospital
from aggregator.service.fleet.traffic import DOWN, UP, find_hops
from aggregator.service.models.promotion import list_proposals
from aggregator.service.runs.rollout_settings import is_rollout
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
    list_runs,
)
from edge_sdk.errors import say_reason
from edge_sdk.live.loop.fleet_report import AWAY, HERE, REFUSES, TRAINING
from edge_sdk.methods.shared.aggregation.scores import UNTOLD

RECENT = 6
LITTLE = 200e6
"""Bytes on the disk of the service's directory of which fewer need a person: a few runs and their models."""
MOST_ABSENT = 20
"""Devices of one hospital that a run's page names."""
BELOW = {"device_up": UP, "device_down": DOWN}
REASONS = 3
"""Reasons that are told where many devices cannot take part."""
UNNAMED = "and is not in that hospital's settings: name it there, or find out whose it is"


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


@dataclass(frozen=True)
class Need:
    """Something that a person should look at. `link`: where."""

    what: str
    why: str
    link: str


def list_needs(service: FleetService) -> list[Need]:
    """What needs a person, the most urgent first."""
    found = list_needs_of_disk(service)
    if not service.monitor.is_connected:
        why = ": ".join(filter(None, (service.file.broker.rpartition("@")[2], service.monitor.link.why)))
        found.append(Need("The broker cannot be reached", why, "/fleet"))
    found += [Need(what, why, "/settings") for what, why in list_ending(service.file)]
    for hospital in service.monitor.list_hospitals():
        if not hospital.heard or hospital.is_silent or hospital.refusal:
            found.append(Need(f"Hospital {hospital.name}", why_hospital(hospital), "/fleet"))
            continue
        refusing = [d for d in hospital.devices if d.state == REFUSES]
        if len(refusing) > RECENT:
            said = f"{len(refusing)} devices of {hospital.name} cannot take part"
            found.append(Need(said, count_reasons(refusing), f"/fleet?state={REFUSES}&q={hospital.name}"))
        else:
            found += [Need(f"Device {d.name} cannot take part", d.why, f"/fleet?q={d.name}") for d in refusing]
        found += [Need(f"{name} calls at {hospital.name}", UNNAMED, "/fleet") for name in hospital.strangers[:RECENT]]
        if away := hospital.counts.get(AWAY, 0):
            names = ", ".join([d.name for d in hospital.devices if d.state == AWAY][:RECENT])
            many = "1 device is" if away == 1 else f"{away} devices are"
            found.append(Need(f"{many} away from {hospital.name}", names, "/fleet?state=away"))
    if service.office.trouble:
        found.append(Need("The broker was not told who may come", service.office.trouble, "/enrolment"))
    found += [Need(f"Webhook {name} takes nothing", why, "/settings") for name, why in sorted(service.untold.items())]
    waiting = service.enrolment.list_all(WAITING)
    found += [
        Need(
            f"{row['name']} asks to be enrolled",
            f"as a {row['kind']} {'of ' * bool(row['parent'])}{row['parent']}".strip(),
            "/enrolment",
        )
        for row in waiting[:RECENT]
    ]
    if service.supervisor.waits:
        found.append(Need("The next run cannot start", service.supervisor.waits, "/runs"))
    for row in list_runs(service.database, PROPOSED):
        kind = "Rollout" if is_rollout(row) else "Run"
        found.append(Need(f"{kind} {row['id']} awaits approval", f"asked for by {row['by']}", f"/runs/{row['id']}"))
    for sha256, by in list_proposals(service.database).items():
        name = service.registry.find(sha256)["name"]
        found.append(Need(f"Model {name} awaits approval", f"proposed by {by}", "/models"))
    recent = [row for row in list_runs(service.database, FAILED) if (row["ended"] or 0) > time.time() - DAY]
    found += [Need(f"Run {row['id']} has failed", row["why"].splitlines()[0], f"/runs/{row['id']}") for row in recent]
    return found


def list_needs_of_disk(service: FleetService) -> list[Need]:
    """What needs a person where the disk has little room: without any, runs and the log stand still."""
    try:
        free = shutil.disk_usage(service.file.directory).free
    except OSError as error:
        return [Need("The disk cannot be read", say_reason(error), "/settings")]
    why = f"{size(free)} are free where the service keeps everything"
    return [Need("The disk is nearly full", why, "/settings")] if free < LITTLE else []


def count_reasons(devices: list[SeenDevice]) -> str:
    """Why devices cannot take part, the most frequent reasons first."""
    counts = Counter(device.why for device in devices).most_common()
    more = [f"{len(counts) - REASONS} other reasons"] if len(counts) > REASONS else []
    return "; ".join([*(f"{count} of them: {why}" for why, count in counts[:REASONS]), *more])


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
