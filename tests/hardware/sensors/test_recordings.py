"""WFDB and EDF files written here byte by byte, and their playback in time."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.edf import read_edf
from edge_sdk.hardware.sensors.recording import BLOCK, Playback, StoredSignals
from edge_sdk.hardware.sensors.sensor import SensorEnded, opened
from edge_sdk.hardware.sensors.wfdb import read_wfdb, unpack_212

HEADER = """# a comment
100 2 360 4 12:30:05 24/12/2001
100.dat 212 200(1024)/mV 11 1024 995 -22131 0 MLII
100.dat 212 100 11 1024 1011 20052 0 V5
"""


def pack_212(numbers: Sequence[int]) -> bytes:
    """Packs pairs of 12-bit numbers, as WFDB's manual draws them."""
    out = bytearray()
    for one, two in zip(numbers[::2], numbers[1::2], strict=True):
        a, b = one & 0xFFF, two & 0xFFF
        out += bytes([a & 0xFF, a >> 8 | b >> 8 << 4, b & 0xFF])
    return bytes(out)


def lay_record(folder: Path, header: str = HEADER) -> Path:
    folder.joinpath("100.hea").write_text(header)
    folder.joinpath("100.dat").write_bytes(pack_212([1024, 1024, 1224, 924, -2048, 2047, 824, 1124]))
    return folder / "100"


def test_a_wfdb_record_in_format_212(tmp_path: Path) -> None:
    found = read_wfdb(lay_record(tmp_path))
    assert (found.name, found.rate_hz, found.channels, found.units) == ("100", 360, ("MLII", "V5"), ("mV", "mV"))
    assert found.start == 1009197005  # 2001-12-24T12:30:05Z
    assert list(found.columns[1]) == pytest.approx([0, -1, 10.23, 1])
    first = list(found.columns[0])
    assert first[:2] == pytest.approx([0, 1]) and math.isnan(first[2]) and first[3] == -1
    assert read_wfdb(tmp_path / "100.hea").columns[1] == found.columns[1]


def test_a_wfdb_record_in_format_16_of_two_files(tmp_path: Path) -> None:
    header = "x 2 100/50 3\na.dat 16+4 2(-1)/g 16 0 0 0 0 acc x\nb.dat 16\n"
    tmp_path.joinpath("x.hea").write_text(header)
    tmp_path.joinpath("a.dat").write_bytes(b"skip" + struct.pack("<3h", -1, 1, -32768))
    tmp_path.joinpath("b.dat").write_bytes(struct.pack("<3h", 200, -200, 0))
    found = read_wfdb(tmp_path / "x")
    assert found.channels == ("acc x", "signal-1") and found.units == ("g", "mV") and found.start is None
    assert list(found.columns[0])[:2] == [0, 1] and math.isnan(found.columns[0][2])
    assert list(found.columns[1]) == [1, -1, 0] and found.rate_hz == 100


def test_numbers_of_format_212_survive() -> None:
    numbers = [*range(-2048, 2048, 7), 0] if len(range(-2048, 2048, 7)) % 2 else list(range(-2048, 2048, 7))
    assert list(unpack_212(pack_212(numbers))) == numbers


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("212", "311", "311"),
        ("100.dat 212 200", "../100.dat 212 200", "a file beside it"),
        ("100.dat 212 200", "none.dat 212 200", "none.dat"),
        ("100 2 360", "100/3 2 360", "several segments"),
        ("100 2 360", "100 3 360", "2 signals of 3"),
        ("100 2 360", "100 2 0", "0.0 samples"),
        ("100 2 360", "100", "no header"),
    ],
)
def test_wfdb_records_that_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_wfdb(lay_record(tmp_path, HEADER.replace(old, new)))
    with pytest.raises(UsageError, match="nothing"):
        read_wfdb(tmp_path / "nothing")


