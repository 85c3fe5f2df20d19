"""`auscult doctor`: is this machine ready to be a node? Each check is for a fault that has happened somewhere."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from edge_sdk.errors import AuscultError
from edge_sdk.hardware.probe import read_machine
from edge_sdk.tools.credentials.certificates import load_certificate
from edge_sdk.tools.diagnostics.access import check_access, check_login
from edge_sdk.tools.diagnostics.findings import Finding, run_check
from edge_sdk.tools.diagnostics.mask_check import check_masks
from edge_sdk.tools.diagnostics.node_files import SERVICE, Line, NodeFile, is_running, read_node_file
from edge_sdk.tools.diagnostics.papers import check_certificate, check_clock, check_signatures
from edge_sdk.tools.diagnostics.preflight import BrokerError, measure_round_trips
from edge_sdk.tools.diagnostics.reach import check_address, check_port, check_tls
from edge_sdk.tools.diagnostics.running import examine_run
from edge_sdk.tools.profiling.forked import ForkError, run_forked
from edge_sdk.wire.addresses import Broker, Tls, broker_at, conceal
from edge_sdk.wire.known_broker import PACKET, KnownBrokers
from edge_sdk.wire.options import Wire

NAGLE_STALL = 0.025
"""Seconds; a delayed acknowledgement is 40 ms, a healthy local round trip below 5."""
ROOM = 512 * 2**20
"""Bytes of the disk that should be free: what is on its way takes up to 256 MB, and SQLite and models need some too."""

Checks = list[tuple[str, Callable[[], Finding]]]

PATIENCE = 120.0
"""Seconds that the import of onnxruntime may take."""


def examine(bundle: Path | None, broker: str | None, directory: Path, tls: Tls | None = None) -> list[Finding]:
    """Runs all checks on what was named, in the order in which a failure would stop a node."""
    found = run_checks(list_machine_checks(bundle, directory))
    if broker is None:
        return [*found, Finding("broker", None, "none named (--broker mqtt://host:port)")]
    return [*found, *examine_broker(broker, tls or Tls())]


def examine_file(path: Path) -> list[Finding]:
    """Runs all checks on what a node's settings file names."""
    try:
        file = read_node_file(path)
    except AuscultError as error:
        return [Finding("settings", False, str(error), "correct the file: docs/operate.md has all settings")]
    checks = list_machine_checks(file.bundle, file.directory)
    if file.tier in ("aggregator", SERVICE):
        checks.append(("torch", check_torch))
    if (describe := file.describe_samples) is not None:
        checks.append(("data", lambda: Finding("data", True, describe())))
    checks.append(("signatures", lambda: check_signatures(file)))
    if file.masks is not None or file.secret:
        part = file.lines[0].part.name
        checks.append(("masks", partial(check_masks, file.masks, path.parent, part, file.devices)))
    papers = [paper for line in file.lines for paper in (line.wire.ca, line.wire.certificate) if paper]
    checks.append(("clock", lambda: check_clock([path, *papers])))
    checks += file.checks
    checks += [(f"certificate {name}", partial(check_further, name, wire)) for name, wire in file.others.items()]
    found = [
        Finding("settings", True, f"{path}: {file.summary}"),
        *run_checks(checks),
        *examine_run(file.directory, file.tier),
    ]
    return found + [one for line in file.lines for one in examine_line(line, file)]


def check_further(name: str, wire: Wire) -> Finding:
    """A certificate of a service beside its first one: the name is said, as there are several."""
    return replace(check_certificate(wire.tls, name), what=f"certificate {name}")


def run_checks(checks: Checks) -> list[Finding]:
    return [run_check(what, check) for what, check in checks]


def run_until_failure(checks: Checks, suffix: str = "") -> Iterator[Finding]:
    """Findings of checks of which each needs what was found before."""
    for what, check in checks:
        found = run_check(what, check)
        yield Finding(found.what + suffix, found.good, found.detail, found.remedy)
        if found.good is False:
            return


def list_machine_checks(bundle: Path | None, directory: Path) -> Checks:
    return [
        ("machine", check_machine),
        ("onnxruntime", check_onnxruntime),
        ("bundle", lambda: check_bundle(bundle)),
        ("disk", lambda: check_disk(directory)),
    ]


def examine_line(line: Line, file: NodeFile) -> Iterator[Finding]:
    """Findings about one broker of a node. A running node is left in peace: its name is used once at a broker."""
    broker, tls, part = broker_at(line.url), line.wire.tls, line.part
    checks = list_reach_checks(broker, tls, part.name)
    if is_running(file.directory):
        there = Finding(
            "login", None, f"{part.name} runs here now, and a second connection of its name would end its own"
        )
        checks.append(("login", lambda: there))
    else:
        checks.append(("login", lambda: check_login(part, broker, tls, line.wire.version)))
        checks.append(("access", lambda: check_access(part, broker, tls)))
        checks.append(("round trip", lambda: check_round_trip(line.url, tls)))
    yield from run_until_failure(checks, line.suffix)
    known = KnownBrokers(file.directory, line.wire.version, logging.getLogger("auscult.doctor")).find(conceal(line.url))
    if known.next_packet() < PACKET:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(known.learned))
        told = f"at most {known.most} bytes, as was learned on {since} by being cut off"
        yield Finding(f"packets{line.suffix}", None, told)


