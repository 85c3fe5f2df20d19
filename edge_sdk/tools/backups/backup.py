"""A node's folder in one file, made while the node runs or not.

The file is a tar archive. Its first member, `manifest.json`, names all the others with size, mode and SHA-256; the
stores in it are whole and consistent (`delivery/storage/snapshot.py`). It holds what the folder holds, personal models
too, so it is for its owner alone, as the folder is.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from edge_sdk.atomic import ASIDE, LOCK, replace_file, sync_to_disk
from edge_sdk.delivery.storage.snapshot import copy_alone, copy_store, count_events
from edge_sdk.errors import UsageError
from edge_sdk.tools.backups.sealed_file import Sealer

FORMAT = 1
FULL = (errno.ENOSPC, errno.EDQUOT)
MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
STORE, SAMPLES = ".db", "samples/samples.db"
OF_STORES = (".db-wal", ".db-shm", ".db-writing", ".bodies")
STAGED = ".backup-"
"""How names of folders begin in which encrypted backups are put together; they end with ASIDE."""
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
LEFT_OUT = (ASIDE, ".damaged")
"""Ends of the names of what is left out: files that are just being written, and stores that were put aside."""


@dataclass(frozen=True)
class SavedFile:
    """One file of a backup. `path`: within the folder, with slashes."""

    path: str
    size: int
    mode: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself.

    Attributes:
        node: name of the folder that it was made of.
        made: time, UTC, ISO 8601.
    """

    node: str
    made: str
    members: tuple[SavedFile, ...]


def back_up(folder: Path, file: Path, passphrase: str = "") -> Manifest:
    """Write a backup of a node's folder, which stays as it is. `passphrase`: encrypts it; "": it is not encrypted.

    Raises:
        UsageError: it is no node's folder, or the file is there already, or cannot be written.
        StoreDamaged: a store is damaged.
    """
    if not (folder / LOCK).exists():
        raise UsageError(f"{folder} is no folder of a node: expected one in which a node has run")
    if file.exists():
        raise UsageError(f"{file} is there already: a backup is never written over another")
    with staged_for(file, folder if passphrase else None) as staged:
        stage(folder, staged)
        manifest = describe(folder.resolve().name, staged)
        with replace_file(file) as written:
            write_archive(written, staged, manifest, passphrase)
    sync_to_disk(file, file.absolute().parent)
    return manifest


@contextmanager
def staged_for(file: Path, folder: Path | None = None) -> Iterator[Path]:
    """A folder for what goes into a backup, which is removed at the end: beside the backup, or in the `folder` that is
    backed up, where a copy is as safe as what it is of.

    Raises:
        UsageError: nothing can be put there, or the disk is full.
    """
    beside = file.absolute().parent
    if not beside.is_dir():
        raise UsageError(f"{file}: there is no folder {beside}")
    try:
        if folder is not None:
            remove_left(folder)
        prefix = STAGED if folder is not None else f".{file.name}."
        with tempfile.TemporaryDirectory(prefix=prefix, suffix=ASIDE, dir=folder or beside) as name, held(Path(name)):
            yield Path(name)
    except OSError as error:
        if error.errno in FULL:
            raise UsageError(f"{file}: the disk is full: no backup was made") from error
        if error.errno in READ_ONLY and folder is not None:
            raise UsageError(
                f"{folder}: an encrypted backup is put together there, and nothing can be written"
            ) from error
        raise