def make_edf(records: int = 2, told: int | None = None, second_rate: int = 4, reserved: str = "") -> bytes:
    """Two signals of 4 numbers a record of 2 s, and annotations."""
    signals = [("EEG Fpz-Cz", "uV", "-100", "100", 4), ("EOG", "mV", "-1", "1", second_rate)]
    signals.append(("EDF Annotations", "", "-1", "1", 3))
    count, head = len(signals), ["0", "patient", "recording", "24.12.01", "12.30.05"]
    widths = (8, 80, 80, 8, 8)
    text = "".join(word.ljust(width) for word, width in zip(head, widths, strict=True))
    text += f"{256 * (count + 1):<8}{reserved:<44}{records if told is None else told:<8}{2:<8}{count:<4}"
    for width, column in (
        (16, [s[0] for s in signals]),
        (80, [""] * count),
        (8, [s[1] for s in signals]),
        (8, [s[2] for s in signals]),
        (8, [s[3] for s in signals]),
        (8, ["-2048"] * count),
        (8, ["2047"] * count),
        (80, [""] * count),
        (8, [str(s[4]) for s in signals]),
        (32, [""] * count),
    ):
        text += "".join(word.ljust(width) for word in column)
    body = b""
    for record in range(records):
        for signal in signals:
            body += struct.pack(f"<{signal[4]}h", *([-2048, 2047, 0, record] * 2)[: signal[4]])
    return text.encode() + body


def test_an_edf_file(tmp_path: Path) -> None:
    file = tmp_path / "night.edf"
    file.write_bytes(make_edf())
    found = read_edf(file)
    assert found.channels == ("EEG Fpz-Cz", "EOG") and found.units == ("uV", "mV")
    assert found.rate_hz == 2 and found.start == 1009197005 and len(found) == 8
    step = 200 / 4095
    assert list(found.columns[0]) == pytest.approx([-100, 100, step / 2, step / 2, -100, 100, step / 2, 1.5 * step])
    assert list(found.columns[1])[:2] == pytest.approx([-1, 1])
    assert read_edf(file, ["EOG"]).channels == ("EOG",)
    file.write_bytes(make_edf(told=-1)[:-1])  # switched off in the middle of a record
    assert len(read_edf(file)) == 4


@pytest.mark.parametrize(
    ("data", "channels", "said"),
    [
        (make_edf(second_rate=2), [], "2 rates"),
        (make_edf(), ["EKG"], "EEG Fpz-Cz"),
        (make_edf()[:-1], [], "cut short"),
        (make_edf(reserved="EDF+D"), [], "gaps"),
        (b"1" + make_edf()[1:], [], "version 0"),
        (make_edf()[:300], [], "no EDF file"),
        (make_edf().replace(b"-2048", b"2047 "), [], "digital"),
    ],
)
def test_edf_files_that_are_refused(tmp_path: Path, data: bytes, channels: list[str], said: str) -> None:
    (tmp_path / "x.edf").write_bytes(data)
    with pytest.raises(UsageError, match=said):
        read_edf(tmp_path / "x.edf", channels)


SIGNALS = StoredSignals("ecg", 100, ("x",), ("mV",), (array("d", range(250)),), start=5000.0)


def test_playback_in_time() -> None:
    now = [0.0]
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += seconds

    with opened(Playback(SIGNALS, speed=2, clock=lambda: now[0], sleep=sleep)) as sensor:
        assert [reading.values for reading in sensor.read(1)] == [(0.0,)]
        assert [reading.values for reading in sensor.read(1)] == [(1.0,)] and sleeps == pytest.approx([0.005])
        assert sensor.read(0.001) == []
        now[0] = 0.5
        found = sensor.read(1)
        assert len(found) == 99 and found[-1].time == 5001 and found[-1].values == (100,)
        now[0] = 60
        assert len(sensor.read(1)) == 149
        with pytest.raises(SensorEnded):
            sensor.read(1)


def test_playback_as_fast_as_it_is_read() -> None:
    long = StoredSignals("long", 100, ("x",), ("mV",), (array("d", range(2 * BLOCK + 1)),))
    with opened(Playback(long, speed=0, start=0)) as sensor:
        assert [len(sensor.read(0)) for _ in range(3)] == [BLOCK, BLOCK, 1]
    for wrong in (-1, math.nan):
        with pytest.raises(UsageError, match="speed"):
            Playback(SIGNALS, speed=wrong)
