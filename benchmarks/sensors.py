"""Samples a second that sensors and the recorder take on one core, and what a reading of telemetry costs.

    python benchmarks/sensors.py [--samples 100000]

Bytes come from memory, a FIFO or a pseudo terminal, so that no real device is the limit. A wrist's accelerometer gives
32 to 100 samples a second, an ECG 250 to 1000: the last column says how much of a core 100 a second would take.
"""

from __future__ import annotations

import argparse
import os
import struct
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path

from edge_sdk.hardware.boards.telemetry import read_telemetry
from edge_sdk.hardware.sensors.ble import decode_heart_rate, decode_packed
from edge_sdk.hardware.sensors.iio import IioBuffered
from edge_sdk.hardware.sensors.record import Labels, TraceFile
from edge_sdk.hardware.sensors.recording import Playback, StoredSignals
from edge_sdk.hardware.sensors.sensor import Reading, Sensor, opened

SCAN = struct.Struct("<hhhxxq")


def lay_device(root: Path) -> Path:
    """Lays out the files of an accelerometer with three channels and a time stamp."""
    folder = root / "sys/bus/iio/devices/iio:device0"
    (folder / "scan_elements").mkdir(parents=True)
    (folder / "buffer").mkdir()
    (folder / "in_accel_scale").write_text("0.01")
    for index, name in enumerate(("accel_x", "accel_y", "accel_z", "timestamp")):
        form = "le:s64/64>>0" if name == "timestamp" else "le:s12/16>>4"
        for what, text in (("en", "0"), ("index", str(index)), ("type", form)):
            (folder / "scan_elements" / f"in_{name}_{what}").write_text(text)
    (root / "dev").mkdir()
    os.mkfifo(root / "dev/iio:device0")
    return folder


def drain(sensor: Sensor, wanted: int) -> float:
    """Reads so many samples, and returns the processor's seconds of this thread."""
    began, count = time.thread_time(), 0
    while count < wanted:
        count += len(sensor.read(1.0))
    return time.thread_time() - began


def time_iio(samples: int) -> float:
    """Seconds for samples of an accelerometer's buffer."""
    with tempfile.TemporaryDirectory() as name:
        sensor = IioBuffered(lay_device(Path(name)))
        data = b"".join(SCAN.pack(16 * (n % 99), 0, 0, n) for n in range(samples))

        def feed() -> None:
            with open(sensor.node, "wb") as kernel:
                kernel.write(data)

        with opened(sensor):
            thread = threading.Thread(target=feed, daemon=True)
            thread.start()
            return drain(sensor, samples)


def time_playback(samples: int) -> float:
    """Seconds for samples of a stored recording with three channels."""
    column = array("d", range(samples))
    with opened(Playback(StoredSignals("x", 100, ("x", "y", "z"), ("",) * 3, (column,) * 3), speed=0)) as sensor:
        return drain(sensor, samples)


def time_decoding(decode: Callable[[bytes], object], data: bytes, samples: int, each: int) -> float:
    """Seconds for notifications of `each` samples."""
    began = time.thread_time()
    for _ in range(samples // each):
        decode(data)
    return time.thread_time() - began


def time_writing(samples: int) -> float:
    """Seconds for a trace of three channels, a hundred samples at a time."""
    with tempfile.TemporaryDirectory() as name:
        file = TraceFile(Path(name), "x", ("x", "y", "z"), Labels())
        began = time.thread_time()
        for first in range(0, samples, 100):
            file.write([Reading(1e9 + n / 100, (n / 3, 0.5, -9.81)) for n in range(first, first + 100)])
        file.close()
        return time.thread_time() - began


def time_telemetry(_: int) -> float:
    """Seconds for a hundred readings of this machine's telemetry."""
    began = time.thread_time()
    for _ in range(100):
        read_telemetry()
    return time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=100_000)
    samples = parser.parse_args().samples
    packed = decode_packed("<3h", 0.01)
    rows: list[tuple[str, Callable[[int], float]]] = [
        ("IIO buffer, 3 channels and time", time_iio),
        ("playback, 3 channels", time_playback),
        ("GATT, 3 numbers, 6 a notification", lambda n: time_decoding(packed, bytes(36), n, 6)),
        ("heart rate with one interval", lambda n: time_decoding(decode_heart_rate, b"\x10\x3c\x00\x04", n, 1)),
        ("written as a trace, 3 channels", time_writing),
    ]
    print(f"{'what':<36}{'samples/s':>12}{'% of a core at 100 Hz':>24}")
    for name, measure in rows:
        seconds = measure(samples)
        print(f"{name:<36}{samples / seconds:>12,.0f}{100 * 100 * seconds / samples:>24.3f}")
    print(f"{'one reading of telemetry':<36}{1e3 * time_telemetry(100) / 100:>12.2f} ms")


if __name__ == "__main__":
    main()
