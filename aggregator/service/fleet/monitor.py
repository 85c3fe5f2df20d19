"""The fleet as the console shows it: what hospitals report of themselves and of their devices, kept and judged.

The service listens at the broker under a name of its own. Reports are about the moment and may be lost; what is known
of each hospital is in the database, so that a service that was restarted knows whom it once heard.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sql

from aggregator.service.administration.settings_file import CONSOLE, FleetFile
from aggregator.service.database.database import Database, Row, hospitals
from aggregator.service.database.problems import say_cause
from aggregator.service.fleet.reports import read_report
from aggregator.service.fleet.traffic import NewBytes
from edge_sdk.errors import PeerError
from edge_sdk.live.loop.fleet_report import AGAIN, AWAY, CONNECTED, HERE, JOINING, REFUSES, TRAINING
from edge_sdk.live.membership.rate_limit import Frequency
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.known_broker import KnownBroker
from edge_sdk.wire.link import Backoff, Link
from edge_sdk.wire.mqtt import Connection
from edge_sdk.wire.topics import REPORTS, parse_topic, upward
from edge_sdk.wire.waiter import Waiter

log = logging.getLogger("auscult.service")
SILENT = 3 * AGAIN
"""Seconds without a report after which a hospital counts as silent."""
SAVE_EVERY, SAVE_ROW = 2.0, 1e-3  # seconds between two writes to the database, and more for each row that was written
REPORT_RATE, REPORT_BURST = 4.0, 100.0
"""Reports of a hospital that are read, in a second and at once; it sends at most two in a second."""
ORDER = {REFUSES: 0, AWAY: 1, CONNECTED: 2, JOINING: 3, TRAINING: 4, HERE: 5}
"""States of devices, those that need somebody first."""

WORDS = {
    TRAINING: "training",
    HERE: "ready",
    JOINING: "joining",
    CONNECTED: "connected",
    REFUSES: "cannot take part",
    AWAY: "away",
}


@dataclass(frozen=True)
class SeenDevice:
    """A device as its hospital has reported it. `version`, `board`, `battery`: as it tells them itself, or nothing.
    `run`: that it is in, where several may go on at its hospital."""

    name: str
    hospital: str
    state: str
    refusal: str = ""
    heard: float | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    late: int = 0
    version: str = ""
    board: str = ""
    battery: int | None = None
    run: str = ""

    @property
    def why(self) -> str:
        """What is the matter with it, in a sentence; or empty."""
        if self.refusal:
            return self.refusal
        if self.state == AWAY:
            return "not connected" if self.heard else f"{self.hospital} has not heard of it since it was started"
        if self.state == CONNECTED:
            return "connected, and in no run yet"
        return f"late in {self.late} rounds" if self.late else ""


@dataclass(frozen=True)
class SeenHospital:
    """A hospital as it has reported itself last.

    Attributes:
        heard: when that was, Unix time.
        counts: state -> devices.
        devices: empty where it reports numbers only.
        strangers: names of devices that call there, and that its settings do not name.
        labels: sum of the labels that its devices have been given, as it tells it; None: it does not.
        evaluations: rollouts and evaluations that may go on there beside a training.
        trainings: that may go on there side by side.
        bundles: sha256 -> devices that have it, where some have another one.
        software: version of Auscult there; "": it does not say.
    """

    name: str
    heard: float
    size: int
    run: str = ""
    refusal: str = ""
    waiting: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[SeenDevice, ...] = ()
    strangers: tuple[str, ...] = ()
    labels: int | None = None
    evaluations: int = 0
    trainings: int = 1
    bundles: Mapping[str, int] = field(default_factory=dict)
    software: str = ""

    @property
    def is_silent(self) -> bool:
        """Nothing was heard of it for too long; or in the future, as when the clock was set back: then nobody knows."""
        return abs(time.time() - self.heard) > SILENT

    @property
    def here(self) -> int:
        """Devices that take part now."""
        return self.counts.get(HERE, 0) + self.counts.get(TRAINING, 0)


class Monitor:
    """Listens to what hospitals report. Its thread is the only one that writes the table of hospitals.

    Attributes:
        answer: called with a hospital and the number of the roster that it has, after each report and when that may
            have changed (see rosters.py).
        known: hospital -> that number.
        to_tell: hospitals for which it is to be called.
        seen: hospital -> what is known of it.
        places: hospital -> serial and part of the report that was taken last.
        unsaved: hospitals of which something else is known than the database has.
        hops: bytes between hospitals and their devices that have been reported and are not in the database yet.
        refused: payloads that were no reports, none that could be taken whole, or too many.
        frequency: how often each hospital's reports are read.
    """

    def __init__(self, file: FleetFile, database: Database):
        self.file, self.database = file, database
        self.seen = {row["name"]: to_hospital(row["name"], row["last_heard"], row["report"]) for row in load(database)}
        self.unsaved: set[str] = set()
        self.hops = NewBytes()
        self.places: dict[str, tuple[int, int]] = {}
        self.save_at, self.refused = 0.0, 0
        self.frequency = Frequency(REPORT_RATE, REPORT_BURST)
        self.known: dict[str, int | None] = {}
        self.to_tell: set[str] = set()
        self.answer: Callable[[Connection, str, int | None], None] = lambda connection, hospital, roster: None
        self.waiter, self.stopping = Waiter(), threading.Event()
        wire = file.console_wire or file.wire
        broker = broker_at(file.broker)
        context = wire.tls.context() if broker.tls else None
        topic = upward(file.name, "+", REPORTS)

        def connect() -> Connection:
            name = f"{file.name}-{CONSOLE}"
            version = known.next_version()
            return Connection(broker, name, [topic], keepalive=wire.keepalive, version=version, tls=context)

        known = KnownBroker(wire.version)
        self.link = Link(connect, self.waiter.wake, Backoff(cap=30.0), log, known=known)
        self.thread = threading.Thread(target=self.work, name="monitor", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.waiter.wake()
        if self.thread.is_alive():  # not so where the service could not be started
            self.thread.join()

    @property
    def is_connected(self) -> bool:
        return self.link.up

    def work(self) -> None:
        with self.waiter:
            while not self.stopping.is_set():
                try:
                    self.take_turn()
                except sql.exc.OperationalError as error:
                    log.error(
                        "reports of hospitals are kept for later: the database does not answer: %s", say_cause(error)
                    )
                    self.stopping.wait(5.0)
                except Exception:
                    log.exception("reports of hospitals could not be taken in; it is tried again")
                    self.stopping.wait(5.0)
            self.link.close()
            self.save()

    def take_turn(self) -> None:
        connections = [] if self.link.connection is None else [self.link.connection]
        self.waiter.wait(connections, 1.0, time.monotonic() + 1.0)
        now = time.monotonic()
        if (connection := self.link.connection) is not None:
            if connection.wants_write:
                connection.write()
            for topic, payload in connection.read() if connection.ready else ():
                self.take(topic, payload)
            connection.check_health(now)
            while self.to_tell and connection.up:
                hospital = self.to_tell.pop()
                self.answer(connection, hospital, self.known.get(hospital))
        before = self.link.up
        self.link.poll(now)
        if self.link.has_come_up() or self.link.up != before:
            self.database.changed.set()
        if self.unsaved and now >= self.save_at:
            self.save_at = now + SAVE_EVERY + SAVE_ROW * sum(len(self.seen[name].devices) for name in self.unsaved)
            self.save()

    def take(self, topic: str, payload: bytes) -> None:
        """Take a report; what is none costs a line in the log. Changes after one that was lost, or that named a device
        that the whole report has not, wait for the next whole one."""
        try:
            parsed = parse_topic(topic)
            if not self.frequency.admits(parsed.sender, 0, time.monotonic()):
                return self.note_refused(f"{parsed.sender} reports too often: a report is dropped")
            report = read_report(payload, parsed.sender)
        except PeerError as error:
            return self.note_refused(f"a report is dropped: {error}")
        sender, serial, part = parsed.sender, report["serial"], report["part"]
        if part and self.places.get(sender) != (serial, part - 1):
            return
        now, before = time.time(), self.seen.get(sender)
        if part and (strange := find_strange(report, before)):
            del self.places[sender]
            return self.note_refused(f"changes of {sender} are dropped: its whole report has no {strange}")
        if report["wrong"]:
            self.note_refused(f"of a report of {sender} is left out: {report['wrong']}")
        self.places[sender] = serial, part
        if not part or self.known.get(sender) != report["roster"]:
            self.to_tell.add(sender)
        self.known[sender] = report["roster"]
        found = to_hospital(sender, now, report)
        self.seen[sender] = found if before is None or not part else keep_others(found, before)
        self.hops.note(before, self.seen[sender])
        self.unsaved.add(sender)
        if before is None or replace(before, heard=now) != self.seen[sender]:
            self.database.changed.set()

    def note_refused(self, what: str) -> None:
        self.refused += 1
        if self.refused <= 10 or self.refused % 1000 == 0:
            log.warning("%s (%d so far)", what, self.refused)

    def tell_roster(self, hospital: str) -> None:
        """A hospital's devices may be others now. May be called from any thread."""
        self.to_tell.add(hospital)
        self.waiter.wake()

    def save(self) -> None:
        """Write what is known of hospitals that have reported into the database."""
        with self.database.transaction() as t:
            for name in self.unsaved:
                seen = self.seen[name]
                values = {"report": to_report(seen), "last_heard": seen.heard}
                found = t.execute(hospitals.update().where(hospitals.c.name == name).values(**values))
                if not found.rowcount:
                    t.execute(hospitals.insert().values(name=name, first_heard=seen.heard, **values))
            self.hops.save(t)
        self.unsaved, self.hops = set(), NewBytes()

    # -- what others ask

    def list_hospitals(self) -> list[SeenHospital]:
        """All hospitals that were ever heard of or are named in the settings, by name."""
        named = {name: SeenHospital(name, 0.0, size) for name, size in self.file.hospitals.items()}
        return [hospital for _, hospital in sorted({**named, **self.seen}.items())]

    def labels(self) -> dict[str, int]:
        """Hospital -> the sum of the labels that its devices have been given, of those that tell it."""
        return {name: h.labels for name, h in self.seen.items() if h.labels is not None}

    def evaluations(self) -> dict[str, int]:
        """Hospital -> how many rollouts and evaluations may go on there beside a training."""
        return {name: hospital.evaluations for name, hospital in self.seen.items()}

    def sizes(self) -> dict[str, int]:
        """Hospitals that can take part now, each with its number of devices; those that the settings name can, unless
        they have fallen silent."""
        return {h.name: h.size for h in self.list_hospitals() if h.size and not (h.heard and h.is_silent)}


