"""Linux IIO from a fake tree: polled files, and a buffer whose bytes come through a FIFO."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.iio import IioBuffered, IioPolled, ScanElement, find_iio, place_elements
from edge_sdk.hardware.sensors.sensor import Pace, SensorEnded, SensorError, opened
from tests.hardware.boards.fake_root import lay

DEVICE = "sys/bus/iio/devices/iio:device0"


def lay_accelerometer(root: Path) -> Path:
    lay(root, {f"{DEVICE}/name": "lis3dh_accel", f"{DEVICE}/in_accel_scale": "0.01", f"{DEVICE}/in_accel_offset": 5})
    lay(root, {f"{DEVICE}/in_accel_{axis}_raw": raw for axis, raw in zip("xyz", (95, -105, 976), strict=True)})
    lay(root, {f"{DEVICE}/in_temp_raw": 20, f"{DEVICE}/in_temp_scale": "1000", f"{DEVICE}/in_temp_offset": "1.5"})
    return find_iio("lis3dh_accel", root)


def lay_buffer(root: Path) -> Path:
    folder = lay_accelerometer(root)
    scan = f"{DEVICE}/scan_elements"
    for index, name in enumerate(("accel_x", "accel_y", "accel_z", "timestamp")):
        form = "le:s64/64>>0" if name == "timestamp" else "le:s12/16>>4"
        lay(root, {f"{scan}/in_{name}_en": 0, f"{scan}/in_{name}_index": index, f"{scan}/in_{name}_type": form})
    lay(root, {f"{DEVICE}/buffer/enable": 0, f"{DEVICE}/buffer/length": 2, f"{DEVICE}/sampling_frequency": 25})
    lay(root, {f"{DEVICE}/current_timestamp_clock": "monotonic"})
    (root / "dev").mkdir()
    os.mkfifo(root / "dev/iio:device0")
    return folder


def scan(x: int, y: int, z: int, nanoseconds: int) -> bytes:
    return struct.pack("<hhhxxq", x << 4, y << 4, z << 4, nanoseconds)


def test_polled_values_have_offset_scale_and_units(tmp_path: Path) -> None:
    now = [0.0]
    pace = Pace(10, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    folder = lay_accelerometer(tmp_path)
    with opened(IioPolled(folder, 10, clock=lambda: 1000 + now[0], pace=pace)) as sensor:
        assert sensor.channels == ("accel_x", "accel_y", "accel_z", "temp")
        assert sensor.units == ("m/s^2", "m/s^2", "m/s^2", "mCelsius")
        [first] = sensor.read(1)
        assert first.time == 1000 and first.values == pytest.approx((1.0, -1.0, 9.81, 21500))
        lay(tmp_path, {f"{DEVICE}/in_accel_x_raw": -5})
        [second] = sensor.read(1)
        assert second.time == pytest.approx(1000.1) and second.values[0] == 0
        assert sensor.read(0.01) == []  # not yet
        now[0] += 1.0
        assert len(sensor.read(1)) == 1  # a second was slept through: no samples are made up for it
        assert pace.missed == 9
        (folder / "in_accel_z_raw").unlink()
        with pytest.raises(SensorError, match="in_accel_z_raw"):
            sensor.read(1)


def test_the_buffer_is_set_up_read_and_switched_off(tmp_path: Path) -> None:
    folder = lay_buffer(tmp_path)
    sensor = IioBuffered(folder, rate_hz=32, channels=["in_accel_x", "in_accel_z"])
    with opened(sensor):
        told = {name: (folder / name).read_text() for name in ("sampling_frequency", "current_timestamp_clock")}
        assert told == {"sampling_frequency": "32", "current_timestamp_clock": "realtime"}
        enabled = {p.name: p.read_text() for p in (folder / "scan_elements").glob("*_en")}
        assert enabled == {"in_accel_x_en": "1", "in_accel_y_en": "0", "in_accel_z_en": "1", "in_timestamp_en": "1"}
        assert (folder / "buffer/enable").read_text() == "1" and sensor.rate_hz == 32
        assert sensor.read(0) == []
        two = [struct.pack("<hhxxxxq", x << 4, z << 4, t) for x, z, t in ((95, 976, 10**18), (-2048, 2047, 10**18 + 1))]
        with open(tmp_path / "dev/iio:device0", "wb", buffering=0) as kernel:
            kernel.write(two[0] + two[1][:7])
            [first] = sensor.read(1)
            assert first.time == 1e9 and first.values == pytest.approx((1.0, 9.81))
            assert sensor.read(0) == []  # half a scan is none
            kernel.write(two[1][7:])
            [second] = sensor.read(1)
            assert second.values == pytest.approx((-20.43, 20.52))
        with pytest.raises(SensorEnded):
            sensor.read(1)
    assert (folder / "buffer/enable").read_text() == "0"


def test_all_channels_of_a_scan(tmp_path: Path) -> None:
    with opened(IioBuffered(lay_buffer(tmp_path))) as sensor, open(tmp_path / "dev/iio:device0", "wb") as kernel:
        kernel.write(b"".join(scan(n, -n, 2 * n, 10**9 * n) for n in range(100)))
        kernel.flush()
        readings = sensor.read(1)
        while len(readings) < 100:
            readings += sensor.read(1)
    assert [reading.time for reading in readings] == list(range(100))
    assert readings[7].values == pytest.approx((0.12, -0.02, 0.19))


def test_places_in_a_scan_follow_the_sizes() -> None:
    def element(name: str, index: int, size: int) -> ScanElement:
        return ScanElement(name, index, "le", True, 8 * size, size, 0)

    found = place_elements([element("t", 3, 8), element("x", 0, 2), element("y", 1, 4), element("z", 2, 2)])
    assert found == ({"x": 0, "y": 4, "z": 8, "t": 16}, 24)


@pytest.mark.parametrize(
    ("order", "signed", "bits", "shift", "data", "number"),
    [
        ("le", True, 12, 4, b"\xf0\xff", -1),
        ("be", True, 12, 4, b"\x80\x00", -2048),
        ("be", False, 12, 0, b"\x0f\xff", 4095),
        ("le", False, 16, 0, b"\xff\xff", 65535),
        ("le", True, 24, 8, b"\x00\x01\x00\x80", -8388607),
    ],
)
def test_numbers_of_a_scan(order: str, signed: bool, bits: int, shift: int, data: bytes, number: int) -> None:
    assert ScanElement("x", 0, order, signed, bits, len(data), shift).decode(data) == number


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    folder = lay_buffer(tmp_path)
    with pytest.raises(UsageError, match="lis3dh_accel"):
        find_iio("bmi160", tmp_path)
    assert find_iio("iio:device0", tmp_path) == folder
    lay(tmp_path, {f"{DEVICE}/scan_elements/in_accel_x_type": "le:float32"})
    with pytest.raises(SensorError, match="le:float32"), opened(IioBuffered(folder)):
        pass
    lay(tmp_path, {f"{DEVICE}/scan_elements/in_accel_x_type": "le:s12/16>>4"})
    (tmp_path / "dev/iio:device0").unlink()
    with pytest.raises(SensorError, match="udev"), opened(IioBuffered(folder)):
        pass
    assert (folder / "buffer/enable").read_text() == "0"  # it was running when that was found
    with pytest.raises(UsageError, match="rate_hz = 0"):
        IioPolled(folder, 0)
