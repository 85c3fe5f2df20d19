"""A hospital as a service: built from its settings file, and built anew when the file names other devices.

Devices come and go without a restart: SIGHUP makes the service read its file again, and with `enrolled = true` a roster
comes from the aggregator's service. Where the aggregator asks hospitals how many devices they have, and the method's
mathematics allow it, a changed list counts from the next question on; otherwise between two runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_sdk.data.patients import patients_of
from edge_sdk.hardware.probe import peak_memory_mb
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.live.membership.roster import Roster
from edge_sdk.nodes.configuration.settings import part_of, read_toml
from edge_sdk.nodes.daemon.counter_files import count_bytes, list_counters
from edge_sdk.nodes.daemon.settings_files import HospitalFile
from edge_sdk.nodes.daemon.settings_reload import check_changes, find_changes
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.nodes.hospital.options import DeviceList, HospitalPolicy, Upstream
from edge_sdk.wire.topics import ALL

log = logging.getLogger("auscult.serve")
CHANGEABLE = ("devices", "companions", "wait_for", "allow", "limits", "reports")
"""Settings that a running hospital takes up: limits and what is allowed at once, all others between two runs."""


class HospitalService:
    """A hospital from its settings file.

    Attributes:
        file: the settings by which the present hospital was made.
        changed: newer ones, which wait for the end of the run.
    """

    def __init__(self, path: Path):
        self.path = path
        self.written = read_toml(path, HospitalFile)
        self.roster = Roster(self.written.name, self.written.directory) if self.written.enrolled else None
        self.file = self.complete(self.written)
        self.changed: HospitalFile | None = None
        self.stopping = False
        self.hospital = self.make_hospital()

    def make_hospital(self) -> Hospital:
        hospital = hospital_of(self.file)
        if self.roster is not None:
            self.roster.changed, hospital.runtime.dispatcher.roster = self.take_roster, self.roster
        return hospital

    def complete(self, file: HospitalFile) -> HospitalFile:
        """A settings file with the devices that were enrolled beside those that it names."""
        if self.roster is None:
            return file
        return replace(file, devices=tuple(dict.fromkeys((*file.devices, *self.roster.devices))))

    def take_roster(self) -> None:
        """The service above has enrolled or removed devices. The loop calls this."""
        self.take_file(self.complete(self.written))

    @property
    def runtime(self) -> Runtime:
        return self.hospital.runtime

    @property
    def finished(self) -> threading.Event:
        return self.hospital.finished

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Serve until `stop`, or until `until()` says so; with another hospital whenever the settings want one."""
        while not self.stopping:
            self.hospital.run(lambda: self.may_change() or (until is not None and until()))
            if self.stopping or not self.may_change():
                return
            self.take_changes()

    def stop(self) -> None:
        self.stopping = True
        self.hospital.stop()

    def may_change(self) -> bool:
        """Other settings wait, and no run is under way that counts on the present ones."""
        return self.changed is not None and self.hospital.is_idle

    def take_changes(self) -> None:
        """Make the hospital anew. What it remembers of its runs is on the disk, so it goes on as after a restart."""
        assert self.changed is not None
        before = self.file.devices
        self.file, self.changed = self.changed, None
        self.hospital = self.make_hospital()
        log.info("%s: %s", self.file.name, describe_change(before, self.file.devices))

    def reread(self) -> None:
        """Read the settings file again, and take up what may be changed, between two runs.

        Raises:
            UsageError: it cannot be read, or something else in it has been changed.
        """
        written = read_toml(self.path, HospitalFile)
        check_changes(self.path, find_changes(self.written, written, CHANGEABLE), ", ".join(CHANGEABLE))
        self.written = written
        self.take_file(self.complete(written))

    def take_file(self, file: HospitalFile) -> None:
        """Take up what has changed in the settings: what may be at once, the rest between two runs."""
        if file.limits != self.file.limits:
            self.hospital.change_limits(file.limits)
        if file.allow != self.file.allow:
            self.hospital.change_allow(file.allow)
        self.file = replace(self.file, limits=file.limits, allow=file.allow)
        if find_changes(self.file, file, ()) == ["devices"] and self.hospital.may_change_devices():
            self.hospital.change_devices(file.devices)
            log.info("%s: %s", file.name, describe_change(self.file.devices, file.devices))
            self.file, self.changed = file, None
            return
        if names := find_changes(self.file, file, ()):
            self.changed = file
            log.info("%s: %s changed; it counts as soon as no run is under way", file.name, ", ".join(names))
            self.runtime.wake()

    def ledger(self) -> dict[str, Any]:
        """What has crossed this hospital's lines so far."""
        counters, file = self.runtime.counters, self.file
        return {
            "hospital": file.name,
            "up": count_bytes(counters, file.aggregator),
            "down": {device: count_bytes(counters, device) for device in file.devices},
            "to_all": count_bytes(counters, ALL)["sent"],
            "peak_memory_mb": round(peak_memory_mb(), 1),
            **list_counters(self.runtime),
        }


def hospital_of(file: HospitalFile) -> Hospital:
    """The hospital of a settings file."""
    hospital = Hospital(
        file.name,
        aggregator=Upstream(file.aggregator, file.upstream, file.upstream_wire),
        broker=file.broker,
        bundle=file.bundle,
        directory=file.directory,
        devices=part_of(file, DeviceList),
        wire=file.wire,
        policy=part_of(file, HospitalPolicy),
    )
    if file.data is not None:
        hospital.train_on(patients_of(file.data.samples))
    return hospital


def describe_change(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """Which devices have come and gone, for the log."""
    come, gone = sorted({*after} - {*before}), sorted({*before} - {*after})
    parts = [f"new: {', '.join(come)}"] * bool(come) + [f"removed: {', '.join(gone)}"] * bool(gone)
    return f"{len(after)} devices from now on ({'; '.join(parts) or 'the same ones'})"
