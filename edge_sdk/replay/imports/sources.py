"""The files of a source by their kinds, and what each device recorded in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from edge_sdk.data.availability import SUFFIX
from edge_sdk.data.traces.folder import name_of
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import read_table
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.actigraph_files import KINDS as ACTIGRAPHS
from edge_sdk.replay.imports.actigraph_files import PACKED, is_actigraph_bin
from edge_sdk.replay.imports.actigraphs import read_actigraph
from edge_sdk.replay.imports.apple_health import HEALTH, is_health_export, read_health_export
from edge_sdk.replay.imports.columns import read_columns_file
from edge_sdk.replay.imports.empatica import is_empatica, read_empatica
from edge_sdk.replay.imports.fit_files import FIT, read_fit_file
from edge_sdk.replay.imports.readers import PLUGINS, read_plugged, reader_of
from edge_sdk.replay.imports.ready_windows import is_ready_windows, read_ready_windows
from edge_sdk.replay.imports.recording import Recorded
from edge_sdk.replay.imports.signal_files import EDF, read_signal_file

LIMIT = 8 * 2**30
"""Bytes of a file."""
TEXTS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz", ".dat", ".dat.gz")
COLUMNS = (".parquet", ".feather", ".arrow")
SIGNALS = (*EDF, ".hea")
OTHERS = (*COLUMNS, *SIGNALS, *FIT, *ACTIGRAPHS, PACKED)
BESIDE = ("GENERATED.txt", "tags.csv")
"""Files that are no recordings."""


def find_sources(source: Path, reader: str = "", only: str = "", intervals: str = "") -> list[tuple[str, Path]]:
    """The files, or folders that one device wrote, of a source, with the names of devices that their places give.

    Args:
        reader: of another package, whose files alone are wanted; "": all that anybody reads.
        only: pattern that names of files, or of folders that one device wrote, have to match; "": all do.
        intervals: pattern of the names of further files, which have labels; "": there are none.

    Raises:
        UsageError: there is none.
    """
    if not source.exists():
        raise UsageError(f"{source}: no such file or folder")
    found = [(device_name(source), source)] if is_source(source, reader) else list(walk(source, "", reader))
    if not found and reader:
        raise UsageError(f"{source}: nothing that {reader} takes ({PLUGINS.place_of(reader)})")
    if not found:
        kinds = ", ".join((*TEXTS, *OTHERS, *(f"what {name} takes" for name in PLUGINS)))
        raise UsageError(
            f"{source}: nothing to import; expected files that end in {kinds}, an export of Apple Health, or folders "
            "of an Empatica E4 or UCI HAR"
        )
    names = [only, intervals] if intervals else [only]
    wanted = [one for one in found if not only or any(fnmatchcase(one[1].name, name) for name in names)]
    if not wanted:
        raise UsageError(f"{source}: none of {len(found)} recordings is named {only!r}; the first: {found[0][1].name}")
    return wanted


def walk(folder: Path, above: str, reader: str = "") -> Iterator[tuple[str, Path]]:
    """The sources of a folder and those below it. `above`: names of the folders between, with "-" after each."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if is_source(path, reader):
            yield above + device_name(path), path
        elif path.is_dir() and not path.name.startswith("."):
            yield from walk(path, f"{above}{device_name(path)}-", reader)


def is_source(path: Path, reader: str = "") -> bool:
    """Is this something that a device wrote? Readers of other packages are asked for what we do not read."""
    if not reader and is_ours(path):
        return True
    known = path.name in BESIDE or path.name.startswith(".") or path.name.lower().endswith(SUFFIX)
    return not known and bool(reader_of(path, reader))


def is_ours(path: Path) -> bool:
    """Is it of a kind that this package reads?"""
    if path.is_dir():
        return is_empatica(path) or is_ready_windows(path)
    name = path.name.lower()
    if name.endswith(HEALTH):
        return path.is_file() and is_health_export(path)
    signals_of_wfdb = name.endswith(".dat") and path.with_suffix(".hea").exists()
    known = name.endswith((*TEXTS, *OTHERS)) and path.name not in BESIDE
    if not path.is_file() or not known or name.endswith(SUFFIX) or signals_of_wfdb:
        return False
    return not name.endswith(".bin") or is_actigraph_bin(path) or not reader_of(path)


def device_name(path: Path) -> str:
    """The name of a device by that of its file: letters, digits, "_", "-" and ".", 64 at most."""
    return clean_name(path.name if path.is_dir() else name_of(path))


def clean_name(text: str) -> str:
    """A text as the name of a device."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")[:64] or "device"


def read_source(name: str, path: Path, said: Stated, reader: str = "") -> Iterator[Recorded]:
    """What devices recorded in one file or folder.

    Args:
        name: of the device, where no column tells devices apart.
        reader: of another package; "": ours, or the one that takes it.

    Raises:
        UsageError: it cannot be read as what its name says.
    """
    suffix = path.suffix.lower()
    repairs = Repairs(path, said.strict)
    if reader or not is_ours(path):
        yield from read_plugged(reader or reader_of(path), path, name, said)
    elif path.is_dir() and is_ready_windows(path):
        yield from read_ready_windows(path, said)
    elif path.is_dir():
        yield read_empatica(path, name, repairs)
    elif suffix in COLUMNS:
        yield from read_columns_file(path, name, said)
    elif suffix in FIT:
        yield read_fit_file(path, name, said, repairs)
    elif suffix in HEALTH:
        yield from read_health_export(path, name, said, repairs)
    elif suffix in ACTIGRAPHS or path.name.lower().endswith(PACKED):
        yield read_actigraph(path, name, said, repairs)
    elif suffix in SIGNALS:
        yield read_signal_file(path, name, said, repairs)
    else:
        table = read_table(path, said, repairs, limit=LIMIT)
        devices = dict(table.devices)
        while devices:  # what has been written need not stay in memory
            device = next(iter(devices))
            one = Repairs(path, said.strict)
            one.notes, one.found = list(repairs.notes), dict(repairs.found)
            yield Recorded(device or name, path, devices.pop(device), one, table.start, table.dated, table.zoned)
