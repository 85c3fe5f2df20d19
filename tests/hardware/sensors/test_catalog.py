"""Sensors by a line of text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.ble import GattNotifications
from edge_sdk.hardware.sensors.catalog import KINDS, make_sensor
from edge_sdk.hardware.sensors.iio import IioPolled
from edge_sdk.hardware.sensors.mpu6050 import Mpu6050
from edge_sdk.hardware.sensors.mqtt_topics import MqttTopics
from edge_sdk.hardware.sensors.sensor import opened
from edge_sdk.hardware.sensors.serial_lines import SerialLines
from tests.hardware.sensors.test_iio import lay_buffer
from tests.hardware.sensors.test_recordings import lay_record, make_edf


def test_every_kind(tmp_path: Path) -> None:
    lay_buffer(tmp_path)
    (tmp_path / "n.edf").write_bytes(make_edf())
    lines = {
        "iio:lis3dh_accel,rate=32,channels=in_accel_x|in_accel_y": ("accel_x", "accel_y"),
        "iio-polled:iio:device0,rate=5": ("accel_x", "accel_y", "accel_z", "temp"),
        "serial:/dev/ttyUSB0,channels=x y z,baud=9600,units=g g g": ("x", "y", "z"),
        "mqtt:127.0.0.1,port=1884,t=kitchen/t#value": ("t",),
        "heart-rate:C8:1E:00:00:00:01": ("bpm", "rr"),
        "gatt:C8:1E:00:00:00:01,characteristic=2a37,form=<3h,channels=x y z,scale=0.1": ("x", "y", "z"),
        "mpu6050:1,rate=100,accel_range=8": ("accel_x", "accel_y", "accel_z", "anglvel_x", "anglvel_y", "anglvel_z"),
        f"wfdb:{lay_record(tmp_path)},speed=0": ("MLII", "V5"),
        f"edf:{tmp_path / 'n.edf'},speed=0,channels=EEG Fpz-Cz|EOG": ("EEG Fpz-Cz", "EOG"),
    }
    assert {line.partition(":")[0] for line in lines} == set(KINDS)
    made = {line: make_sensor(line, tmp_path) for line in lines}
    assert {line: sensor.channels for line, sensor in made.items()} == lines
    assert all(len(sensor.units) == len(sensor.channels) for sensor in made.values())
    polled, serial, mqtt, strap, gatt, mpu = list(made.values())[1:7]
    assert isinstance(polled, IioPolled) and polled.rate_hz == 5
    assert isinstance(serial, SerialLines) and serial.baud == 9600
    assert isinstance(mqtt, MqttTopics) and mqtt.port == 1884 and mqtt.paths == {"t": ("kitchen/t", ("value",))}
    assert isinstance(strap, GattNotifications) and strap.address == "C8:1E:00:00:00:01"
    assert isinstance(gatt, GattNotifications) and gatt.decode(b"\1\0\2\0\3\0") == [pytest.approx((0.1, 0.2, 0.3))]
    assert isinstance(mpu, Mpu6050) and mpu.ranges == (8, 250)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("usb:/dev/x", "iio, iio-polled, serial"),
        ("serial", "KIND:TARGET"),
        ("serial:", "KIND:TARGET"),
        ("serial:/dev/x,channels", "KEY=VALUE"),
        ("serial:/dev/x,channels=x,colour=red", "colour is no option of serial"),
        ("serial:/dev/x,channels=x,baud=fast", "baud = 'fast', expected a whole number"),
        ("serial:/dev/x", "channels"),
        ("mpu6050:one", "bus = 'one', expected a whole number"),
        ("mpu6050:1,rate=fast", "rate = 'fast', expected a number"),
        ("mpu6505:1", "; perhaps mpu6050"),
        ("mpu6050:1,rate=nan", "rate"),
        ("iio:nothing", "nothing"),
        ("gatt:C8,characteristic=u,form=zz,channels=x", "zz"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_sensor(line, tmp_path)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    said = "serial is missing here: pip install pyserial"
    with pytest.raises(UsageError, match=said), opened(SerialLines("/dev/x", ["x"])):
        pass
