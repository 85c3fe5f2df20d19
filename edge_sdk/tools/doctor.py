"""`auscult doctor`: is this machine ready to be a node? Each check is for a fault that has happened somewhere."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.errors import AuscultError
from edge_sdk.tools.forked import ForkError, run_forked
from hardware.probe import read_machine

NAGLE_STALL = 0.025
"""Seconds; a delayed acknowledgement is 40 ms, a healthy local round trip below 5."""

PATIENCE = 120.0
"""Seconds that the import of onnxruntime may take."""


@dataclass(frozen=True)
class Finding:
    """The answer of one check.

    Attributes:
        what: name of the check.
        good: False: a node would fail here. None: there was nothing to check.
        detail: for people.
    """

    what: str
    good: bool | None
    detail: str


def examine(bundle: Path | None, broker: str | None, directory: Path) -> list[Finding]:
    """Runs all checks, in the order in which a failure would stop a node."""
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("machine", check_machine),
        ("onnxruntime", check_onnxruntime),
        ("bundle", lambda: check_bundle(bundle)),
        ("disk", lambda: check_disk(directory)),
        ("broker", lambda: check_broker(broker)),
    ]
    return [run_check(what, check) for what, check in checks]


def run_check(what: str, check: Callable[[], Finding]) -> Finding:
    """Runs one check; an error that it raises is a finding."""
    try:
        return check()
    except (AuscultError, OSError) as error:
        return Finding(what, False, str(error))


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
    """Imports it by name, as edge_sdk/model/onnx_session.py is who works with it, and returns its version."""
    return str(importlib.import_module("onnxruntime").__version__)


def check_bundle(path: Path | None) -> Finding:
    if path is None:
        return Finding("bundle", None, "none named (--bundle FILE)")
    from edge_sdk.model.model import Model  # here, so that a broken onnxruntime is a finding and not a crash

    began = time.perf_counter()
    model = Model(path)
    took = time.perf_counter() - began
    return Finding("bundle", True, f"{path.name}: {model.layout.size} parameters, golden vectors agree, {took:.2f} s")


def check_disk(directory: Path) -> Finding:
    """Writes a file, and measures how long a durable write takes."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        began = time.perf_counter()
        for _ in range(5):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        took = (time.perf_counter() - began) / 5
    return Finding("disk", True, f"{directory} is writable, {1000 * took:.1f} ms for a durable write")


def check_broker(url: str | None) -> Finding:
    if url is None:
        return Finding("broker", None, "none named (--broker mqtt://host:port)")
    from edge_sdk.tools.preflight import measure_round_trips

    times = sorted(measure_round_trips(url, count=15))
    middle = times[len(times) // 2]
    detail = f"{url}: median round trip {1000 * middle:.1f} ms"
    if middle > NAGLE_STALL and is_local(url):
        return Finding(
            "broker", False, f"{detail}; a stall of 40 ms is Nagle's: put `set_tcp_nodelay true` in mosquitto.conf"
        )
    return Finding("broker", True, detail)


def is_local(url: str) -> bool:
    """Is the broker of this URL on this machine?"""
    host = url.split("://", 1)[-1].rsplit("@", 1)[-1].split(":")[0]
    try:
        return socket.gethostbyname(host).startswith("127.")
    except OSError:
        return False


def print_findings(findings: list[Finding]) -> None:
    """Prints one line for each finding."""
    marks = {True: "ok  ", False: "FAIL", None: "-   "}
    for f in findings:
        print(f"{marks[f.good]} {f.what:12} {f.detail}")
