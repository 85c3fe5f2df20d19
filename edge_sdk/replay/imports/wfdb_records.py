"""Recordings of PhysioNet, a header RECORD.hea and its signals, read by the package wfdb in all of its formats."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.recording import StoredSignals

LARGEST = 1 << 31
BYTES = {"8": 1.0, "80": 1.0, "16": 2.0, "61": 2.0, "160": 2.0, "212": 1.5, "24": 3.0, "32": 4.0}
"""Format -> bytes of a sample, of files that may be cut short."""
ANNOTATORS = ("atr", "st")
"""Suffixes of annotations that are looked for, the likely one first."""


def read_record(path: Path) -> tuple[list[StoredSignals], list[str]]:
    """Reads all signals of a recording, grouped by their rates, and what is not as it should be.

    Raises:
        UsageError: wfdb is not installed, or the recording cannot be read; it names the file.
    """
    wfdb = import_wfdb()
    header = path if path.suffix == ".hea" else path.with_name(f"{path.name}.hea")
    name, notes = str(header.with_suffix("")), list[str]()
    try:
        head = wfdb.rdheader(name)
        check_names(header, head)
        several = getattr(head, "n_seg", 1) and hasattr(head, "seg_name")
        upto = None if several else count_there(header, head, notes)
        record = wfdb.rdrecord(name, sampto=upto, smooth_frames=bool(several))
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"{header}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # of whatever kind a header that is none makes in there
        raise UsageError(f"{header}: not read as WFDB: {error}") from error
    rate, base = float(record.fs), record.base_datetime
    if not 0 < rate < 1e6 or not record.n_sig:
        raise UsageError(f"{header}: {record.n_sig} signals, {rate} samples per second")
    start = None if base is None else base.replace(tzinfo=UTC).timestamp()
    per_frame = [1] * record.n_sig if several else list(record.samps_per_frame)
    columns = list(record.p_signal.T) if several else record.e_p_signal
    names = [text or f"signal-{n}" for n, text in enumerate(record.sig_name)]
    found = []
    for factor in sorted({*per_frame}, reverse=True):
        own = [n for n, other in enumerate(per_frame) if other == factor]
        texts = tuple(names[n] for n in own), tuple(record.units[n] or "" for n in own)
        values: tuple[Any, ...] = tuple(np.asarray(columns[n], np.float64) for n in own)
        found.append(StoredSignals(Path(name).name, rate * factor, *texts, values, start))
    return found, notes


def import_wfdb() -> Any:
    """The package.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import wfdb
    except ModuleNotFoundError as error:
        raise UsageError("reading recordings of WFDB needs wfdb: pip install 'auscult[files]'") from error
    return wfdb


def check_names(header: Path, head: Any) -> None:
    """Raises UsageError if a header, which is somebody else's text, names files that lie elsewhere."""
    names = [*(getattr(head, "file_name", None) or ()), *(getattr(head, "seg_name", None) or ())]
    for name in names:
        if name and Path(name).name != name:
            raise UsageError(f"{header}: the header names {name!r}; a file beside it was expected")
        file = header.parent / name
        if file.is_file() and file.stat().st_size > LARGEST:
            raise UsageError(f"{file}: more than {LARGEST:,} bytes")


def count_there(header: Path, head: Any, notes: list[str]) -> int | None:
    """Samples that the files have where they are fewer than the header says; None: they are all there."""
    there = head.sig_len
    for name in dict.fromkeys(head.file_name):
        own = [n for n, other in enumerate(head.file_name) if other == name]
        size = BYTES.get(str(head.fmt[own[0]]))
        if size is None or not (header.parent / name).is_file():
            continue
        frame = size * sum(head.samps_per_frame[n] for n in own)
        offset = head.byte_offset[own[0]] or 0
        found = int(((header.parent / name).stat().st_size - offset) / frame)
        there = found if there is None else min(there, found)
    if head.sig_len is None or there is None or there >= head.sig_len:
        return None
    notes.append(f"cut short: {there} of {head.sig_len} samples are there")
    return int(there)


def read_rhythms(path: Path) -> list[tuple[float, str]]:
    """Seconds from the start at which a rhythm, or another state, begins, and its name; without annotations none.

    Marks of single beats are none. A state is named by a note, as "(AFIB" is.
    """
    wfdb = import_wfdb()
    record = str(path.with_suffix(""))
    for suffix in ANNOTATORS:
        if not path.with_suffix(f".{suffix}").is_file():
            continue
        try:
            found = wfdb.rdann(record, suffix)
        except Exception as error:  # as above
            raise UsageError(f"{path.with_suffix(f'.{suffix}')}: not read as annotations: {error}") from error
        rate = float(found.fs or wfdb.rdheader(record).fs)
        notes = [text.strip("\0 ") for text in found.aux_note]
        return [(at / rate, text.lstrip("(")) for at, text in zip(found.sample, notes, strict=True) if text]
    return []