def list_reach_checks(broker: Broker, tls: Tls, name: str | None) -> Checks:
    checks: Checks = [
        ("address", lambda: check_address(broker)),
        ("port", lambda: check_port(broker)),
        ("tls", lambda: check_tls(broker, tls)),
    ]
    return checks + ([("certificate", lambda: check_certificate(tls, name))] if broker.tls else [])


def examine_broker(url: str, tls: Tls) -> Iterator[Finding]:
    """Findings about a broker that was named on the command line."""
    try:
        broker = broker_at(url)
    except AuscultError as error:
        yield Finding("broker", False, str(error))
        return
    for found in run_until_failure(list_reach_checks(broker, tls, None)):
        yield found
        if found.good is False:
            yield Finding("broker", False, found.detail)
            return
    yield run_check("broker", lambda: check_broker(url, tls))


def check_machine() -> Finding:
    m = read_machine()
    detail = f"{m.model}, {m.architecture}, {m.cores} cores, {m.memory_mb} MB; Python {sys.version.split()[0]}"
    if sys.maxsize <= 2**32:
        return Finding("machine", False, f"{detail}: onnxruntime has no 32-bit wheels, install a 64-bit system")
    return Finding("machine", True, detail)


def check_onnxruntime() -> Finding:
    """Imports onnxruntime in a process of its own: version 1.21.0 crashes on a Raspberry Pi 4."""
    try:
        return Finding("onnxruntime", True, run_forked(import_onnxruntime, patience=PATIENCE))
    except ForkError as error:
        return Finding("onnxruntime", False, f"cannot be imported: {error}")


def import_onnxruntime() -> str:
    """Imports it by name, as edge_sdk/model/sessions/onnx_session.py is who works with it, and returns its version."""
    return str(importlib.import_module("onnxruntime").__version__)


def check_bundle(path: Path | None) -> Finding:
    if path is None:
        return Finding("bundle", None, "none named (--bundle FILE)")
    from edge_sdk.model.model import Model  # here, so that a broken onnxruntime is a finding and not a crash

    began = time.perf_counter()
    model = Model(path)
    took = time.perf_counter() - began
    used = model.choice.describe() + (f" ({model.fallback})" if model.fallback else "")
    detail = f"{path.name}: {model.layout.size} parameters, golden vectors agree, {took:.2f} s, {used}"
    return Finding("bundle", True, detail)


def check_disk(directory: Path) -> Finding:
    """Writes a file, measures how long a durable write takes, and looks at the room that is left."""
    made = next(path for path in (directory, *directory.parents) if path.exists())
    with tempfile.NamedTemporaryFile(dir=made) as file:
        began = time.perf_counter()
        for _ in range(5):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        took = (time.perf_counter() - began) / 5
    free = shutil.disk_usage(made).free
    detail = f"{directory} is writable, {1000 * took:.1f} ms for a durable write"
    if free < ROOM:
        return Finding("disk", False, f"{detail}; {free / 1e6:.0f} MB are free", f"make room for {ROOM / 1e6:.0f} MB")
    if made == directory and directory.stat().st_uid != os.geteuid():
        return Finding("disk", False, f"{directory} belongs to another user", "run the doctor as the node's user")
    return Finding("disk", True, f"{detail}, {free / 1e9:.1f} GB free")


def check_torch() -> Finding:
    if find_spec("torch") is None:
        return Finding(
            "torch", False, "not installed, and the aggregator needs it", "pip install 'auscult[aggregator]'"
        )
    return Finding("torch", True, "installed")


def check_broker(url: str, tls: Tls) -> Finding:
    """Measures round trips. With a certificate its holder's name is used, which the broker wants as client id."""
    name = None if tls.certificate is None else load_certificate(tls.certificate).name
    times = sorted(measure_round_trips(url, 15, tls, name))
    middle = times[len(times) // 2]
    detail = f"{conceal(url)}: median round trip {1000 * middle:.1f} ms"
    if middle > NAGLE_STALL and is_local(url):
        stall = f"{detail}; a stall of 40 ms is Nagle's: put `set_tcp_nodelay true` in mosquitto.conf"
        return Finding("broker", False, stall, "put that line there, and restart the broker")
    return Finding("broker", True, detail)


def check_round_trip(url: str, tls: Tls) -> Finding:
    """Measures as `check_broker` does, at a broker whose access list may leave no topic for it: that is no fault."""
    try:
        return replace(check_broker(url, tls), what="round trip")
    except BrokerError as error:
        return Finding("round trip", None, f"not measured: {error}")


def is_local(url: str) -> bool:
    """Is the broker of this URL on this machine?"""
    try:
        return socket.gethostbyname(broker_at(url).host).startswith("127.")
    except OSError:
        return False
