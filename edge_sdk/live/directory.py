"""The files of a node: which run it works in, a store for each run, and a lock: two processes must not share them."""

from __future__ import annotations

import dataclasses
import fcntl
import time
from pathlib import Path
from typing import IO

import msgpack  # type: ignore[import-untyped]

from edge_sdk.atomic import write_text
from edge_sdk.contract.run import Run
from edge_sdk.delivery.store import Store
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.wire.frames import Buffer

PATIENCE = 5.0  # seconds that a process which is just ending may hold the lock


def encode_run(run: Run) -> bytes:
    fields = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    packed: bytes = msgpack.packb(fields)
    return packed


def decode_run(data: Buffer) -> Run:
    """A run from a peer.

    Raises:
        PeerError: it is none.
    """
    try:
        fields = msgpack.unpackb(data)
        if type(fields) is not dict:
            raise PeerError(f"run is {type(fields).__name__}, expected a table")
        known = {f.name for f in dataclasses.fields(Run)}
        fields = {name: value for name, value in fields.items() if name in known}
        return Run(**fields | {"classes": tuple(fields.get("classes", ()))})
    except (UsageError, TypeError, ValueError, msgpack.UnpackException, RecursionError) as e:
        raise PeerError(f"run: {e}") from None


class Desk:
    """A node's directory.

    Raises:
        UsageError: another process works there.
    """

    def __init__(self, directory: Path, durability: str):
        self.directory, self.durability = directory, durability
        directory.mkdir(parents=True, exist_ok=True)
        self.lock = locked(directory / "lock")

    def current(self) -> Run | None:
        """The run that this node worked in last."""
        note = self.directory / "current"
        if not note.exists():
            return None
        store = self.store(note.read_text().strip())
        try:
            saved = store.get("run")
            return None if saved is None else decode_run(saved)
        finally:
            store.close()

    def open(self, run: Run) -> Store:
        """The store of a run, from now on the current one.

        Raises:
            UsageError: a run of that name, but with other settings, was begun here.
        """
        store = self.store(run.id)
        try:
            self.note(run, store)
        except BaseException:
            store.close()  # or it would stay locked for whoever tries again
            raise
        return store

    def note(self, run: Run, store: Store) -> None:
        """From now on this run is the current one, and this is its store."""
        saved, encoded = store.get("run"), encode_run(run)
        if saved is not None and saved != encoded:
            raise UsageError(
                f"run {run.id!r} was begun in {self.directory} with other settings; give the new one another id"
            )
        store.put("run", encoded)
        write_text(self.directory / "current", run.id + "\n")

    def store(self, run: str) -> Store:
        return Store(self.directory / f"{run}.db", self.durability)

    def close(self) -> None:
        self.lock.close()


def locked(path: Path) -> IO[str]:
    """The file, locked for as long as it is open. A process that is killed lets go."""
    file, end = path.open("w"), time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() > end:
                file.close()
                raise UsageError(f"{path.parent}: another process works in this directory") from None
            time.sleep(0.05)