def load(database: Database) -> list[Row]:
    return database.read(sql.select(hospitals))


def to_hospital(name: str, heard: float, report: Mapping[str, Any]) -> SeenHospital:
    """A hospital from a checked report."""
    devices = tuple(SeenDevice(hospital=name, **row) for row in report["children"])
    about = {key: report[key] for key in ("run", "refusal", "waiting", "counts")} | {"labels": report.get("labels")}
    about["evaluations"] = report.get("evaluations", 0)
    about |= {"trainings": report.get("trainings", 1), "bundles": report.get("bundles", {})}
    about["software"] = report.get("software", "")
    strangers = tuple(report.get("strangers", ()))
    return SeenHospital(name, heard, report["devices"], devices=devices, strangers=strangers, **about)


def find_strange(report: Mapping[str, Any], before: SeenHospital | None) -> str:
    """A device in a report of changes that was in none before, so that no list grows by them; "": there is none."""
    known = {device.name for device in before.devices} if before else set()
    return next((row["name"] for row in report["children"] if row["name"] not in known), "")


def keep_others(changed: SeenHospital, before: SeenHospital) -> SeenHospital:
    """A hospital of which only devices that have changed were reported: the others stand as before."""
    rows = {device.name: device for device in before.devices}
    rows |= {device.name: device for device in changed.devices}
    return replace(changed, devices=tuple(rows.values()))


def to_report(hospital: SeenHospital) -> dict[str, Any]:
    """What is known of a hospital, as a report of it has it: the way back from `to_hospital`."""
    keys = ("run", "refusal", "waiting", "strangers", "labels", "evaluations", "trainings", "bundles", "software")
    about = {key: getattr(hospital, key) for key in keys}
    rows = [{key: value for key, value in vars(d).items() if key != "hospital"} for d in hospital.devices]
    return about | {"devices": hospital.size, "counts": dict(hospital.counts), "children": rows}
