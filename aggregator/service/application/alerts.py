"""What needs a person, of all that the service sees: disk, broker, certificates, hospitals, approvals, failed runs."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass

from aggregator.service.application.certificate_ends import list_ending
from aggregator.service.application.formats import DAY, size
from aggregator.service.application.service import FleetService
from aggregator.service.application.view import RECENT, why_hospital
from aggregator.service.fleet.enrolment import WAITING
from aggregator.service.fleet.monitor import SeenDevice, SeenHospital
from aggregator.service.models.promotion import list_proposals
from aggregator.service.runs.rollout_settings import is_rollout
from aggregator.service.runs.runs import FAILED, PROPOSED, list_runs
from edge_sdk.errors import say_reason
from edge_sdk.live.loop.fleet_report import AWAY, REFUSES

LITTLE = 200e6
"""Bytes on the disk of the service's directory of which fewer need a person: a few runs and their models."""
REASONS = 3
"""Reasons that are told where many devices cannot take part."""
UNNAMED = "and is not in that hospital's settings: name it there, or find out whose it is"


@dataclass(frozen=True)
class Need:
    """Something that a person should look at. `link`: where."""

    what: str
    why: str
    link: str


def list_needs(service: FleetService) -> list[Need]:
    """What needs a person, the most urgent first."""
    found = [*list_needs_of_disk(service), *list_needs_of_broker(service)]
    found += [Need(what, why, "/settings") for what, why in list_ending(service.file)]
    found += [need for hospital in service.monitor.list_hospitals() for need in list_needs_of_hospital(hospital)]
    if service.office.trouble:
        found.append(Need("The broker was not told who may come", service.office.trouble, "/enrolment"))
    found += [Need(f"Webhook {name} takes nothing", why, "/settings") for name, why in sorted(service.untold.items())]
    found += list_enrolments_to_approve(service)
    if service.supervisor.waits:
        found.append(Need("The next run cannot start", service.supervisor.waits, "/runs"))
    found += list_approvals(service)
    recent = [row for row in list_runs(service.database, FAILED) if (row["ended"] or 0) > time.time() - DAY]
    found += [Need(f"Run {row['id']} has failed", row["why"].splitlines()[0], f"/runs/{row['id']}") for row in recent]
    return found


def list_needs_of_broker(service: FleetService) -> list[Need]:
    if service.monitor.is_connected:
        return []
    why = ": ".join(filter(None, (service.file.broker.rpartition("@")[2], service.monitor.link.why)))
    return [Need("The broker cannot be reached", why, "/fleet")]


def list_needs_of_hospital(hospital: SeenHospital) -> list[Need]:
    """What needs a person at one hospital: itself, or else its devices that cannot take part or are away, and strangers
    that call there."""
    if not hospital.heard or hospital.is_silent or hospital.refusal:
        return [Need(f"Hospital {hospital.name}", why_hospital(hospital), "/fleet")]
    refusing = [d for d in hospital.devices if d.state == REFUSES]
    if len(refusing) > RECENT:
        said = f"{len(refusing)} devices of {hospital.name} cannot take part"
        found = [Need(said, count_reasons(refusing), f"/fleet?state={REFUSES}&q={hospital.name}")]
    else:
        found = [Need(f"Device {d.name} cannot take part", d.why, f"/fleet?q={d.name}") for d in refusing]
    found += [Need(f"{name} calls at {hospital.name}", UNNAMED, "/fleet") for name in hospital.strangers[:RECENT]]
    if away := hospital.counts.get(AWAY, 0):
        names = ", ".join([d.name for d in hospital.devices if d.state == AWAY][:RECENT])
        many = "1 device is" if away == 1 else f"{away} devices are"
        found.append(Need(f"{many} away from {hospital.name}", names, "/fleet?state=away"))
    return found


def list_enrolments_to_approve(service: FleetService) -> list[Need]:
    return [
        Need(
            f"{row['name']} asks to be enrolled",
            f"as a {row['kind']} {'of ' * bool(row['parent'])}{row['parent']}".strip(),
            "/enrolment",
        )
        for row in service.enrolment.list_all(WAITING)[:RECENT]
    ]


def list_approvals(service: FleetService) -> list[Need]:
    """Runs, rollouts and models that wait for another person's approval."""
    found = []
    for row in list_runs(service.database, PROPOSED):
        kind = "Rollout" if is_rollout(row) else "Run"
        found.append(Need(f"{kind} {row['id']} awaits approval", f"asked for by {row['by']}", f"/runs/{row['id']}"))
    for sha256, by in list_proposals(service.database).items():
        name = service.registry.find(sha256)["name"]
        found.append(Need(f"Model {name} awaits approval", f"proposed by {by}", "/models"))
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
