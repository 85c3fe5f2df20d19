"""A node's directory: which run it works in, a store for each run, and a lock: two processes must not share them."""

from __future__ import annotations

import dataclasses
import fcntl
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import msgpack  # type: ignore[import-untyped]

from edge_sdk.atomic import LOCK, make_private_directory, sweep_aside, write_text
from edge_sdk.contract.run import ID, Run
from edge_sdk.delivery.storage.checksums import StoreDamaged
from edge_sdk.delivery.storage.store import Store
from edge_sdk.errors import PeerError, UsageError, say_reason
from edge_sdk.wire.codec.bodies import Fault
from edge_sdk.wire.frames import Buffer

LARGEST_RUN = 2**20  # bytes of a run's description
DEEPEST_RUN = 32  # of tables and lists within each other in it; it is walked through by functions that call themselves
PATIENCE = 5.0  # seconds for which a process that is just ending may still hold the lock


LATER = ("settle", "augment", "measured", "quorum", "robust", "uploads", "signed", "devices")
"""Fields of a run that older versions do not write; left out while they say nothing, so that bytes stay equal."""


def encode_run(run: Run) -> bytes:
    """A run's description as bytes, as it is saved and as it goes down with a hello.

    Raises:
        UsageError: nobody could read it again: it is too large, or something in it is no number, text or table.
    """
    fields = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    fields = {name: value for name, value in fields.items() if value or name not in LATER}
    try:
        packed: bytes = msgpack.packb(fields)
        decode_run(packed)
    except (PeerError, TypeError, ValueError, OverflowError) as e:
        raise UsageError(f"run {run.id!r} cannot be written down: {e}") from None
    return packed


def decode_run(data: Buffer) -> Run:
    """Read a run's description. Fields that this version does not know are left out.

    Raises:
        PeerError: it is none.
    """
    from edge_sdk.wire.codec.codec import unpack  # with a run

    if len(data) > LARGEST_RUN:
        raise PeerError(f"run: {len(data)} bytes, at most {LARGEST_RUN}")
    try:
        fields = unpack(memoryview(data))
        if type(fields) is not dict:
            raise PeerError(f"run is {type(fields).__name__}, expected a table")
        check_depth(fields)
        known = {f.name for f in dataclasses.fields(Run)}
        return Run(**{name: value for name, value in fields.items() if name in known})
    except (UsageError, TypeError, Fault) as e:
        raise PeerError(f"run: {e}") from None


def check_depth(fields: Mapping[str, Any]) -> None:
    """Raises PeerError for tables and lists too deep within each other."""
    level: list[Any] = [fields]
    for _ in range(DEEPEST_RUN):
        inner = [value.values() if isinstance(value, Mapping) else value for value in level]
        level = [item for items in inner for item in items if isinstance(item, (Mapping, list, tuple))]
        if not level:
            return
    raise PeerError(f"run: tables and lists more than {DEEPEST_RUN} deep within each other")


def is_same_training(a: Run, b: Run) -> bool:
    """Two descriptions differ at most in how long is waited, which may be changed while a run goes on, and in their
    signature, which an aggregator makes anew when it is started again."""
    alike = dataclasses.replace(a, deadline=b.deadline, measured=b.measured, quorum=b.quorum, signed=b.signed)
    return as_decoded(alike) == as_decoded(b)


def as_decoded(run: Run) -> dict[str, Any]:
    """The fields of a run as they come back from its encoding, where lists are tuples."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(v) for key, v in value.items()}
        return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value

    return {field.name: plain(getattr(run, field.name)) for field in dataclasses.fields(run)}


class NodeDirectory:
    """A node's directory, locked while it is open.

    Raises:
        UsageError: another process works there.
    """

    def __init__(self, directory: Path, durability: str):
        self.directory, self.durability = directory, durability
        make_private_directory(directory)
        self.lock = lock_file(directory / LOCK)
        sweep_aside(directory)

    def current_run(self) -> Run | None:
        """The run that this node worked in last; None: it never was in one.

        Raises:
            StoreDamaged: what it has saved of that cannot be read.
        """
        id = self.current_id()
        if id is None:
            return None
        store = self.make_store(id)
        try:
            return self.load_run(store)
        finally:
            store.close()

    def load_run(self, store: Store) -> Run | None:
        """The run that a store was made for; None: nobody has said so yet.

        Raises:
            StoreDamaged: what it says is no run.
        """
        saved = store.get_value("run")
        try:
            return None if saved is None else decode_run(saved)
        except PeerError as e:
            raise StoreDamaged(f"{store.path}: {e}") from None

    def current_id(self) -> str | None:
        """Id of the run that this node worked in last, if that can be read."""
        note = self.directory / "current"
        found = note.read_text(errors="replace").strip() if note.exists() else ""
        return found if ID.fullmatch(found) else None

    def open_store(self, run: Run) -> Store:
        """Open the store of a run, which is the current one from now on.

        Raises:
            UsageError: a run of that name, but with other settings, was begun here.
            StoreDamaged: what it has saved is not what was written.
        """
        store = self.make_store(run.id)
        try:
            self.remember_run(run, store)
        except BaseException:
            store.close()  # or it would stay locked for whoever tries again
            raise
        return store

    def remember_run(self, run: Run, store: Store) -> None:
        """Save which run this store belongs to, and that it is the current one."""
        saved, encoded = self.load_run(store), encode_run(run)
        if saved is not None and not is_same_training(saved, run):
            raise UsageError(
                f"run {run.id!r} was begun in {self.directory} with other settings; give the new one another id"
            )
        store.put_value("run", encoded)
        write_text(self.directory / "current", run.id + "\n")

    def put_aside(self, run: str) -> Path:
        """Move the store of a run out of the way, for a person to look at, in place of one that was moved before."""
        aside = self.directory / f"{run}.damaged"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        for ending in (".db", ".db-wal", ".db-shm", ".db-writing", ".bodies"):
            path = self.directory / f"{run}{ending}"
            if path.exists():
                path.rename(aside / path.name)
        return aside

    def make_store(self, run: str) -> Store:
        return Store(self.directory / f"{run}.db", self.durability)

    def close(self) -> None:
        self.lock.close()


def lock_file(path: Path) -> IO[str]:
    """Open and lock a file, for as long as it stays open. The system unlocks it when a process is killed.

    Raises:
        UsageError: another process has it, and still has it after PATIENCE seconds.
    """
    path.touch(mode=0o600)
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


def own_directory(directory: Path) -> IO[str]:
    """The locked file of a directory, which is made where there is none; `disown` lets it go.

    Raises:
        UsageError: another process works there, or another part of this one, or nothing can be written there.
    """
    try:
        make_private_directory(directory)
        return lock_file(directory / LOCK)
    except OSError as error:
        raise UsageError(f"{directory}: nothing can be kept there: {say_reason(error)}") from error


def disown(file: IO[str]) -> None:
    """Unlock a directory, also where a fork still has its file open."""
    if not file.closed:
        fcntl.flock(file, fcntl.LOCK_UN)
        file.close()
