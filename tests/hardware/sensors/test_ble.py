"""Bluetooth LE with a client that is no radio: what straps send, lost connections, slow readers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.ble import (
    HEART_RATE,
    WAITING,
    GattNotifications,
    decode_heart_rate,
    decode_packed,
    heart_rate,
)
from edge_sdk.hardware.sensors.sensor import Reading, SensorError, opened


class FakeClient:
    """As much of bleak's client as is used; `send` and `drop` are the device."""

    made: FakeClient

    def __init__(self, address: str, disconnected_callback: Callable[[Any], None]) -> None:
        if address == "away":
            raise OSError("device away was not found")
        FakeClient.made, self.lost, self.connected = self, disconnected_callback, False

    async def __aenter__(self) -> FakeClient:
        self.loop, self.connected = asyncio.get_running_loop(), True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.connected = False

    async def start_notify(self, characteristic: str, heard: Callable[[Any, bytearray], None]) -> None:
        self.characteristic, self.heard = characteristic, heard

    def send(self, *notifications: bytes) -> None:
        done = threading.Event()
        for data in notifications:
            self.loop.call_soon_threadsafe(self.heard, None, bytearray(data))
        self.loop.call_soon_threadsafe(done.set)
        assert done.wait(5)

    def drop(self) -> None:
        self.loop.call_soon_threadsafe(self.lost, self)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (bytes([0x00, 60]), [(60.0, 0.0)]),
        (bytes([0x01, 0x2C, 0x01]), [(300.0, 0.0)]),
        (bytes([0x10, 75, 0x00, 0x04, 0x00, 0x02]), [(75.0, 1.0), (75.0, 0.5)]),
        (bytes([0x18, 75, 0xFF, 0x00, 0x00, 0x03]), [(75.0, 0.75)]),
        (bytes([0x19, 75, 0x00, 0xFF, 0x00, 0x00, 0x03]), [(75.0, 0.75)]),
        (bytes([0x10, 75]), [(75.0, 0.0)]),
    ],
)
def test_heart_rate_measurements(data: bytes, found: list[tuple[float, ...]]) -> None:
    assert decode_heart_rate(data) == found


def test_packed_numbers_and_forms_that_are_none() -> None:
    assert decode_packed("<2h", 0.5)(b"\x02\x00\xfe\xff\x04\x00\x00\x00") == [(1.0, -1.0), (2.0, 0.0)]
    for form in ("", "<q?s", "zz", "<4s"):
        with pytest.raises(UsageError, match="form"):
            decode_packed(form)


def test_notifications_become_readings_until_the_connection_is_lost() -> None:
    times = iter((1.0, 2.0, 3.0))
    with opened(heart_rate("C8:1E", connect=FakeClient, clock=lambda: next(times))) as strap:
        device = FakeClient.made
        assert device.connected and device.characteristic == HEART_RATE
        device.send(bytes([0, 60]), b"", bytes([0x10, 61, 0, 4, 0, 2]))
        assert strap.read(1) == [Reading(1.0, (60.0, 0.0)), Reading(1.5, (61.0, 1.0)), Reading(2.0, (61.0, 0.5))]
        assert strap.refused == 1 and strap.read(0.01) == []
        device.send(bytes([0, 62]))
        device.drop()
        time.sleep(0.05)
        assert [reading.values[0] for reading in strap.read(1)] == [62]
        with pytest.raises(SensorError, match="connection is lost"):
            strap.read(1)
    assert not device.connected


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(SensorError, match="away was not found"), opened(heart_rate("away", connect=FakeClient)):
        pass


def test_the_oldest_go_where_the_reader_is_too_slow() -> None:
    sensor = GattNotifications("C8:1E", "uuid", decode_packed("<h"), ["x"], connect=FakeClient)
    with opened(sensor):
        FakeClient.made.send(b"\1\0" * WAITING, b"\2\0\2\0")
        found = sensor.read(1)
        assert len(found) == WAITING and sensor.dropped == 2 and found[-1].values == (2.0,)
        assert all(one.time <= two.time for one, two in pairwise(found))
