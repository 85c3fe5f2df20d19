"""FIT files of sports watches: records of each second become a trace, the sport its label, positions stay out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fitdecode", reason="FIT files are read by fitdecode")

from edge_sdk.cli import main
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import read_trace
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports import fit_files
from edge_sdk.replay.imports.fit_files import read_fit_file

EPOCH = 631_065_600
"""Seconds from 1970 to FIT's own beginning."""
BEGAN = 1_700_000_000 - EPOCH
UINT8, UINT16, UINT32, SINT32, ENUM = 0x02, 0x84, 0x86, 0x85, 0x00
SIZES = {UINT8: ("B", 1), UINT16: ("H", 2), UINT32: ("I", 4), SINT32: ("i", 4), ENUM: ("B", 1)}
RECORD, SESSION = 20, 18
FIELDS = {RECORD: ((253, UINT32), (3, UINT8), (4, UINT8), (0, SINT32)), SESSION: ((2, UINT32), (7, UINT32), (5, ENUM))}
"""Number of a message -> its fields: timestamp, heart rate, cadence, latitude; start, elapsed milliseconds, sport."""
NONE = 0xFF
RUNNING = 1


def checksum(data: bytes) -> int:
    """CRC-16 as the FIT protocol has it."""
    table = [0x0000, 0xCC01, 0xD801, 0x1400, 0xF001, 0x3C00, 0x2800, 0xE401]
    table += [0xA001, 0x6C00, 0x7800, 0xB401, 0x5000, 0x9C01, 0x8801, 0x4400]
    found = 0
    for byte in data:
        for nibble in (byte & 0xF, byte >> 4):
            found = (found >> 4) ^ table[found & 0xF] ^ table[nibble]
    return found


def write_fit(path: Path, records: Sequence[tuple[int, int, int]]) -> Path:
    """Writes seconds since the beginning, heart rates and cadences; NONE is no value."""
    body = b"".join(
        struct.pack("<BBBHB", 0x40 | local, 0, 0, number, len(fields))
        + b"".join(struct.pack("<BBB", field, SIZES[kind][1], kind) for field, kind in fields)
        for local, (number, fields) in enumerate(FIELDS.items())
    )
    for at, rate, cadence in records:
        body += struct.pack("<BIBBi", 0, BEGAN + at, rate, cadence, 500_000_000)
    body += struct.pack("<BIIB", 1, BEGAN + 10, 60_000, RUNNING)
    head = struct.pack("<BBHI4s", 14, 0x10, 2132, len(body), b".FIT")
    head += struct.pack("<H", checksum(head))
    path.write_bytes(head + body + struct.pack("<H", checksum(head + body)))
    return path


def read(path: Path, **said: object) -> object:
    return read_fit_file(path, "ann", Stated(**said), Repairs(path, False))  # type: ignore[arg-type]


def test_records_become_rows_of_a_second_with_their_units_and_the_sport(tmp_path: Path) -> None:
    found = read(write_fit(tmp_path / "run.fit", [(k, 100 + k % 5, 80) for k in range(90)]))
    assert found.rows.channels == ("cadence", "heart_rate") and found.units == {"heart_rate": "bpm", "cadence": "rpm"}  # type: ignore[attr-defined]
    rows = found.rows  # type: ignore[attr-defined]
    assert rows.time.tolist() == [1_700_000_000 + k for k in range(90)]
    assert rows.values[:, 1].tolist() == [100 + k % 5 for k in range(90)]
    assert [rows.words[code] for code in rows.codes[[9, 10, 69, 70]]] == ["", "running", "running", ""]
    assert "positions are left out" in " ".join(found.repairs.notes)  # type: ignore[attr-defined]


def test_seconds_without_a_record_are_on_the_line_between_their_neighbours_and_pauses_are_none(tmp_path: Path) -> None:
    records = [(0, 100, 80), (1, 101, 80), (2, 102, 80), (4, 104, NONE), (60, 60, 80), (61, 61, 80), (62, 62, 80)]
    rows = read(write_fit(tmp_path / "a.fit", records)).rows  # type: ignore[attr-defined]
    rate = rows.values[:, list(rows.channels).index("heart_rate")]
    assert rate[:5].tolist() == [100, 101, 102, 103, 104] and np.isnan(rate[6:60]).all() and rate[60] == 60


def test_records_out_of_order_are_sorted_and_of_one_time_the_last_one_counts(tmp_path: Path) -> None:
    found = read(write_fit(tmp_path / "a.fit", [(2, 102, 80), (0, 90, 80), (0, 100, 80), (1, 101, 80)]))
    assert found.rows.values[:, 1].tolist() == [100, 101, 102]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "a damaged one"),
        (lambda data: data[:40], "a damaged one"),
        (lambda data: b"no FIT file at all, but a text that is long enough", "no FIT file"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(damage: object, said: str, tmp_path: Path) -> None:
    path = write_fit(tmp_path / "a.fit", [(k, 100, 80) for k in range(20)])
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(UsageError, match=rf"a\.fit: .*{said}"):
        read(path)


def test_a_file_without_records_and_one_of_many_years_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0 records with a time"):
        read(write_fit(tmp_path / "a.fit", []))
    with pytest.raises(UsageError, match="expected a month at most"):
        read(write_fit(tmp_path / "b.fit", [(0, 100, 80), (10**8, 100, 80)]))
    with pytest.raises(UsageError, match="no channel 'power' among cadence, heart_rate"):
        read(write_fit(tmp_path / "c.fit", [(0, 100, 80), (1, 100, 80)]), channels=("power",))


def test_a_folder_of_them_is_imported(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        (tmp_path / "watch").mkdir(exist_ok=True)
        write_fit(tmp_path / "watch" / f"{name}.fit", [(k, 100 + k % 7, 80 + k % 3) for k in range(120)])
    assert main(["traces", "import", str(tmp_path / "watch"), str(tmp_path / "traces")]) == 0
    trace = read_trace(tmp_path / "traces" / "ann.csv")
    assert {*trace.channels} == {"cadence", "heart_rate"} and trace.rate_hz == pytest.approx(1)
    assert "running" in trace.classes


@pytest.mark.parametrize(
    ("name", "most", "said"),
    [("MOST_RECORDS", 19, "more than 19 records"), ("MOST_NUMBERS", 39, "20 rows of 2 channels; expected 39 numbers")],
)
def test_more_than_a_month_of_seconds_has_room_for_is_refused(
    name: str, most: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message may take five bytes, and channels may be named in each: their product is no length of a file."""
    path = write_fit(tmp_path / "a.fit", [(n, 60, 80) for n in range(20)])
    monkeypatch.setattr(fit_files, name, most)
    with pytest.raises(UsageError, match=said):
        read(path)
    monkeypatch.setattr(fit_files, name, most + 1)
    assert read(path)
