"""Files of actigraphs, written by the descriptions of their formats, for tests and measurements.

https://github.com/actigraph/GT3X-File-Format; GENEActiv instruction manual, "Decoding .bin files"; Open
Movement, cwa.h.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
ACTIVITY, BATTERY, EVENT, LUX, METADATA, PARAMETERS = 0, 2, 3, 5, 6, 21
SAMPLE_RATE, FEATURES, SCALE = (1, 10), (1, 2), (0, 55)
"""Address space and number of a parameter."""
PER_G = 256
SSP_256 = 0x09400000
"""256 as parameters have it: 2^9 * 0.5."""
GAIN, VOLTS, LUX_GAIN = 25_600, 300, 600
"""Of the GENEActiv's calibration; a step is 1/256 g and 2 lux."""
SECTOR = 120
"""Samples of three axes in a block of an Axivity."""


def log_record(kind: int, at: int, payload: bytes) -> bytes:
    """A record of an ActiGraph's log: separator, kind, second since 1970, size, payload, checksum."""
    body = struct.pack("<BBIH", 0x1E, kind, at, len(payload)) + payload
    return body + bytes([~int(np.bitwise_xor.reduce(np.frombuffer(body, np.uint8))) & 0xFF])


def pack_activity(values: Values) -> bytes:
    """Accelerations (n, 3) of a second in g, in 12 bits each, y before x before z."""
    steps = np.round(values[:, [1, 0, 2]] * PER_G).astype(np.int64).ravel() & 0xFFF
    pairs = np.pad(steps, (0, len(steps) % 2)).reshape(-1, 2)
    found = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], 1)
    return found.astype(np.uint8).tobytes()[: (len(steps) * 12 + 7) // 8]


def parameters(rate: int, scale: int | None = SSP_256) -> bytes:
    pairs = [(*SAMPLE_RATE, rate), (*FEATURES, 4), *([(*SCALE, scale)] if scale is not None else [])]
    return b"".join(struct.pack("<HHI", *pair) for pair in pairs)


def write_gt3x(
    path: Path,
    seconds: Iterable[tuple[int, Values]],
    rate: int,
    *,
    beside: Sequence[tuple[int, int, bytes]] | None = None,
    info: Sequence[str] = ("Serial Number: MOS2A0001", "Device Type: wGT3XBT", "Firmware: 1.9.2"),
) -> Path:
    """Writes seconds (since 1970, by the local clock) with their accelerations (rate, 3).

    Args:
        beside: kinds, seconds and payloads of other records; None: the parameters.
    """
    seconds = list(seconds)
    beside = [(PARAMETERS, seconds[0][0], parameters(rate))] if beside is None else beside
    records = [*beside, *((ACTIVITY, at, pack_activity(values)) for at, values in seconds)]
    log = b"".join(log_record(*one) for one in sorted(records, key=lambda one: (one[1], -one[0])))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.bin", log)
        archive.writestr("info.txt", "\r\n".join([*info, f"Sample Rate: {rate}", ""]))
    return path


HEAD = """Device Identity
Device Unique Serial Code:012345
Device Type:GENEActiv
Device Model:1.2
Device Firmware Version:Ver06.17 15June23
Calibration Date:2023-09-08 14:14:04:000

Device Capabilities
Accelerometer Range:-8 to 8
Accelerometer Resolution:0.0039
Accelerometer Units:g
Light Meter Range:0 to 20000
Light Meter Resolution:3 to 48
Light Meter Units:lux
Temperature Sensor Range:0 to 70
Temperature Sensor Resolution:0.1
Temperature Sensor Units:deg. C

Configuration Info
Measurement Frequency:{rate} Hz
Measurement Period:24 Hours
Start Time:2024-04-30 15:13:30:000
Time Zone:{zone}

Trial Info
Study Centre:
Study Code:
Investigator ID:
Exercise Type:
Config Operator ID:
Config Time:2024-04-30 15:12:34:146
Config Notes:
Extract Operator ID:
Extract Time:2024-04-30 15:15:30:787
Extract Notes:

Subject Info
Device Location Code:
Subject Code:
Date of Birth:1900-01-01
Sex:
Height:
Weight:
Handedness Code:
Subject Notes:

Calibration Data
x gain:{gain}
x offset:0
y gain:{gain}
y offset:0
z gain:{gain}
z offset:0
Volts:{volts}
Lux:{lux}

Memory Status
Number of Pages:{pages}

"""
PAGE = """Recorded Data
Device Unique Serial Code:012345
Sequence Number:{number}
Page Time:{time}
Unassigned:
Temperature:{temperature}
Battery voltage:4.1
Device Status:Recording
Measurement Frequency:{rate}
{data}
"""


def write_geneactiv(
    path: Path,
    pages: Sequence[tuple[float, Values, float, float]],
    rate: float | str,
    *,
    zone: str = "GMT +02:00",
    said: int | None = None,
) -> Path:
    """Writes pages: the second at which each begins, accelerations (n, 3), lux and temperature.

    Args:
        rate: as the file has it.
        said: pages that its head speaks of; None: those that are there.
    """
    count = len(pages) if said is None else said
    text = HEAD.format(rate=rate, zone=zone, gain=GAIN, volts=VOLTS, lux=LUX_GAIN, pages=count)
    for number, (at, values, lux, temperature) in enumerate(pages):
        steps = np.round(values * PER_G).astype(np.int64) & 0xFFF
        light = round(lux * VOLTS / LUX_GAIN)
        words = steps[:, 0] << 36 | steps[:, 1] << 24 | steps[:, 2] << 12 | light << 2
        time = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S:%f")[:-3]
        data = ("%012X" * len(words)) % tuple(words.tolist())
        text += PAGE.format(number=number, time=time, temperature=temperature, rate=rate, data=data)
    path.write_text(text)
    return path


def cwa_time(at: float) -> tuple[int, int]:
    """The second as an Axivity packs it, and the fraction of the next one with its mark."""
    whole = int(at // 1)
    moment = datetime(1970, 1, 1) + timedelta(seconds=whole)
    day = moment.year - 2000 << 26 | moment.month << 22 | moment.day << 17
    return day | moment.hour << 12 | moment.minute << 6 | moment.second, 0x8000 | int((at - whole) * 32768)


def write_cwa(
    path: Path,
    blocks: Sequence[tuple[float, Values, int, float]],
    *,
    rate_code: int = 0x4A,
    nominal: int = 100,
    zone: int = -1,
    gyroscope: bool = False,
) -> Path:
    """Writes blocks: the second at which each begins, accelerations (n, 3), light and temperature; with a gyroscope
    (n, 6), angular velocities (deg/s) first."""
    head = struct.pack("<2sHBHIH", b"MD", 1020, 0x64 if gyroscope else 0, 4711, 7, 0xFFFF).ljust(1024, b"\0")
    parts = [head[:36] + bytes([rate_code]) + head[37:42] + struct.pack("<h", zone) + head[44:]]
    for number, (at, values, light, temperature) in enumerate(blocks):
        time, fraction = cwa_time(at)
        shift = -(((fraction & 0x7FFF) << 1) * nominal >> 16)
        heat = round((temperature + 50) * 256 / 75)
        if gyroscope:  # 16 bits each: 2000 deg/s in 2^15 steps, and 1/2048 g
            steps = np.round(values * ([32768 / 2000] * 3 + [2048] * 3)).astype("<i2")
            data, kind, scales = steps.tobytes(), 0x62, 2 << 10 | 3 << 13
        else:
            steps = np.round(values * PER_G).astype(np.int64) & 0x3FF
            words = steps[:, 0] | steps[:, 1] << 10 | steps[:, 2] << 20
            data, kind, scales = words.astype("<u4").tobytes(), 0x30, 0
        fields = (
            b"AX",
            508,
            fraction,
            7,
            number,
            time,
            light | scales,
            heat,
            0,
            190,
            rate_code,
            kind,
            shift,
            len(values),
        )
        block = struct.pack("<2sHHIIIHHBBBBhH", *fields) + data.ljust(480, b"\0")
        parts.append(block + struct.pack("<H", -int(np.frombuffer(block, "<u2").sum()) & 0xFFFF))
    path.write_bytes(b"".join(parts))
    return path
