"""Files of actigraphs: their signals on one clock, in g and by UTC, with gaps as gaps; what is damaged is named."""

from __future__ import annotations

import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("actfast", reason="files of actigraphs are read by actfast")

from edge_sdk.cli import main
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import Trace, read_trace
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.actigraph_files import MEMBERS
from edge_sdk.replay.imports.actigraphs import read_actigraph
from edge_sdk.replay.imports.importing import import_traces, trace_of
from edge_sdk.replay.imports.recording import RecordedSignal, values_at
from tests.actigraphs import (
    LUX,
    PARAMETERS,
    SECTOR,
    SSP_256,
    log_record,
    parameters,
    write_cwa,
    write_geneactiv,
    write_gt3x,
)

BEGAN = 1_714_489_200
"""2024-04-30 15:00 by the device's clock."""
RATE = 50
RANDOM = np.random.default_rng(3)


def accelerations(n: int) -> np.ndarray:
    """(n, 3) in g, such as all three formats hold exactly."""
    return np.round(RANDOM.uniform(-1.9, 1.9, (n, 3)) * 256) / 256


def gt3x(path: Path, seconds: int = 12, **more: object) -> tuple[Path, np.ndarray]:
    values = accelerations(seconds * RATE)
    return write_gt3x(
        path, [(BEGAN + k, values[k * RATE : (k + 1) * RATE]) for k in range(seconds)], RATE, **more
    ), values  # type: ignore[arg-type]


def geneactiv(path: Path, pages: int = 3, rate: float | str = RATE, **more: object) -> tuple[Path, np.ndarray]:
    values = accelerations(pages * 300)
    parts = [(BEGAN + k * 6.0, values[k * 300 : (k + 1) * 300], 20.0 * k, 30.0 + k) for k in range(pages)]
    return write_geneactiv(path, parts, rate, **more), values  # type: ignore[arg-type]


def axivity(path: Path, blocks: int = 8, hz: float = 100.0, **more: object) -> tuple[Path, np.ndarray]:
    """`hz`: at which it measures, which it means to do at 100 Hz."""
    values = accelerations(blocks * SECTOR)
    parts = [
        (BEGAN + 0.25 + k * SECTOR / hz, values[k * SECTOR : (k + 1) * SECTOR], 100 + k, 25.0 + k)
        for k in range(blocks)
    ]
    return write_cwa(path, parts, **more), values  # type: ignore[arg-type]


def read(path: Path, **said: object) -> Trace:
    known = Stated(**said)  # type: ignore[arg-type]
    return trace_of(read_actigraph(path, path.stem, known, Repairs(path, known.strict)), path.stem, known)


