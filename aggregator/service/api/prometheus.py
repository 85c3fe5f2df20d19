"""GET /metrics: runs, hospitals, devices and the service itself, for Prometheus. It brings a token, as every program.

The names are those of nodes' own metrics where both mean the same (edge_sdk/nodes/daemon/prometheus.py).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sql
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from aggregator.service.application.alerts import list_needs
from aggregator.service.application.guard import needs
from aggregator.service.application.requests import service_of
from aggregator.service.application.service import FleetService
from aggregator.service.database.database import audit, runs
from aggregator.service.runs.runs import ACTIVE, FAILED, FINISHED, PAUSED, PROPOSED, QUEUED, RUNNING, STOPPED, list_runs
from edge_sdk.live.loop.fleet_report import STATES as DEVICE_STATES
from edge_sdk.nodes.daemon.prometheus import PREFIX, escaped

Sample = tuple[str, dict[str, str], float]
STATES = (PROPOSED, QUEUED, RUNNING, PAUSED, STOPPED, FINISHED, FAILED)
SHOWN_AFTER_END = 86400.0  # seconds for which the last figures of a run are told
PARTS = {"database": "service.db*", "runs": "runs/**/*", "models": "models/*", "logs": "logs/*"}
"""Parts of a service -> its files below the directory."""
KEPT = "text/plain; version=0.0.4; charset=utf-8"


def list_samples(service: FleetService) -> Iterator[Sample]:
    """All figures: name, labels, value."""
    yield from list_of_runs(service)
    yield from list_of_fleet(service)
    yield from list_of_disk(service)
    yield "service_broker_connected", {}, float(service.monitor.is_connected)
    yield "service_reports_refused_total", {}, float(service.monitor.refused)
    yield "service_needs", {}, float(len(list_needs(service)))
    [row] = service.database.read(sql.select(sql.func.coalesce(sql.func.max(audit.c.seq), 0).label("entries")))
    yield "service_audit_entries", {}, float(row["entries"])


def list_of_runs(service: FleetService) -> Iterator[Sample]:
    """Counts the runs in each state, and says how far those are that are under way, or were until a day ago."""
    counted = sql.select(runs.c.state, sql.func.count().label("count")).group_by(runs.c.state)
    counts = {row["state"]: row["count"] for row in service.database.read(counted)}
    for state in STATES:
        yield "runs", {"state": state}, float(counts.get(state, 0))
    recent = time.time() - SHOWN_AFTER_END
    for row in list_runs(service.database):
        if row["state"] not in ACTIVE and not (row["ended"] and row["ended"] > recent):
            continue
        lines, label = service.supervisor.lines_of(row["id"]), {"run": row["id"]}
        lines.read_on()
        yield "run_round", label, float(lines.round)
        yield "run_rounds", label, float(row["wanted"]["rounds"])
        if (loss := lines.latest_loss()) is not None:
            yield "run_loss", label, loss
        for model, share in lines.latest_accuracies().items():
            yield f"run_{lines.score.replace(' ', '_')}", label | {"model": model}, share
        if (seconds := lines.seconds_per_round()) is not None:
            yield "run_round_seconds", label, seconds
        if lines.rounds:
            yield "run_devices", label, float(lines.rounds[-1]["devices"])
            for way, name in (("bytes_in", "up"), ("bytes_out", "down")):
                yield "run_bytes_total", label | {"way": name}, float(lines.rounds[-1].get("bytes", {}).get(way, 0))


def list_of_disk(service: FleetService) -> Iterator[Sample]:
    """Room on the disk of the service's directory, and what its parts take."""
    directory = service.file.directory
    found = shutil.disk_usage(directory)
    yield "service_disk_free_bytes", {}, float(found.free)
    yield "service_disk_size_bytes", {}, float(found.total)
    for part, names in PARTS.items():
        yield "service_disk_used_bytes", {"part": part}, float(sum(map(count_bytes, directory.glob(names))))


def count_bytes(path: Path) -> int:
    """Size of a file, 0 where it has gone meanwhile."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


def list_of_fleet(service: FleetService) -> Iterator[Sample]:
    """Hospitals, and how many of their devices stand where."""
    for hospital in service.monitor.list_hospitals():
        label = {"hospital": hospital.name}
        yield "hospital_devices", label, float(hospital.size)
        yield "hospital_silent", label, float(hospital.is_silent)
        yield "last_heard_timestamp_seconds", label, hospital.heard
        for state in DEVICE_STATES:
            yield "devices", label | {"state": state}, float(hospital.counts.get(state, 0))


def write_exposition(samples: Iterator[Sample]) -> str:
    """Samples in Prometheus' text format."""
    families: dict[str, list[str]] = {}
    for name, labels, value in samples:
        said = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        families.setdefault(PREFIX + name, []).append(f"{{{said}}} {value:.12g}" if said else f" {value:.12g}")
    lines = []
    for family, found in families.items():
        lines.append(f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}")
        lines += [family + sample for sample in found]
    return "\n".join(lines) + "\n"


@needs()
async def show_metrics(request: Request) -> Response:
    """GET /metrics."""
    began = time.monotonic()
    text = write_exposition(list_samples(service_of(request)))
    text += f"# TYPE {PREFIX}service_scrape_seconds gauge\n"
    text += f"{PREFIX}service_scrape_seconds {time.monotonic() - began:.6f}\n"
    return PlainTextResponse(text, headers={"content-type": KEPT})
