"""`auscult device` and `auscult hospital`: services from their settings files, side by side until their runs end.

`auscult aggregator` (aggregator/run_command.py) has its service run by `serve` here, too.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any, Protocol

from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.certificate_renewal import Renewal
from edge_sdk.nodes.daemon.counter_files import write_json
from edge_sdk.nodes.daemon.device_file import LEDGER, DeviceFile
from edge_sdk.nodes.daemon.device_service import DeviceNote, DeviceService
from edge_sdk.nodes.daemon.watchdog import Watchdog, notify

log = logging.getLogger("auscult.serve")
LINGER, LAST_WORDS = 0.7, 60.0  # seconds
HEAP = {-8: 1, -1: 128 * 2**10}
"""Parameters of mallopt in glibc's malloc.h: M_ARENA_MAX, and M_TRIM_THRESHOLD in bytes."""

WITH_PARENT = "AUSCULT_END_WITH"
"""Names the process that started this one, if this one is to end with it, however that ends."""


def is_orphaned() -> bool:
    return os.environ.get(WITH_PARENT, str(os.getppid())) != str(os.getppid())


class Service(Protocol):
    """What can be run until it is stopped."""

    @property
    def finished(self) -> threading.Event: ...
    @property
    def runtime(self) -> Runtime: ...

    def run(self, until: Callable[[], bool] | None = None) -> None: ...
    def stop(self) -> None: ...


class Figures:
    """What a service counts, whichever runtime it has at the moment."""

    def __init__(self, service: Service):
        self.service, self.name = service, service.runtime.name

    @property
    def counters(self) -> Counters:
        return self.service.runtime.counters

    def gauges(self) -> dict[str, float]:
        return self.service.runtime.gauges()


def serve(
    services: Sequence[Service],
    once: bool,
    meanwhile: Callable[[], None] = lambda: None,
    ports: Sequence[int | None] = (),
    last_words: float = LAST_WORDS,
    reread: Callable[[], None] | None = None,
) -> None:
    """Run services side by side until a signal comes or, with `once`, until every run has ended and is delivered.

    `meanwhile` is called about twice a second, and once at the end; a failure of it is logged and changes nothing.
    `ports`: where the metrics of each are found. `reread`: takes up what was changed in the settings file, at SIGHUP.
    """
    if reread is not None:
        meanwhile = Rereading(reread, meanwhile)
    with ExitStack() as stack:
        for service, port in zip(services, ports, strict=False):
            if port is not None:
                from edge_sdk.nodes.daemon.prometheus import Endpoint  # a server of HTTP, which few nodes have

                stack.enter_context(Endpoint(Figures(service), port))
        serve_all(services, once, SideWork("the ledger", meanwhile, log), last_words)


class SideWork:
    """Does a piece of side work again and again, what is nice to have (a ledger, a note) and must never end the run:
    one that fails is said once, and tried the next time.

    Args:
        what: name of the work, for the log.
        work: does it. It may raise anything, such as OSError where the disk is full or too many files are open.
    """

    def __init__(self, what: str, work: Callable[[], None], log: logging.Logger):
        self.what, self.work, self.log = what, work, log
        self.failing = ""

    def __call__(self) -> None:
        try:
            self.work()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            if why != self.failing:
                self.log.error("%s cannot be written (%s); the run goes on, and it is tried again", self.what, why)
            self.failing = why
            return
        if self.failing:
            self.log.info("%s is written again", self.what)
        self.failing = ""


class Rereading:
    """Calls a function soon after SIGHUP. What it finds wrong is said, and everything stays as it was."""

    def __init__(self, reread: Callable[[], None], meanwhile: Callable[[], None]):
        self.reread, self.meanwhile, self.asked = reread, meanwhile, False
        signal.signal(signal.SIGHUP, self.ask)

    def ask(self, *_: Any) -> None:
        """The handler. It may run between any two steps of the main thread, and so takes no lock."""
        self.asked = True

    def __call__(self) -> None:
        if self.asked:
            self.asked = False
            try:
                self.reread()
            except (UsageError, OSError) as error:
                log.error("the settings stay as they are: %s", error)
        self.meanwhile()