def test_files_of_all_three_are_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    made = {
        "ann": gt3x(
            source / "ann.gt3x", info=["Serial Number: MOS2A0001", "Device Type: wGT3XBT", "TimeZone: -05:00:00"]
        ),
        "bob": geneactiv(source / "bob.bin"),
        "eve": axivity(source / "eve.cwa"),
    }
    (source / "firmware.bin").write_bytes(b"no recording")
    assert main(["traces", "import", str(source), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "firmware.bin: not a .bin file of a GENEActiv: it begins with b'no recording'" in said
    notes = {one["name"]: one for one in tomllib.loads((tmp_path / "out" / "import.toml").read_text())["device"]}
    began = {"ann": BEGAN + 5 * 3600, "bob": BEGAN - 2 * 3600, "eve": BEGAN + 0.25}
    for name, (_, values) in made.items():
        trace = read_trace(tmp_path / "out" / f"{name}.csv")
        assert trace.began == began[name] and np.array_equal(trace.values[:, :3], values.astype(np.float32))
        rate = 100 if name == "eve" else RATE
        tick = 1 / 32768 if name == "eve" else 0  # of the clock that says when blocks begin
        assert np.abs(trace.time - np.arange(len(values)) / rate).max() <= tick + 1e-9
        assert notes[name]["units"]["ax"] == "g" and notes[name]["rate_hz"] == pytest.approx(rate, rel=1e-4)
    assert notes["ann"]["channels"] == ["ax", "ay", "az"]
    assert notes["bob"]["channels"] == notes["eve"]["channels"] == ["ax", "ay", "az", "light", "temp"]
    assert notes["bob"]["units"]["light"] == "lx" and "light" not in notes["eve"]["units"]
    told = {name: "; ".join(one["notes"]) for name, one in notes.items()}
    assert "recorded by wGT3XBT (ActiGraph), serial number MOS2A0001" in told["ann"]
    assert "recorded by GENEActiv (Activinsights), serial number 012345" in told["bob"]
    assert "recorded by AX3 (Axivity), serial number 4711" in told["eve"]
    assert "its clock is taken as UTC-05:00 throughout, as the file says" in told["ann"]
    assert "times without a zone are taken as UTC (--zone NAME)" in told["eve"]
    bob = read_trace(tmp_path / "out" / "bob.csv")
    assert bob.values[0, 3:].tolist() == [0, 30] and bob.values[450, 3:] == pytest.approx([20, 31.5])


def test_a_gyroscope_has_channels_of_its_own(tmp_path: Path) -> None:
    values = np.concatenate([np.round(RANDOM.uniform(-90, 90, (40, 3)) * 16.384) / 16.384, accelerations(40)], 1)
    trace = read(write_cwa(tmp_path / "a.cwa", [(BEGAN + k * 0.4, values, 3, 20.0) for k in range(3)], gyroscope=True))
    assert trace.channels[:6] == ("ax", "ay", "az", "gx", "gy", "gz")
    assert trace.values[:40, :6] == pytest.approx(values[:, [3, 4, 5, 0, 1, 2]])


def test_a_device_that_sleeps_leaves_a_gap(tmp_path: Path) -> None:
    seconds = [(BEGAN + k + 600 * (k >= 5), accelerations(RATE)) for k in range(10)]
    made, _ = import_traces(write_gt3x(tmp_path / "a.gt3x", seconds, RATE), tmp_path / "out")
    assert made[0].gaps == 1 and made[0].samples == 10 * RATE and made[0].hours == pytest.approx(10 / 3600, abs=2e-5)


def test_what_a_page_says_holds_to_its_end_before_a_gap(tmp_path: Path) -> None:
    parts = [(BEGAN + 6.0 * k + 3600 * (k >= 4), accelerations(300), 10.0, 20.0 + k) for k in range(8)]
    trace = read(write_geneactiv(tmp_path / "a.bin", parts, RATE))
    assert len(trace.time) == 8 * 300 and not trace.repairs
    assert (trace.values[900:1200, 4] == 23).all() and trace.values[1200, 4] == 24


def test_the_last_value_before_a_pause_lasts_one_step() -> None:
    signal = RecordedSignal(("a",), np.array([0.0, 1, 2, 3, 50, 51]), np.array([[5.0], [6], [7], [8], [9], [10]]))
    found = values_at(signal, np.array([2.5, 3.0, 3.5, 4.0, 49.9, 50.0, 51.5, 52.0]))[:, 0]
    assert np.array_equal(found, [7.5, 8, 8, np.nan, np.nan, 9, 10, np.nan], equal_nan=True)


@pytest.mark.parametrize("hz", [97.5, 98.8, 101.2, 102.5])
def test_blocks_of_a_sensor_that_is_slow_or_fast_neither_pause_nor_overlap(hz: float, tmp_path: Path) -> None:
    path, values = axivity(tmp_path / "a.cwa", 40, hz)
    trace = read(path)
    assert np.array_equal(trace.values[:, :3], values.astype(np.float32)) and not trace.repairs
    assert trace.time == pytest.approx(np.arange(len(values)) / hz, abs=1e-3) and np.diff(trace.time).min() > 0.9 / hz
    assert f"samples are spread evenly over their blocks: {hz:.4g} Hz, not 100 Hz" in trace.notes


def test_a_lost_block_is_a_gap(tmp_path: Path) -> None:
    values = accelerations(SECTOR)
    path = write_cwa(tmp_path / "a.cwa", [(BEGAN + 1.2 * k, values, 1, 20.0) for k in range(20) if k != 7])
    steps = np.diff(read(path).time)
    assert steps.max() == pytest.approx(1.21, abs=1e-3) and np.sort(steps)[:-1].max() < 0.0101


def test_a_rate_with_a_comma(tmp_path: Path) -> None:
    path, values = geneactiv(tmp_path / "a.bin", rate="50,0")
    trace = read(path)
    assert np.array_equal(trace.values[:, :3], values.astype(np.float32))
    assert np.array_equal(np.diff(trace.time).round(6), np.full(len(values) - 1, 0.02))


@pytest.mark.parametrize(
    ("beside", "info", "factor", "told"),
    [
        ([], ["Serial Number: NEO1C001"], 256 / 341, "no parameters: 341 steps"),
        ([], ["Serial Number: MOS2A0001", "Acceleration Scale: 512.0"], 0.5, "no parameters: 512 steps"),
        ([(PARAMETERS, BEGAN, parameters(RATE, None))], ["Serial Number: MOS2A0001"], 1, "no scale: 256 steps"),
    ],
)
def test_a_log_without_a_scale_has_that_of_its_device(
    beside: list[tuple[int, int, bytes]], info: list[str], factor: float, told: str, tmp_path: Path
) -> None:
    path, values = gt3x(tmp_path / "a.gt3x", beside=beside, info=info)
    trace = read(path)
    assert trace.values == pytest.approx(values * factor, abs=1e-5) and trace.rate_hz == pytest.approx(RATE)
    assert told in "; ".join(trace.notes)


def test_axes_that_a_firmware_exchanged_are_put_right(tmp_path: Path) -> None:
    path, values = gt3x(tmp_path / "a.gt3x", info=["Serial Number: MOS2A0001", "Firmware: 1.6.0"])
    assert np.array_equal(read(path).values, (values[:, [1, 0, 2]] * [1, -1, 1]).astype(np.float32))


def test_light_that_was_seldom_recorded_costs_no_accelerations(tmp_path: Path) -> None:
    beside = [(PARAMETERS, BEGAN, parameters(RATE)), *((LUX, BEGAN + k, bytes([k, 0])) for k in (2, 3, 4))]
    path, values = gt3x(tmp_path / "a.gt3x", beside=beside)
    trace = read(path)
    assert "light: " not in "; ".join(trace.notes), "it was not brought to another clock for nothing"
    assert len(trace.time) == len(values) and "light left out, recorded for less than half" in "; ".join(trace.notes)
    asked = read(path, channels=("light", "ax"))
    assert {*asked.channels} == {"light", "ax"} and asked.began == BEGAN + 2 and len(asked.time) == 3 * RATE
    with pytest.raises(UsageError, match="no channel 'temp' among ax, ay, az, light"):
        read(path, channels=("temp",))


def test_a_zone_is_taken_at_the_beginning_for_the_whole_recording(tmp_path: Path) -> None:
    """A device's clock is not set while it records: over the night that has an hour twice it goes on."""
    night = 1_729_990_800  # 2024-10-27 01:00, two hours before Berlin's clocks go back
    path = write_cwa(tmp_path / "a.cwa", [(night + 1200.0 * k, accelerations(SECTOR), 1, 20.0) for k in range(12)])
    trace = read(path, zone="Europe/Berlin")
    assert trace.began == night - 7200 and trace.time[::SECTOR].tolist() == [1200.0 * k for k in range(12)]
    assert "its clock is taken as UTC+02:00 throughout, as Europe/Berlin is where the recording begins" in trace.notes
    assert read(geneactiv(tmp_path / "b.bin")[0], zone="Asia/Kolkata").began == BEGAN - 5.5 * 3600
    assert read(axivity(tmp_path / "c.cwa", zone=-90)[0]).began == BEGAN + 0.25 + 5400
    for zone in ("", "GMT", "GMT +99:00"):
        trace = read(geneactiv(tmp_path / "b.bin", zone=zone)[0])
        assert trace.began == BEGAN and not any("its clock" in note for note in trace.notes)


def damage(path: Path, at: int) -> Path:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)
    return path


def cut(path: Path, by: int) -> Path:
    path.write_bytes(path.read_bytes()[:-by])
    return path


def test_damaged_files_are_refused_by_name_or_whole_parts_taken(tmp_path: Path) -> None:
    cwa = damage(axivity(tmp_path / "a.cwa")[0], 1024 + 512 * 3 + 40)
    page = cut(geneactiv(tmp_path / "a.bin")[0], 3700)
    log = tmp_path / "a.gt3x"
    made = b"".join(log_record(*one) for one in ((PARAMETERS, BEGAN, parameters(30)), (0, BEGAN, bytes(135))))
    with zipfile.ZipFile(log, "w") as archive:
        archive.writestr("info.txt", "Serial Number: MOS2")
        archive.writestr("log.bin", made + b"\x77" * 20)
    for path, words, left in (
        (cwa, "sector 3 .byte offset 2560. failed checksum", 7 * SECTOR),
        (page, "incomplete record", 600),
        (log, "invalid record separator 0x77", 30),
    ):
        with pytest.raises(UsageError, match=rf"{path.name}: damaged, .*{words}.*--damaged takes what is whole"):
            read(path)
        trace = read(path, damaged=True)
        assert len(trace.time) == left and "1 damaged places left out, the first" in "; ".join(trace.notes)
        with pytest.raises(UsageError, match="1 damaged places"):
            read(path, damaged=True, strict=True)
    assert main(["traces", "import", str(cwa), str(tmp_path / "out"), "--damaged"]) == 0


def test_files_that_end_too_early_are_reported(tmp_path: Path) -> None:
    for path, words in (
        (cut(axivity(tmp_path / "a.cwa")[0], 100), "the file ends within a block"),
        (geneactiv(tmp_path / "a.bin", said=9)[0], "3 of the 9 pages"),
    ):
        assert words in "; ".join(read(path).notes)
        with pytest.raises(UsageError, match=words):
            read(path, strict=True)


def test_a_damaged_archive_is_refused_by_name(tmp_path: Path) -> None:
    path, _ = gt3x(tmp_path / "a.gt3x")
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("log.bin").header_offset + 200
    with pytest.raises(UsageError, match=r"a\.gt3x: log\.bin in it is damaged"):
        read(damage(path, at))
    with pytest.raises(UsageError, match=r"a\.gt3x: a damaged archive, expected a GT3X file"):
        read(cut(gt3x(path)[0], 30))


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    for name, data in (("a.cwa", b"RIFF1234"), ("b.bin", b"GENEA/1.00"), ("c.gt3x", b"text"), ("d.cwa", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=rf"{name}: not a .*it begins with"):
            read(tmp_path / name)
    for members, words in (
        ({"a.txt": ""}, r"no info\.txt in it, but a\.txt"),
        ({"activity.bin": "", "info.txt": ""}, "before 3.0"),
    ):
        with zipfile.ZipFile(tmp_path / "e.gt3x", "w") as archive:
            for name, text in members.items():
                archive.writestr(name, text)
        with pytest.raises(UsageError, match=rf"e\.gt3x: .*{words}"):
            read(tmp_path / "e.gt3x")
    for broken in (b"MD", b"MD" + bytes(100)):
        (tmp_path / "f.cwa").write_bytes(broken)
        with pytest.raises(UsageError, match=r"f\.cwa: damaged"):
            read(tmp_path / "f.cwa")
    empty = write_gt3x(tmp_path / "g.gt3x", [(BEGAN, np.zeros((0, 3)))], RATE)
    with pytest.raises(
        UsageError, match=r"g\.gt3x: no accelerations in it .of an ActiGraph, records of the kind ACTIV"
    ):
        read(empty)


def test_a_bin_that_another_package_reads_goes_to_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edge_sdk.replay.imports import sources

    monkeypatch.setattr(sources, "reader_of", lambda path, chosen="": "matrix" if path.stem == "theirs" else "")
    (tmp_path / "theirs.bin").write_bytes(b"mtx")
    (tmp_path / "nobodys.bin").write_bytes(b"??")
    assert not sources.is_ours(tmp_path / "theirs.bin") and sources.is_ours(tmp_path / "nobodys.bin")
    assert sources.is_ours(geneactiv(tmp_path / "theirs.bin")[0])


def test_nothing_that_reads_them_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "actfast", None)
    with pytest.raises(
        UsageError, match=r"a\.gt3x: a GT3X file of an ActiGraph needs actfast: pip install 'auscult\[files\]'"
    ):
        read(gt3x(tmp_path / "a.gt3x")[0])


def test_what_a_hostile_file_says_of_its_size_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pages in (10**18, 10**8):
        with pytest.raises(UsageError, match=rf"a\.bin: its head speaks of {pages} pages"):
            read(geneactiv(tmp_path / "a.bin", said=pages)[0])
    long = tmp_path / "c.bin"
    long.write_bytes(geneactiv(tmp_path / "a.bin")[0].read_bytes() + b"Device" + bytes(70_000))
    long.write_bytes(long.read_bytes().replace(b"Subject Notes:", b"Subject Notes:" + b"0" * 70_000))
    with pytest.raises(UsageError, match=r"c\.bin: a line of more than 65536 bytes"):
        read(long)
    monkeypatch.setitem(MEMBERS, "log.bin", 1 << 16)
    path = tmp_path / "b.gt3x"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("info.txt", "Serial Number: MOS2")
        archive.writestr("log.bin", bytes(1 << 20))
    data = path.read_bytes()
    path.write_bytes(data.replace((1 << 20).to_bytes(4, "little"), (100).to_bytes(4, "little")))  # what it says it has
    with pytest.raises(UsageError, match=r"b\.gt3x: log\.bin in it has more than 65536 bytes"):
        read(path)


def test_a_reader_that_panics_names_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_gt3x(
        tmp_path / "a.gt3x", [(BEGAN, accelerations(5))], RATE, beside=[(PARAMETERS, BEGAN, parameters(0, SSP_256))]
    )
    with pytest.raises(UsageError, match=r"a\.gt3x: damaged, a GT3X file of an ActiGraph that cannot be read"):
        read(path)
