"""A PostgreSQL server for tests, from what is installed: `initdb` on the path, or where Debian keeps it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.delivery.fleet import eventually

DEBIAN = Path("/usr/lib/postgresql")


def find_program(name: str) -> str | None:
    """A program of PostgreSQL; of several versions the newest."""
    found = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]), reverse=True)
    return shutil.which(name) or (str(found[0]) if found else None)


def is_installed() -> bool:
    return find_program("initdb") is not None


def find_user() -> dict[str, Any]:
    """Whom the server runs as: it refuses root. As options of subprocess."""
    if os.geteuid():
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    name = "postgres" if "postgres" in names else "nobody"
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


class Server:
    """A server that listens on a socket in its own folder, and never waits for a disk."""

    def __init__(self, folder: Path):
        self.folder, self.user, self.made = folder, find_user(), 0
        self.process: subprocess.Popen[bytes] | None = None
        if self.user:
            shutil.chown(folder, self.user["user"], self.user["group"])
        words = ["-D", f"{folder}/data", "-A", "trust", "-U", "auscult", "--no-sync", "--no-locale", "-E", "UTF8"]
        subprocess.run([find_program("initdb") or "", *words], check=True, capture_output=True, cwd="/", **self.user)

    def start(self) -> None:
        where = ["-D", f"{self.folder}/data", "-k", str(self.folder), "-c", "listen_addresses="]
        where += ["-F", "-c", "shared_buffers=4MB", "-c", "max_wal_senders=0", "-c", "wal_level=minimal"]
        with (self.folder / "log").open("ab") as log:
            command = [find_program("postgres") or "", *where]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self.user)
        eventually(self.answers)

    def answers(self) -> bool:
        import psycopg

        assert self.process is not None and self.process.poll() is None, (self.folder / "log").read_text()
        try:
            psycopg.connect(host=str(self.folder), user="auscult", dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def make_database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self.made += 1
        with psycopg.connect(host=str(self.folder), user="auscult", dbname="postgres", autocommit=True) as db:
            db.execute(f"CREATE DATABASE service_{self.made} STRATEGY file_copy".encode())
        return f"postgresql+psycopg://auscult@/service_{self.made}?host={self.folder}"


@contextmanager
def running() -> Iterator[Server]:
    """A server in a folder of its own, which its user may enter."""
    with tempfile.TemporaryDirectory(prefix="auscult-pg-", dir="/tmp") as name:
        server = Server(Path(name))
        try:
            server.start()
            yield server
        finally:
            server.stop()