def serve_all(
    services: Sequence[Service], once: bool, meanwhile: Callable[[], None], last_words: float = LAST_WORDS
) -> None:
    def stop(*_: Any) -> None:  # a handler, too, and so without a lock that the main thread may hold
        notify("STOPPING=1")
        for service in services:
            service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    failures: list[BaseException] = []

    def run(service: Service) -> None:
        try:
            service.run(Ending(service, last_words) if once else None)
        except BaseException as error:
            failures.append(error)
            stop()

    watchdog = Watchdog([service.runtime for service in services])
    threads = [threading.Thread(target=run, args=(s,), daemon=True) for s in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # a join without time-out would keep signals from being handled
            thread.join(0.5)
            watchdog()
            meanwhile()
            if is_orphaned():
                stop()
    if failures:
        raise failures[0]


class Ending:
    """Decides when a service of one run may end: the run is over here, and nobody waits for anything from here.

    A node stays for LINGER seconds after that, because its own last acknowledgement may be on its way. A peer that has
    gone for good would be waited for in vain, so `last_words` seconds after the end it is left with what is on this
    disk: the node sends it when it is started again.
    """

    def __init__(self, service: Service, last_words: float = LAST_WORDS):
        self.service, self.last_words, self.since, self.quiet = service, last_words, inf, inf

    def __call__(self) -> bool:
        """Raises UsageError if this node cannot take part in the run, which then would never end here."""
        if self.service.runtime.refusal:
            raise UsageError(self.service.runtime.refusal)
        if not self.service.finished.is_set():
            return False
        now = time.monotonic()
        self.since = min(self.since, now)
        self.quiet = min(self.quiet, now) if self.service.runtime.delivered else inf
        if now > self.quiet + LINGER:
            return True
        late = now > self.since + self.last_words
        if late:
            log.warning("ending with messages that have not been acknowledged; they are kept for the next start")
        return late


def keep_memory_small() -> bool:
    """Has glibc one heap for all threads of this process from now on, whose free end goes back to the system; False:
    another C library goes on as it does.

    By default each thread that allocates has a heap of its own, and each keeps the most that was once needed there: a
    sixth of a device's memory. One thread trains, so no other waits for the heap.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(name, value) == 1 for name, value in HEAP.items())


def return_free_memory() -> None:
    """Has glibc give what lies free within its heap back to the system: what a check or a forest took, and nobody has.

    It takes less than a millisecond, and what is needed again comes back page by page.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def refuse_rereading() -> None:
    """A device at SIGHUP."""
    raise UsageError("a device's settings cannot be changed while it runs; start it again")


def serve_devices(paths: Sequence[Path], once: bool) -> None:
    keep_memory_small()
    files = [read_toml(path, DeviceFile) for path in paths]
    ports, services = [file.wire.metrics_port for file in files], [DeviceService(file) for file in files]
    return_free_memory()
    notes = [DeviceNote(service) for service in services]
    renewals = [Renewal(path, file.name, log) for path, file in zip(paths, files, strict=True)]

    def note() -> None:
        return_free_memory()
        for each in notes:
            each.write(time.monotonic())
        for renewal in renewals:
            renewal()

    try:
        serve(services, once, note, ports, reread=refuse_rereading)
    finally:
        for renewal in renewals:
            renewal.end()


def serve_hospital(path: Path, once: bool) -> None:
    from edge_sdk.nodes.daemon.hospital_service import HospitalService  # devices have no use for it
    from edge_sdk.nodes.hospital.suspensions import SuspensionLog

    service = HospitalService(path)

    suspensions = SuspensionLog(service.file.name, service.hospital.log)
    renewal = Renewal(path, service.file.name, log)

    def note() -> None:
        renewal()
        if service.runtime.holds_directory:  # and no other process, whose ledger this would be
            ledger = service.ledger()
            write_json(service.file.directory / LEDGER, ledger)
            if service.runtime.node is not None:
                suspensions.look(ledger["gauges"])

    ports = [service.file.wire.metrics_port]
    try:
        serve([service], once, note, ports, service.file.last_words, reread=service.reread)
    finally:
        renewal.end()
