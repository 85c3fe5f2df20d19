"""Puts a backup back into an empty folder, after everything in it was checked.

What is put back is the past. Since then the node may have sent and heard more, so its stores become other disks, and
its peers are told by that to ask anew (`delivery/storage/snapshot.py: make_another_disk`). So nothing counts twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, cast

from edge_sdk.atomic import ASIDE, sync_to_disk
from edge_sdk.delivery.storage.snapshot import make_another_disk
from edge_sdk.errors import UsageError
from edge_sdk.tools.backups.backup import (
    FORMAT,
    MANIFEST,
    Manifest,
    SavedFile,
    checked_path,
    is_empty,
    is_of_samples,
    list_stores,
)
from edge_sdk.tools.backups.sealed_file import Opener, is_sealed

LARGEST_MANIFEST = 2**24  # bytes
PIECE = 2**20  # bytes that are read at once


def restore(file: Path, folder: Path, passphrase: str = "") -> Manifest:
    """Put a backup into a folder that is not there yet, or is empty. It is there as a whole, or not at all.

    Raises:
        UsageError: the folder has something in it, or the file is no backup or is damaged.
        StoreDamaged: a store in it is damaged.
    """
    with staged_beside(folder) as staged:
        manifest = unpack(file, staged, passphrase)
        for store in list_stores(staged):
            if not is_of_samples(store, staged):
                make_another_disk(store)
        os.sync()
        staged.rename(folder)
    return manifest


@contextmanager
def staged_beside(folder: Path) -> Iterator[Path]:
    """An empty directory beside `folder`, which the caller fills and renames to it; deleted if something goes wrong.

    Raises:
        UsageError: there is something in `folder` already.
    """
    if not is_empty(folder):
        raise UsageError(f"{folder} is not empty: a backup is never put over what is there; move that away first")
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged = folder.with_name(f".{folder.name}.{token_hex(4)}{ASIDE}")
    staged.mkdir(mode=0o700)
    try:
        yield staged
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    sync_to_disk(folder, folder.parent)


@contextmanager
def opened_archive(file: Path, passphrase: str) -> Iterator[tarfile.TarFile]:
    """A backup that is read from its beginning to its end.

    Raises:
        UsageError: it is encrypted, and there is no passphrase.
    """
    if not is_sealed(file):
        with tarfile.open(file, mode="r:") as archive:
            yield archive
        return
    if not passphrase:
        raise UsageError("is encrypted: name the file with its passphrase, --passphrase-file FILE")
    with file.open("rb") as sealed:
        opener = cast(BinaryIO, Opener(sealed, passphrase))
        with tarfile.open(fileobj=opener, mode="r|") as archive:
            yield archive


def unpack(file: Path, staged: Path, passphrase: str = "") -> Manifest:
    """Write the files of a backup, each of which is checked.

    Raises:
        UsageError: it is no backup, or a file in it is missing, is damaged or does not belong to it.
    """
    try:
        with opened_archive(file, passphrase) as archive:
            manifest = read_manifest(archive)
            expected = {member.path: member for member in manifest.members}
            while (info := archive.next()) is not None:
                member = expected.pop(info.name, None)
                if member is None or not info.isreg() or info.issparse():  # whose holes have no end
                    raise UsageError(f"it has a file {info.name!r} that it does not name, or that is none")
                unpack_file(archive, info, member, staged)
    except (tarfile.TarError, EOFError) as error:
        raise UsageError(f"{file}: cannot be read as a backup: {error}") from None
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    if expected:
        raise UsageError(f"{file}: {next(iter(expected))} is missing in it: it was cut off")
    return manifest


def read_manifest(archive: tarfile.TarFile) -> Manifest:
    """Read the first member of a backup."""
    info = archive.next()
    content = None if info is None or info.name != MANIFEST else archive.extractfile(info)
    if info is None or content is None or info.size > LARGEST_MANIFEST:
        raise UsageError("is no backup of a node: it does not begin with a manifest")
    try:
        table = json.loads(content.read())
        if table["format"] != FORMAT:
            raise UsageError(f"a backup of format {table['format']}, this version reads {FORMAT}")
        return Manifest(str(table["node"]), str(table["made"]), tuple(read_member(one) for one in table["members"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"its manifest cannot be read: {error}") from None


def read_member(table: Any) -> SavedFile:
    member = SavedFile(**table)
    if not (isinstance(member.path, str) and type(member.size) is int and type(member.mode) is int):
        raise UsageError(f"its manifest has a strange entry: {str(table)[:80]}")
    checked_path(member.path)
    return member


def unpack_file(archive: tarfile.TarFile, info: tarfile.TarInfo, member: SavedFile, staged: Path) -> None:
    """Write one file, for nobody else whatever its mode was, and compare it with what the manifest says."""
    target = staged.joinpath(*checked_path(member.path).parts)
    for parent in reversed(target.relative_to(staged).parents):
        (staged / parent).mkdir(mode=0o700, exist_ok=True)
    content, digest = archive.extractfile(info), hashlib.sha256()
    assert content is not None  # it is a regular file
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, member.mode & 0o700), "wb") as file:
        while piece := content.read(PIECE):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != member.sha256 or info.size != member.size:
        raise UsageError(f"{member.path} in it is damaged: its content is not what was saved")
