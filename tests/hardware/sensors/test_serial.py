"""Lines on a serial port: a pseudo terminal is the board that prints them."""

from __future__ import annotations

import os
import pty
import tty
from collections.abc import Iterator
from contextlib import suppress

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.sensor import SensorError, opened
from edge_sdk.hardware.sensors.serial_lines import LONGEST, SerialLines

pytest.importorskip("serial", reason="pyserial is not installed (the extra `serial`)")


@pytest.fixture
def line() -> Iterator[tuple[int, str]]:
    """The board's end of a line, and the port of ours."""
    board, ours = pty.openpty()
    tty.setraw(board)
    yield board, os.ttyname(ours)
    for end in (board, ours):
        with suppress(OSError):  # a test may have plugged it out
            os.close(end)


def test_lines_become_readings(line: tuple[int, str]) -> None:
    board, port = line
    times = iter((10.0, 11.0, 13.0, 14.0))
    with opened(SerialLines(port, ["x", "y"], ["g", "g"], clock=lambda: next(times))) as sensor:
        os.write(board, b"5,6\r\n1.5, -2\r\n")
        [first] = sensor.read(1)  # the first line may have been cut where we came in
        assert (first.time, first.values) == (10, (1.5, -2.0))
        os.write(board, b"hello from board 7\nnan 1\n1 2 3\n3\t4")
        assert sensor.read(1) == [] and sensor.refused == 3
        os.write(board, b"5\n1e-3;2\n")
        later = sensor.read(1)
        assert [reading.values for reading in later] == [(3.0, 45.0), (0.001, 2.0)]
        assert [reading.time for reading in later] == [11.5, 13]  # together they arrived at 13, the last before at 10
    with pytest.raises(UsageError, match="channels"):
        SerialLines(port, ["x", "x"])


def test_times_of_readings_always_rise(line: tuple[int, str]) -> None:
    board, port = line
    with opened(SerialLines(port, ["x"])) as sensor:
        os.write(board, b"\n")
        assert sensor.read(1) == []
        times = []
        for _ in range(5):
            os.write(board, b"1\n2\n3\n")
            found = []
            while len(found) < 3:
                found += sensor.read(1)
            times += [reading.time for reading in found]
        assert sorted(times) == times and times[0] < times[-1]


def test_a_line_without_end_costs_no_memory(line: tuple[int, str]) -> None:
    board, port = line
    with opened(SerialLines(port, ["x"])) as sensor:
        for _ in range(3 * LONGEST // 512):
            os.write(board, b"7" * 512)
            sensor.read(0.1)
            assert len(sensor.rest) <= LONGEST
        assert sensor.refused >= 2
        os.write(board, b"7\n8\n")
        assert [reading.values for reading in sensor.read(1)] == [(8.0,)]


def test_plugging_out_and_a_port_that_is_not_there(line: tuple[int, str]) -> None:
    board, port = line
    with opened(SerialLines(port, ["x"])) as sensor:
        os.close(board)
        with pytest.raises(SensorError, match=port):
            sensor.read(0.2)
    with pytest.raises(SensorError, match="/dev/nowhere"), opened(SerialLines("/dev/nowhere", ["x"])):
        pass
