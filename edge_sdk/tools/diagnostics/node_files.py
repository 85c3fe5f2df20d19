"""A node's own settings file, as far as the doctor looks at it: which tier, which brokers, which part there."""

from __future__ import annotations

import fcntl
import importlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.atomic import LOCK
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys, HospitalKeys
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.settings_files import AggregatorFile, HospitalFile
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys
from edge_sdk.tools.diagnostics.access import Part
from edge_sdk.tools.diagnostics.findings import Finding
from edge_sdk.wire.options import Wire

SERVICE = "service"


@dataclass(frozen=True)
class Line:
    """One broker of a node. `suffix`: what tells its findings from those of the other broker."""

    url: str
    wire: Wire
    part: Part
    suffix: str = ""


@dataclass(frozen=True)
class NodeFile:
    """A settings file that was read.

    Attributes:
        tier: "device", "hospital", "aggregator" or SERVICE.
        summary: for people.
        lines: the brokers to which the node goes.
        key: what it trusts runs by or, of an aggregator, signs them with; None: nothing.
        masks: its keys for secret sums; None: it has none.
        secret: of an aggregator: it opens the sums of its run, which are secret.
        devices: of an aggregator: behind all its hospitals.
        describe_samples: of a device: reads its samples, see `DeviceFile`; None: of another tier.
        others: of a service: name -> its further certificates, those of its console and of its lanes.
        checks: of a service: name and check of what only a service has.
    """

    path: Path
    tier: str
    summary: str
    bundle: Path
    directory: Path
    lines: tuple[Line, ...]
    key: Path | None = None
    masks: DeviceKeys | HospitalKeys | AggregatorKeys | None = None
    secret: bool = False
    devices: int = 0
    describe_samples: Callable[[], str] | None = None
    others: Mapping[str, Wire] = field(default_factory=dict)
    checks: Sequence[tuple[str, Callable[[], Finding]]] = ()


def read_node_file(path: Path) -> NodeFile:
    """Read the settings file of any tier.

    Raises:
        UsageError: it cannot be read, or anything in it is wrong.
    """
    try:
        keys = {*tomllib.loads(path.read_text(encoding="utf-8"))}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        keys = {"hospital"}  # read_toml says what is wrong
    if keys & {"classes", "bundles"}:
        return of_service(path)
    if keys & {"run", "hospitals"}:
        return of_aggregator(path, read_toml(path, AggregatorFile))
    if "aggregator" in keys or "devices" in keys:
        return of_hospital(path, read_toml(path, HospitalFile))
    return of_device(path, read_toml(path, DeviceFile))


def of_device(path: Path, file: DeviceFile) -> NodeFile:
    line = Line(file.broker, file.wire, Part(file.name, file.hospital, False))
    said = f"device {file.name} of hospital {file.hospital}"
    about, read = (file.trusted_key, file.masks), file.describe_samples
    return NodeFile(path, "device", said, file.bundle, file.directory, (line,), *about, describe_samples=read)


def of_hospital(path: Path, file: HospitalFile) -> NodeFile:
    said = f"hospital {file.name} of aggregator {file.aggregator}, with {len(file.devices)} devices"
    if file.upstream is None or file.upstream == file.broker:
        lines: tuple[Line, ...] = (Line(file.broker, file.wire, Part(file.name, file.aggregator, True)),)
    else:
        above = Part(file.name, file.aggregator, False)
        lines = (
            Line(file.broker, file.wire, Part(file.name, None, True)),
            Line(file.upstream, file.upstream_wire or file.wire, above, " upstream"),
        )
    return NodeFile(path, "hospital", said, file.bundle, file.directory, lines, file.trusted_key, file.masks)


def of_aggregator(path: Path, file: AggregatorFile) -> NodeFile:
    line = Line(file.broker, file.wire, Part(file.name, None, True))
    said = f"aggregator {file.name} of {len(file.hospitals)} hospitals, run {file.run.id}"
    secret, devices = file.run.uploads.get("secret") is True, sum(file.hospitals.values())
    about = (file.signing_key, file.masks, secret, devices)
    return NodeFile(path, "aggregator", said, file.bundle, file.directory, (line,), *about)


def of_service(path: Path) -> NodeFile:
    """The file of a service, which its own package reads: it is not on the machines of devices."""
    settings = importlib.import_module("aggregator.service.administration.settings_file")
    file: Any = read_toml(path.resolve(), settings.FleetFile)
    if not file.bundles:
        raise UsageError(f"{path}: bundles = []: expected at least one, which runs train")
    line = Line(file.broker, file.wire, Part(file.name, None, True))
    many = "1 bundle" if len(file.bundles) == 1 else f"{len(file.bundles)} bundles"
    key = file.directory / "signing.key"
    console = {} if file.console_wire is None else {f"{file.name}-{settings.CONSOLE}": file.console_wire}
    about = (f"service {file.name} with {many}", file.bundles[0], file.directory, (line,))
    papers = (key if key.exists() else None, file.masks)
    checks = importlib.import_module("aggregator.service.administration.check_up").list_checks(file)
    return NodeFile(path, SERVICE, *about, *papers, others=console | file.lanes, checks=checks)


def is_running(directory: Path) -> bool:
    """Does a process work in a node's directory now?"""
    try:
        with (directory / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except PermissionError:
        raise UsageError(f"{directory} belongs to another user: check it as the user that runs the node") from None
