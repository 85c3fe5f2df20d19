"""The MPU-6050 on a bus that is a table of registers."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.mpu6050 import Mpu6050
from edge_sdk.hardware.sensors.sensor import Pace, SensorError, opened


class FakeBus:
    """Registers of one chip at 0x68; anything else does not answer."""

    def __init__(self, number: int, who: int = 0x68) -> None:
        self.number, self.registers, self.closed = number, {0x75: who}, False
        self.sample = struct.pack(">7h", 16384, -8192, 0, 0, 131, -262, 0)

    def check(self, address: int) -> None:
        if address != 0x68:
            raise OSError(121, "Remote I/O error")

    def read_byte_data(self, address: int, register: int) -> int:
        self.check(address)
        return self.registers[register]

    def write_byte_data(self, address: int, register: int, value: int) -> None:
        self.check(address)
        self.registers[register] = value

    def read_i2c_block_data(self, address: int, register: int, length: int) -> list[int]:
        self.check(address)
        assert register == 0x3B and self.registers[0x6B] & 0x40 == 0, "asleep"
        if not self.sample:
            raise OSError(5, "Input/output error")
        return list(self.sample[:length])

    def close(self) -> None:
        self.closed = True


def still(rate: float = 50) -> Pace:
    now = [0.0]
    return Pace(rate, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))


def test_it_is_woken_set_up_and_read_in_si_units() -> None:
    buses: list[FakeBus] = []

    def connect(number: int) -> FakeBus:
        buses.append(FakeBus(number))
        return buses[-1]

    sensor = Mpu6050(3, 50, accel_range=4, gyro_range=500, connect=connect, clock=lambda: 7.0, pace=still())
    with opened(sensor):
        [bus] = buses
        assert bus.number == 3
        assert {k: bus.registers[k] for k in (0x6B, 0x19, 0x1C, 0x1B)} == {0x6B: 1, 0x19: 19, 0x1C: 8, 0x1B: 8}
        [reading] = sensor.read(1)
        assert reading.time == 7
        assert reading.values == pytest.approx((2 * 9.80665, -9.80665, 0, math.radians(2), math.radians(-4), 0))
        bus.sample = b""
        with pytest.raises(SensorError, match="Input/output"):
            sensor.read(1)
    assert bus.closed


@pytest.mark.parametrize(("more", "said"), [({"address": 0x69}, "0x69"), ({"who": 0x71}, "says 0x71")])
def test_another_chip_or_none(more: dict[str, Any], said: str) -> None:
    who = more.pop("who", 0x68)
    with pytest.raises(SensorError, match=said), opened(Mpu6050(connect=lambda n: FakeBus(n, who), **more)):
        pass


@pytest.mark.parametrize("wrong", [{"rate_hz": 1000}, {"accel_range": 3}, {"gyro_range": 100}, {"rate_hz": 0}])
def test_settings_that_the_chip_has_not(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="mpu6050"):
        Mpu6050(**wrong)