@contextmanager
def held(staged: Path) -> Iterator[None]:
    """Keeps a folder for as long as this process lives: see `remove_left`."""
    handle = os.open(staged, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def remove_left(folder: Path) -> None:
    """Removes what backups have left in a folder whose processes were killed."""
    for path in folder.glob(f"{STAGED}*{ASIDE}"):
        with suppress(OSError), held(path):  # which another process may hold
            shutil.rmtree(path)


def stage(folder: Path, staged: Path) -> None:
    """Copy what belongs into a backup: the stores first, then all the rest, which may only be newer than they are."""
    stores = sorted(folder.glob(f"*{STORE}"))
    for store in list_stores(folder):
        target = place_for(store, folder, staged)
        if is_of_samples(store, folder):
            copy_alone(store, target)
        else:
            copy_store(store, target)
    for path in list_files(folder):
        target = place_for(path, folder, staged)
        try:
            shutil.copy2(path, target)
        except FileNotFoundError:
            continue  # it was replaced, or is done with, since it was listed
    newest = {store.stem: count_events(staged / store.name) for store in stores}
    if (staged / METRICS).exists() and stores:
        cut_metrics(staged / METRICS, newest)


def place_for(path: Path, folder: Path, staged: Path) -> Path:
    """Where a file of the folder goes; what it lies in is there."""
    target = staged / path.relative_to(folder)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return target


def list_files(folder: Path) -> Iterator[Path]:
    """All files of a folder but those of its stores, its lock, links, and what is left out."""
    return (path for path in walk(folder) if path.name != LOCK and not path.name.endswith((STORE, *OF_STORES)))


def list_stores(folder: Path) -> Iterator[Path]:
    """The stores of a folder: of its runs, of those in lanes beside, and of what the device has observed."""
    return (path for path in walk(folder) if path.name.endswith(STORE))


def is_of_samples(store: Path, folder: Path) -> bool:
    """Is it the store of what a device has observed? It has no peers that know more of it."""
    return store.relative_to(folder).as_posix() == SAMPLES


def walk(folder: Path) -> Iterator[Path]:
    """All files of a folder but links, what is left out, and the bodies of stores, which are copied with these."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name.endswith(LEFT_OUT):
            continue
        if path.is_dir() and not path.name.endswith(OF_STORES):
            yield from walk(path)
        elif path.is_file():
            yield path


def cut_metrics(path: Path, newest: Mapping[str, int]) -> None:
    """Leave out the lines of events that the stores do not have yet: their numbers will be those of other events.

    Args:
        newest: run -> number of the latest event in its store. Runs without a store are over. Lines that name no run
            are of an older version.
    """
    limits = {"": max(newest.values()), **newest}
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    found = [json.loads(line) for line in lines]
    kept = [
        line for line, one in zip(lines, found, strict=True) if one["number"] <= limits.get(one.get("run", ""), inf)
    ]
    path.write_text("".join(kept))


def describe(node: str, staged: Path) -> Manifest:
    files = sorted(path for path in staged.rglob("*") if path.is_file())
    return Manifest(node, datetime.now(UTC).isoformat(timespec="seconds"), tuple(member_of(p, staged) for p in files))


def member_of(path: Path, staged: Path) -> SavedFile:
    found = path.stat()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SavedFile(path.relative_to(staged).as_posix(), found.st_size, stat.S_IMODE(found.st_mode), digest)


def write_archive(written: BinaryIO, staged: Path, manifest: Manifest, passphrase: str = "") -> None:
    if not passphrase:
        with tarfile.open(fileobj=written, mode="w") as archive:
            add_files(archive, staged, manifest)
        return
    with (
        closing(Sealer(written, passphrase)) as sealer,
        tarfile.open(fileobj=cast(BinaryIO, sealer), mode="w|") as archive,
    ):
        add_files(archive, staged, manifest)


def add_files(archive: tarfile.TarFile, staged: Path, manifest: Manifest) -> None:
    text = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1).encode()
    add_file(archive, SavedFile(MANIFEST, len(text), 0o600, ""), io.BytesIO(text))
    for member in manifest.members:
        with (staged / member.path).open("rb") as file:
            add_file(archive, member, file)


def add_file(archive: tarfile.TarFile, member: SavedFile, content: IO[bytes]) -> None:
    info = tarfile.TarInfo(member.path)
    info.size, info.mode = member.size, member.mode
    archive.addfile(info, content)


def checked_path(path: str) -> PurePosixPath:
    """A path that stays within the folder. UsageError: it does not."""
    found = PurePosixPath(path)
    if not path or found.is_absolute() or ".." in found.parts or "\0" in path or str(found) != path:
        raise UsageError(f"it names a file {path!r}, which would lie outside the folder")
    return found


def is_empty(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not os.listdir(folder))
