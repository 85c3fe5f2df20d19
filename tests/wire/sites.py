"""A broker with exactly what `auscult provision` has written for it, and who goes there."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from edge_sdk.replay.nodes.broker import Mosquitto, find_free_port
from edge_sdk.tools.credentials.provision import Provisioner, provision
from edge_sdk.tools.credentials.site import Site
from edge_sdk.wire.addresses import Tls, broker_at
from edge_sdk.wire.mqtt import Connection
from tests.delivery.fleet import eventually

SECRET = "correct horse"


def provisioner(files: Path) -> Provisioner:
    return Provisioner(files, lambda new: SECRET)


def make_site(files: Path, hospital: str | None = "h", devices: tuple[str, ...] = ("a", "b"), **more: object) -> None:
    """Provision a hospital's broker on this machine, or an aggregator's (`hospital=None`)."""
    site = Site(host="127.0.0.1", hospital=hospital, devices=devices, **more)  # type: ignore[arg-type]
    provision(files, site, SECRET)


@cache
def made_once(make: Callable[..., None], *given: Any, **more: Any) -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    make(Path(folder.name), *given, **more)
    return folder


def copy_site(files: Path, *given: Any, make: Callable[..., None] = make_site, **more: Any) -> None:
    """What `make(files, ...)` writes, with the keys of the other copies of this process: to draw them takes longest."""
    made = made_once(make, *given, **more).name
    shutil.copytree(made, files, dirs_exist_ok=True)
    for path in files.rglob("*"):
        if path.is_file() and made in (text := path.read_text()):
            path.write_text(text.replace(made, str(files)))


class Provisioned(Mosquitto):
    """mosquitto with the configuration that was made for it, on a free port of this machine."""

    def __init__(self, files: Path):
        super().__init__(find_free_port())
        self.files = files

    def command(self, port: int) -> list[str]:
        config = (self.files / "broker" / "mosquitto.conf").read_text()
        config = config.replace("listener 8883", f"listener {port} 127.0.0.1")
        assert f"listener {port}" in config
        # the directories of tests are closed to the user that mosquitto would become
        (self.directory / "tls.conf").write_text(f"user root\nlog_dest none\n{config}")
        return [*list(super().command(port))[:-1], str(self.directory / "tls.conf")]

    @property
    def tls_url(self) -> str:
        return f"mqtts://127.0.0.1:{self.port}"

    def reload(self) -> None:
        """What `systemctl reload mosquitto` does. The broker is the child of the process that watches over it."""
        assert self.process is not None
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=True)
        subprocess.run(["kill", f"-{int(signal.SIGHUP)}", found.stdout.strip()], check=True)


@dataclass
class Papers:
    """What was handed out for the nodes of one site, and where its broker is."""

    files: Path
    url: str

    @property
    def ca(self) -> Path:
        return self.files / "broker" / "ca.crt"

    def tls(self, name: str) -> Tls:
        folder = self.files / "nodes" / name
        return Tls(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")

    def connection(self, name: str, tls: Tls, topic: str = "nothing") -> Connection:
        return Connection(broker_at(self.url), name, [topic], tls=tls.context())


def outcome(connection: Connection) -> str:
    """The word up, or why not."""
    try:
        connection.open()
    except OSError as e:
        return str(e)

    def settled() -> bool:
        connection.read()
        if not connection.lost:
            connection.write()
        return connection.up or bool(connection.lost)

    eventually(settled)
    return "up" if connection.up else connection.lost
