"""Sensors by a line of text, as a command line and a settings file have them: KIND:TARGET[,KEY=VALUE ...].

iio:lis3dh_accel,rate=50                          iio-polled:lis3dh_accel,rate=10
serial:/dev/ttyUSB0,channels=x y z,baud=9600      mpu6050:1,rate=50
mqtt:127.0.0.1,temperature=kitchen/t#value        heart-rate:C8:1E:00:00:00:01
gatt:C8:1E:00:00:00:01,characteristic=UUID,form=<3h,channels=x y z
wfdb:records/100,speed=0                          edf:night.edf,speed=0,channels=EEG Fpz-Cz|EOG

Other packages have more kinds, by the entry point `auscult.sensors`: functions like those of KINDS.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError, nearest
from edge_sdk.hardware.sensors.sensor import Sensor
from edge_sdk.plugins import PlugIns

Options = dict[str, str]
Make = Callable[[str, Options, Path], Sensor]
PARTS = ("name", "channels", "units", "rate_hz", "open", "read", "close")
"""What a sensor has."""


def make_sensor(text: str, root: Path = Path("/")) -> Sensor:
    """Makes a sensor; it is not opened.

    Args:
        text: as above.
        root: directory below which Linux's files are read.

    Raises:
        UsageError: the kind or an option is unknown, or a value cannot be used; it names what is expected.
    """
    kind, colon, rest = text.partition(":")
    if not colon or not rest or (kind not in KINDS and kind not in PLUGINS):
        known = [*KINDS, *PLUGINS]
        meant = "" if kind in known else nearest(kind, known)
        said = f"expected KIND:TARGET[,KEY=VALUE ...] with one of {', '.join(known)}"
        raise UsageError(f"sensor = {text!r}; {said}{meant}")
    target, *pairs = rest.split(",")
    options: Options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise UsageError(f"sensor = {text!r}: {pair!r}; expected KEY=VALUE")
        options[key.strip()] = value.strip()
    try:
        sensor = KINDS[kind](target, options, root) if kind in KINDS else make_plugged(kind, target, options, root)
    except ValueError as error:
        raise UsageError(f"sensor = {text!r}: {error}") from error
    if options:
        raise UsageError(f"sensor = {text!r}: {', '.join(options)} is no option of {kind}")
    return sensor


def make_plugged(kind: str, target: str, options: Options, root: Path) -> Sensor:
    """A sensor of another package. Raises UsageError if it cannot be loaded, or what it makes is no sensor."""
    make = PLUGINS.load(kind)
    refused: Exception | None = None
    with PLUGINS.blamed(kind):
        try:
            sensor = make(target, options, root)
        except (ValueError, UsageError) as error:  # what is wrong with an option
            refused = error
        else:
            missing = [part for part in PARTS if not hasattr(sensor, part)]
    if refused is not None:
        raise refused
    if missing:
        raise PLUGINS.blame(kind, f"it makes a {type(sensor).__name__} without {', '.join(missing)}")
    return sensor


def take_number(options: Options, key: str, default: float | None = None) -> float | None:
    """Takes a number out of the options. Raises ValueError if it is none."""
    if key not in options:
        return default
    try:
        return float(text := options.pop(key))
    except ValueError:
        raise ValueError(f"{key} = {text!r}, expected a number") from None


def take_whole(options: Options, key: str, default: int) -> int:
    """Takes a whole number out of the options. Raises ValueError if it is none."""
    return read_whole(key, options.pop(key)) if key in options else default


def read_whole(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{key} = {text!r}, expected a whole number") from None


def take_names(options: Options, key: str = "channels") -> list[str]:
    """Takes names out of the options: with | between them, or with spaces where no | is used."""
    text = options.pop(key, "")
    return [name.strip() for name in text.split("|" if "|" in text else None) if name.strip()]


def make_iio(target: str, options: Options, root: Path) -> Sensor:
    from edge_sdk.hardware.sensors.iio import IioBuffered, find_iio

    folder, trigger = find_iio(target, root), options.pop("trigger", "")
    node = root / "dev" / folder.name
    return IioBuffered(folder, node, take_number(options, "rate"), take_names(options) or None, trigger)


def make_polled(target: str, options: Options, root: Path) -> Sensor:
    from edge_sdk.hardware.sensors.iio import IioPolled, find_iio

    rate = take_number(options, "rate", 10.0) or 0.0
    return IioPolled(find_iio(target, root), rate, take_names(options) or None)


def make_serial(target: str, options: Options, _: Path) -> Sensor:
    from edge_sdk.hardware.sensors.serial_lines import SerialLines

    baud = take_whole(options, "baud", 115200)
    return SerialLines(target, take_names(options), take_names(options, "units"), baud, take_number(options, "rate"))


def make_mqtt(target: str, options: Options, _: Path) -> Sensor:
    from edge_sdk.hardware.sensors.mqtt_topics import MqttTopics

    port = take_whole(options, "port", 1883)
    secret = (options.pop("username", ""), options.pop("password", ""))
    topics = {name: options.pop(name) for name in list(options)}
    return MqttTopics(target, topics, port, *secret)


def make_heart_rate(target: str, _: Options, root: Path) -> Sensor:
    from edge_sdk.hardware.sensors.ble import heart_rate

    return heart_rate(target)


def make_gatt(target: str, options: Options, _: Path) -> Sensor:
    from edge_sdk.hardware.sensors.ble import GattNotifications, decode_packed

    decode = decode_packed(options.pop("form", ""), take_number(options, "scale", 1.0) or 1.0)
    return GattNotifications(target, options.pop("characteristic", ""), decode, take_names(options))


def make_mpu6050(target: str, options: Options, _: Path) -> Sensor:
    from edge_sdk.hardware.sensors.mpu6050 import Mpu6050

    ranges = (take_whole(options, "accel_range", 2), take_whole(options, "gyro_range", 250))
    return Mpu6050(read_whole("bus", target), take_number(options, "rate", 50.0) or 0.0, *ranges)


def make_wfdb(target: str, options: Options, _: Path) -> Sensor:
    from edge_sdk.hardware.sensors.recording import Playback
    from edge_sdk.hardware.sensors.wfdb import read_wfdb

    return Playback(read_wfdb(Path(target)), take_number(options, "speed", 1.0) or 0.0)


def make_edf(target: str, options: Options, _: Path) -> Sensor:
    from edge_sdk.hardware.sensors.edf import read_edf
    from edge_sdk.hardware.sensors.recording import Playback

    return Playback(read_edf(Path(target), take_names(options)), take_number(options, "speed", 1.0) or 0.0)


KINDS: dict[str, Make] = {
    "iio": make_iio,
    "iio-polled": make_polled,
    "serial": make_serial,
    "mqtt": make_mqtt,
    "heart-rate": make_heart_rate,
    "gatt": make_gatt,
    "mpu6050": make_mpu6050,
    "wfdb": make_wfdb,
    "edf": make_edf,
}


def check_offered(name: str, found: Any) -> Make:
    """What makes a sensor of another package. Raises UsageError if what is there cannot be called."""
    if not callable(found):
        raise UsageError(f"a {type(found).__name__}; expected a function (target, options, root) -> sensor")
    make: Make = found
    return make


PLUGINS = PlugIns("sensor", KINDS, check_offered)
