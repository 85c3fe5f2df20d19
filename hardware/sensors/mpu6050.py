"""An MPU-6050 (accelerometer and gyroscope) on an I2C bus, without a driver of the kernel.

Registers and scales: MPU-6000/MPU-6050 Register Map and Descriptions, RM-MPU-6000A-00, revision 4.2, InvenSense.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.extras import import_extra
from edge_sdk.hardware.sensors.sensor import Pace, Reading, SensorError
from edge_sdk.hardware.units import GRAVITY

ADDRESS = 0x68
DIVIDER, CONFIG, GYRO_CONFIG, ACCEL_CONFIG, FIRST, POWER, WHO = 0x19, 0x1A, 0x1B, 0x1C, 0x3B, 0x6B, 0x75
SAMPLE = struct.Struct(">7h")  # three accelerations, temperature, three rates, as from register 0x3B on
ACCEL_RANGES = {2: 16384.0, 4: 8192.0, 8: 4096.0, 16: 2048.0}
"""Range in g -> counts per g."""
GYRO_RANGES = {250: 131.0, 500: 65.5, 1000: 32.8, 2000: 16.4}
"""Range in degrees/s -> counts per degree/s."""
SMOOTHED = 3  # CONFIG: low pass of 44 Hz, at which the chip samples internally at 1 kHz


class Mpu6050:
    """The chip, read `rate_hz` times a second.

    Args:
        bus: number of the I2C bus; 1 on a Raspberry Pi's header.
        rate_hz: readings per second, 4 to 200.
        accel_range: g, one of 2, 4, 8, 16.  gyro_range: degrees/s, one of 250, 500, 1000, 2000.
        connect: makes the bus from its number; tests give a fake.
    """

    def __init__(
        self,
        bus: int = 1,
        rate_hz: float = 50.0,
        accel_range: int = 2,
        gyro_range: int = 250,
        address: int = ADDRESS,
        connect: Callable[[int], Any] | None = None,
        clock: Callable[[], float] = time.time,
        pace: Pace | None = None,
    ) -> None:
        if not 4 <= rate_hz <= 200:
            raise UsageError(f"mpu6050: rate_hz = {rate_hz}, expected 4 to 200")
        if accel_range not in ACCEL_RANGES or gyro_range not in GYRO_RANGES:
            wanted = f"{', '.join(map(str, ACCEL_RANGES))} g and {', '.join(map(str, GYRO_RANGES))} degrees/s"
            raise UsageError(f"mpu6050: ranges {accel_range} g and {gyro_range} degrees/s; expected one of {wanted}")
        self.number, self.address, self.connect, self.clock, self.pace = bus, address, connect, clock, pace
        self.name, self.rate_hz = "mpu6050", rate_hz
        self.channels = ("accel_x", "accel_y", "accel_z", "anglvel_x", "anglvel_y", "anglvel_z")
        self.units = ("m/s^2",) * 3 + ("rad/s",) * 3
        self.ranges = (accel_range, gyro_range)
        self.bus: Any = None

    def open(self) -> None:
        """Wakes the chip and sets rate and ranges; anything else at its address is refused."""
        connect = self.connect or import_extra("smbus2").SMBus
        accel, gyro = self.ranges
        try:
            self.bus = connect(self.number)
            who = self.bus.read_byte_data(self.address, WHO)
            if who != ADDRESS:
                raise SensorError(
                    f"mpu6050: the chip at {self.address:#x} says {who:#x} of itself, expected {ADDRESS:#x}"
                )
            for register, value in (
                (POWER, 1),  # awake, clock of the gyroscope
                (CONFIG, SMOOTHED),
                (DIVIDER, max(0, min(255, round(1000 / (self.rate_hz or 1)) - 1))),
                (ACCEL_CONFIG, list(ACCEL_RANGES).index(accel) << 3),
                (GYRO_CONFIG, list(GYRO_RANGES).index(gyro) << 3),
            ):
                self.bus.write_byte_data(self.address, register, value)
        except OSError as error:
            raise SensorError(f"mpu6050: bus {self.number}, address {self.address:#x}: {error}") from error
        self.pace = self.pace or Pace(self.rate_hz or 1)

    def read(self, timeout: float) -> list[Reading]:
        assert self.pace is not None
        if not self.pace.wait(timeout):
            return []
        try:
            data = bytes(self.bus.read_i2c_block_data(self.address, FIRST, SAMPLE.size))
        except OSError as error:
            raise SensorError(f"mpu6050: {error}") from error
        return [Reading(self.clock(), self.convert(data))]

    def convert(self, data: bytes) -> tuple[float, ...]:
        """Accelerations in m/s^2 and rates in rad/s of the chip's 14 bytes."""
        ax, ay, az, _, gx, gy, gz = SAMPLE.unpack(data)
        accel, gyro = ACCEL_RANGES[self.ranges[0]], GYRO_RANGES[self.ranges[1]]
        return (*(a / accel * GRAVITY for a in (ax, ay, az)), *(math.radians(g / gyro) for g in (gx, gy, gz)))

    def close(self) -> None:
        if self.bus is not None:
            self.bus.close()
            self.bus = None
