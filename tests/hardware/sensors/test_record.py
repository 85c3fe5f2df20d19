"""Recordings: what sensors give becomes traces that the reader of traces takes, also after kill -9."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
import tty
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_sdk.data.availability import find_availability, read_availability
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.telemetry import read_telemetry
from edge_sdk.hardware.sensors.record import Labels, Recorder, TraceFile
from edge_sdk.hardware.sensors.sensor import Pace, Reading, SensorEnded, SensorError
from tests.hardware.boards.fake_root import lay, lay_raspberry
from tests.hardware.sensors.test_recordings import HEADER, make_edf, pack_212


class FakeSensor:
    """Gives blocks of readings, then ends, or fails."""

    name, units, rate_hz = "wrist left", ("g", "g"), 10.0

    def __init__(self, blocks: list[list[Reading]], error: Exception | None = None, channels: str = "xy") -> None:
        self.blocks, self.error, self.channels = blocks, error or SensorEnded("over"), tuple(channels)
        self.events: list[str] = []

    def open(self) -> None:
        self.events.append("open")

    def read(self, timeout: float) -> list[Reading]:
        if not self.blocks:
            raise self.error
        return self.blocks.pop(0)

    def close(self) -> None:
        self.events.append("close")


def rows(count: int, begin: float = 1e9) -> list[Reading]:
    return [Reading(begin + n / 10, (n / 3, -float(n))) for n in range(count)]


def test_readings_and_late_labels_become_a_trace(tmp_path: Path) -> None:
    labels = Labels("rest")
    labels.say("walk, slowly", 1e9 + 2)
    sensor = FakeSensor([rows(15), rows(25, 1e9 + 1.5)])
    recorder = Recorder({"fake:1": sensor}, tmp_path / "out", labels, lay_raspberry(tmp_path / "root"))
    recorder.run()
    trace = read_trace(tmp_path / "out" / "wrist-left.csv")
    assert trace.channels == ("x", "y") and len(trace.time) == 40 and trace.rate_hz == pytest.approx(10)
    names = [trace.classes[code] for code in trace.codes]
    assert names == ["rest"] * 20 + ["walk, slowly"] * 20
    assert trace.values[14, 0] == pytest.approx(14 / 3) and trace.start == "1000000000.000000"
    told = json.loads((tmp_path / "out" / "sensors.json").read_text())
    assert told["wrist-left"] == {"sensor": "fake:1", "channels": ["x", "y"], "units": ["g", "g"], "rate_hz": 10.0}
    [line] = [json.loads(text) for text in (tmp_path / "out" / "telemetry.jsonl").read_text().splitlines()]
    assert line["temperatures"] == {"cpu-thermal": 81.234}
    assert sensor.events == ["open", "close"]


def test_battery_heat_and_link_are_beside_the_trace_as_a_replay_of_days_reads_them(tmp_path: Path) -> None:
    root, out = lay_raspberry(tmp_path / "root"), tmp_path / "out"
    lay(root, {
        "sys/class/power_supply/BAT0/type": "Battery", "sys/class/power_supply/BAT0/capacity": "18",
        "sys/class/power_supply/BAT0/status": "Discharging", "sys/class/net/wwan0/operstate": "up",
        "proc/net/route": "Iface Destination Gateway Flags RefCnt Use Metric Mask\nwwan0 00000000 0 3 0 0 700 00000000",
    })  # fmt: skip
    Recorder({"fake:1": FakeSensor([rows(15)])}, out, Labels("rest"), root).run()
    [moment, *_] = read_availability(out / "wrist-left.availability.csv").moments
    assert (moment.offline, moment.charging, moment.battery, moment.metered) == (False, False, 0.18, True)
    assert moment.celsius == read_telemetry(root).hottest
    assert [trace.name for trace in load_folder(out)] == ["wrist-left"] and find_availability(out, "wrist-left").times


def test_a_label_is_said_by_the_clock_of_what_is_recorded(tmp_path: Path) -> None:
    """That of a recording which is played back is not ours: labels once came too late for all of it."""
    played = Recorder({"a": FakeSensor([rows(5)])}, tmp_path / "a", Labels(), clock=lambda: 2e9)
    assert played.now() == -math.inf  # all that comes
    played.run()
    assert played.now() == pytest.approx(1e9 + 0.4)
    live = Recorder({"a": FakeSensor([rows(5)])}, tmp_path / "b", Labels(), clock=lambda: 1e9 + 7)
    live.run()
    assert live.now() == 1e9 + 7


def test_what_a_trace_cannot_hold_is_counted_and_a_clock_that_went_back_begins_another(tmp_path: Path) -> None:
    bad = [Reading(1e9 + 0.25, (math.nan, 1.0)), Reading(1e9 + 0.1, (1.0, 1.0)), Reading(1e9 + 0.2, (1.0, 1.0))]
    file = TraceFile(tmp_path, "s", ("x", "y"), Labels())
    file.write([*rows(3), *bad])
    file.write([*rows(4, 5e8), *rows(2, 4e8)])
    file.close()
    assert (file.samples, file.left_out, file.parts) == (9, 3, 3)
    assert [len(read_trace(tmp_path / f"{name}.csv").time) for name in ("s", "s-2", "s-3")] == [3, 4, 2]


def test_a_sensor_that_fails_ends_the_recording_and_keeps_what_there_was(tmp_path: Path) -> None:
    good = FakeSensor([rows(1, 1e9 + n) for n in range(10_000)])
    bad = FakeSensor([rows(5)], SensorError("it is plugged out"))
    recorder = Recorder({"a": good, "b": bad}, tmp_path / "out", Labels())
    with pytest.raises(SensorError, match="plugged out"):
        recorder.run()
    assert good.events == bad.events == ["open", "close"]
    assert len(read_trace(tmp_path / "out" / "wrist-left_2.csv").time) == 5
    broken = Recorder({"c": FakeSensor([], ZeroDivisionError("a defect"))}, tmp_path / "other", Labels())
    with pytest.raises(SensorError, match="c: ZeroDivisionError: a defect"):
        broken.run()


@pytest.mark.parametrize("values", [(1.0,), (1.0, 2.0, 3.0)])
def test_a_reading_of_other_channels_is_no_line_of_a_trace(tmp_path: Path, values: tuple[float, ...]) -> None:
    """A line of fewer columns once had its label where a channel was expected."""
    recorder = Recorder({"a": FakeSensor([rows(5), [Reading(1e9 + 1, values)]])}, tmp_path / "out", Labels())
    with pytest.raises(SensorError, match=rf"wrist.left: a reading of {len(values)} values, expected 2, .* x, y"):
        recorder.run()
    assert len(read_trace(tmp_path / "out" / "wrist-left.csv").time) == 5


def test_a_sensor_that_is_not_there_leaves_nothing_behind(tmp_path: Path) -> None:
    """So that the same command works once it is plugged in."""

    class Absent(FakeSensor):
        def open(self) -> None:
            raise SensorError("it is not there")

    first = FakeSensor([rows(5)])
    with pytest.raises(SensorError, match="not there"):
        Recorder({"a": first, "b": Absent([])}, tmp_path / "out", Labels()).run()
    assert first.events == ["open", "close"] and not (tmp_path / "out").exists()


def test_whatever_a_sensor_raises_when_it_is_opened_names_it(tmp_path: Path) -> None:
    class Restless(FakeSensor):
        def open(self) -> None:
            Pace({}["rate"])

    with pytest.raises(SensorError, match="a: KeyError: 'rate'"):
        Recorder({"a": Restless([])}, tmp_path / "out", Labels()).run()
    with pytest.raises(UsageError, match="rate_hz = 0, expected above 0"):
        Pace(0)


def test_what_cannot_be_recorded_is_refused_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        Recorder({"a": FakeSensor([])}, tmp_path, Labels())
    for channels in ("", "xx"):
        with pytest.raises(UsageError, match="channels"):
            Recorder({"a": FakeSensor([], channels=channels)}, tmp_path / "out", Labels())
    with pytest.raises(UsageError, match=r"wrist left: units \('g', 'g'\), expected 3, one for each of its channels"):
        Recorder({"a": FakeSensor([], channels="xyz")}, tmp_path / "out", Labels())
    for label in ("", " ", "a\nb", "x" * 201):
        with pytest.raises(UsageError, match="label"):
            Labels(label)


# The command ------------------------------------------------------------------------------------------------------
def record(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "edge_sdk.cli", "record", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait(what: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_two_recordings_are_played_into_traces(tmp_path: Path) -> None:
    (tmp_path / "100.hea").write_text(HEADER)
    (tmp_path / "100.dat").write_bytes(pack_212([1024, 1024] * 500))
    (tmp_path / "night.edf").write_bytes(make_edf(records=20))
    sources = [f"wfdb:{tmp_path / '100'},speed=0", f"edf:{tmp_path / 'night.edf'},speed=0"]
    done = record(*sources, tmp_path / "out", "--label", "beat")
    said, error = done.communicate()
    assert done.returncode == 0, error
    assert "100.csv: 500 samples" in said and "night.csv: 80 samples" in said
    first, second = (read_trace(tmp_path / "out" / f"{name}.csv") for name in ("100", "night"))
    assert first.classes == second.classes == ("beat",) and first.rate_hz == pytest.approx(360, rel=1e-3)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_live_line_is_recorded_with_labels_and_survives_every_end(tmp_path: Path, end: signal.Signals) -> None:
    pytest.importorskip("serial", reason="pyserial is not installed (the extra `serial`)")
    board, ours = pty.openpty()
    tty.setraw(board)
    out = tmp_path / "out"
    process = record(f"serial:{os.ttyname(ours)},channels=x y", out, "--label", "rest")
    assert process.stdin is not None
    sent = 0

    def lines() -> int:
        nonlocal sent
        os.write(board, b"".join(b"%d %d\n" % (sent + n, -n) for n in range(5)))
        sent += 5
        return len(written().splitlines())

    def written() -> str:
        files = [path for path in out.glob("*.csv") if "availability" not in path.name]
        return files[0].read_text() if files else ""

    try:
        wait(lambda: lines() > 40)
        process.stdin.write("walk\n")
        process.stdin.flush()
        wait(lambda: "walk" in written() or lines() < 0)
        before = lines()
        wait(lambda: lines() > before + 40)
    finally:
        process.send_signal(end)
        said, error = process.communicate(timeout=60)
        for file in (board, ours):
            os.close(file)
    assert process.returncode == (-signal.SIGKILL if end == signal.SIGKILL else 0), error
    assert ("samples" in said) == (end != signal.SIGKILL)
    [trace] = load_folder(out)
    assert set(trace.classes) == {"rest", "walk"} and len(trace.time) > 80
    assert trace.values[1, 0] > trace.values[0, 0]


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    """It said "[Errno 28] No space left on device"."""
    trace = TraceFile(tmp_path, "wrist", ("x",), Labels("walk"), parts=1, file=io.FileIO("/dev/full", "w"))
    with pytest.raises(SensorError, match=r"wrist\.csv: cannot be written: No space left on device"):
        trace.write([Reading(1.0, (1.0,))])
    trace.close()
    recorder = Recorder({}, tmp_path / "new", Labels())
    recorder.folder.mkdir()
    (recorder.folder / "telemetry.jsonl").symlink_to("/dev/full")
    with pytest.raises(SensorError, match=r"telemetry\.jsonl: cannot be written: No space left on device"):
        recorder.note_telemetry()
