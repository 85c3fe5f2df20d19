"""Notifications of Bluetooth LE devices: heart rate straps, and any characteristic that sends packed numbers.

bleak is asynchronous; its loop runs on a thread of its own here, and `read` is as of every other sensor. When the
connection is lost, `read` raises: whether to connect again is the application's decision, for it costs battery.
"""

from __future__ import annotations

import asyncio
import queue
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.extras import import_extra
from edge_sdk.hardware.sensors.sensor import Reading, SensorError, spread_times

HEART_RATE = "00002a37-0000-1000-8000-00805f9b34fb"
"""Heart Rate Measurement, assigned number 0x2A37."""
WAITING = 4096
CONNECTING = 30.0
Decode = Callable[[bytes], list[tuple[float, ...]]]


class GattNotifications:
    """A characteristic that notifies.

    Args:
        address: of the device, as bleak takes it.
        characteristic: its UUID.
        decode: bytes of a notification -> values of the samples in it; raises ValueError or struct.error on others.
        channels: a name for each value.
        connect: makes the client from (address, disconnected_callback=...); None: bleak's.
    """

    def __init__(
        self,
        address: str,
        characteristic: str,
        decode: Decode,
        channels: Sequence[str],
        units: Sequence[str] = (),
        connect: Callable[..., Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.address, self.characteristic, self.decode, self.connect = address, characteristic, decode, connect
        self.name, self.channels, self.rate_hz = f"ble-{address.replace(':', '').lower()}", tuple(channels), None
        self.units = tuple(units) or ("",) * len(self.channels)
        self.clock, self.refused, self.dropped = clock, 0, 0
        self.last: float | None = None
        self.thread: threading.Thread | None = None

    def open(self) -> None:
        self.heard: queue.Queue[Reading | None] = queue.Queue(WAITING)
        self.began: queue.Queue[str] = queue.Queue()
        self.gone = ""
        client = self.connect or import_extra("bleak").BleakClient
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve(client)), name=self.name, daemon=True)
        self.thread.start()
        try:
            failed = self.began.get(timeout=CONNECTING)
        except queue.Empty:
            failed = f"not connected after {CONNECTING:.0f} s"
        if failed:
            self.close()
            raise SensorError(f"ble {self.address}: {failed}")

    async def serve(self, make: Callable[..., Any]) -> None:
        """Connects, and hands on what comes until `close`."""
        self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            client = make(self.address, disconnected_callback=lambda _: self.lose("the connection is lost"))
            async with client:
                await self.listen(client)
                self.began.put("")
                await self.stop.wait()
        except Exception as error:  # BleakError has no base of its own; whatever it is, the reader is told
            self.lose(f"{type(error).__name__}: {error}")
            self.began.put(self.gone)

    async def listen(self, client: Any) -> None:
        """Asks for notifications. What goes wrong with that is noted before the client disconnects, and says so."""
        try:
            await client.start_notify(self.characteristic, lambda _, data: self.notified(bytes(data)))
        except Exception as error:
            self.gone = f"{type(error).__name__}: {error}"
            raise

    def notified(self, data: bytes) -> None:
        """Takes a notification, on the loop's thread; the oldest readings go where the reader is too slow."""
        try:
            rows = self.decode(data)
        except (ValueError, struct.error, IndexError):
            self.refused += 1
            return
        now = self.clock()
        for reading in spread_times(self.last, now, rows):
            self.put(reading)
        self.last = now

    def put(self, reading: Reading | None) -> None:
        while True:
            try:
                self.heard.put_nowait(reading)
                return
            except queue.Full:
                self.heard.get_nowait()
                self.dropped += 1

    def lose(self, reason: str) -> None:
        self.gone = self.gone or reason
        self.put(None)

    def read(self, timeout: float) -> list[Reading]:
        readings: list[Reading] = []
        try:
            entry = self.heard.get(timeout=timeout)
            while entry is not None:
                readings.append(entry)
                entry = self.heard.get_nowait()
        except queue.Empty:
            return readings
        if readings:
            self.put(None)  # first what was still heard, at the next call the error
            return readings
        raise SensorError(f"ble {self.address}: {self.gone}")

    def close(self) -> None:
        if self.thread is not None:
            if hasattr(self, "loop") and not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self.stop.set)
            self.thread.join(5)
            self.thread = None


def heart_rate(address: str, **more: Any) -> GattNotifications:
    """A heart rate strap: beats per minute, and seconds of the last interval between beats (0: not told)."""
    return GattNotifications(address, HEART_RATE, decode_heart_rate, ("bpm", "rr"), ("1/min", "s"), **more)


def decode_heart_rate(data: bytes) -> list[tuple[float, ...]]:
    """Decodes a Heart Rate Measurement: one sample for each interval in it, or one without.

    Source: Bluetooth SIG, Heart Rate Service 1.0, section 3.1: flags (bit 0: 16-bit rate, bit 3: energy expended,
    bit 4: intervals), the rate, energy as uint16, then intervals as uint16 of 1/1024 s.
    """
    flags = data[0]
    bpm = struct.unpack_from("<H", data, 1)[0] if flags & 1 else data[1]
    at = (3 if flags & 1 else 2) + (2 if flags & 8 else 0)
    if not flags & 16 or at >= len(data):
        return [(float(bpm), 0.0)]
    intervals = struct.unpack(f"<{(len(data) - at) // 2}H", data[at:])
    return [(float(bpm), interval / 1024) for interval in intervals]


def decode_packed(form: str, scale: float = 1.0) -> Decode:
    """Makes the decoder of notifications that are samples one after the other.

    Args:
        form: of one sample, as in Python's struct, e.g. "<3h" for three 16-bit numbers.
        scale: of every number.

    Raises:
        UsageError: that is no form.
    """
    try:
        sample = struct.Struct(form)
    except struct.error as error:
        raise UsageError(f"form = {form!r}: {error}; expected one of Python's struct, such as '<3h'") from error
    if not sample.size or not all(isinstance(value, (int, float)) for value in sample.unpack(bytes(sample.size))):
        raise UsageError(f"form = {form!r}: expected numbers, such as '<3h'")
    return lambda data: [tuple(value * scale for value in values) for values in sample.iter_unpack(data)]
