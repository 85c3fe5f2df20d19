"""A sensor as a bundle wants it: channels by name or by order, values in the bundle's units."""

from __future__ import annotations

from math import pi
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.channel_names import find_columns
from edge_sdk.hardware.sensors.catalog import make_sensor
from edge_sdk.hardware.sensors.fitted import FittedSensor
from edge_sdk.hardware.sensors.recording import Playback, StoredSignals
from edge_sdk.hardware.sensors.sensor import Sensor, SensorError, opened
from edge_sdk.hardware.units import SPELLINGS, UNITS, conversion
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.signal_spec import SignalSpec
from tests.hardware.sensors.test_iio import lay_buffer

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"


def signal(channels: str, units: str) -> SignalSpec:
    return SignalSpec(tuple(channels.split()), tuple(units.split(",")), 32.0, 64, 32)


def sensor(channels: str, units: str, *rows: tuple[float, ...]) -> Sensor:
    names, columns = tuple(channels.split()), tuple([list(c) for c in zip(*rows, strict=True)])
    return Playback(StoredSignals("band", 32, names, tuple(units.split(",")), columns), speed=0)


def test_an_accelerometer_of_the_kernel_becomes_what_the_wrist_model_takes(tmp_path: Path) -> None:
    """Linux gives m/s^2, the shipped bundle takes g: without this a wrist that rests would weigh ten times as much."""
    folder = lay_buffer(tmp_path)
    bundle = read_bundle(WRIST).signal
    assert bundle is not None and bundle.units == ("g", "g", "g") and folder.is_dir()
    made = make_sensor("iio:lis3dh_accel,rate=32,channels=in_accel_x|in_accel_y|in_accel_z", tmp_path)
    assert made.units == ("m/s^2",) * 3
    fitted = FittedSensor(made, bundle)
    assert fitted.channels == ("ax", "ay", "az") and fitted.units == bundle.units
    assert fitted.values((9.80665, 0.0, -4.903325)) == pytest.approx((1.0, 0.0, -0.5))


def test_channels_are_found_by_name_in_any_order_and_others_are_left_out() -> None:
    source = FittedSensor(sensor("t z y x", "degC,g,g,g", (20.0, 3.0, 2.0, 1.0)), signal("x y z", "g,g,g"))
    with opened(source):
        (reading,) = source.read(1.0)
    assert reading.values == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("values", [(20.0, 3.0, 2.0), (20.0, 3.0, 2.0, 1.0, 0.0)])
def test_a_reading_has_a_value_for_each_channel_of_the_sensor(values: tuple[float, ...]) -> None:
    fitted = FittedSensor(sensor("t z y x", "degC,g,g,g", (20.0, 3.0, 2.0, 1.0)), signal("x y z", "g,g,g"))
    with pytest.raises(SensorError, match=rf"band: a reading of {len(values)} values, expected 4, .* t, z, y, x"):
        fitted.values(values)


@pytest.mark.parametrize(
    ("there", "wanted", "columns"),
    [
        ("ACC_Z ACC_Y ACC_X", "acc_x acc_y acc_z", [2, 1, 0]),
        ("accel_x accel_y accel_z", "ax ay az", [0, 1, 2]),
        ("gyro_x gyro_y gyro_z acc_x acc_y acc_z", "acc_x acc_y acc_z gyr_x gyr_y gyr_z", [3, 4, 5, 0, 1, 2]),
        ("in_anglvel_z in_anglvel_x in_anglvel_y", "gx gy gz", [1, 2, 0]),
        ("z y x", "ax ay az", [2, 1, 0]),
        ("temp ax ay az", "x y z", None),
        ("gx gy gz", "ax ay az", None),
        ("x y z", "ax ay gz", None),
        ("Fp1 Fp2", "a b", None),
        ("ax ax ay", "ax ay", None),
    ],
)
def test_names_that_mean_the_same(there: str, wanted: str, columns: list[int] | None) -> None:
    assert find_columns(there.split(), wanted.split()) == columns


def test_channels_whose_names_do_not_say_it_are_given() -> None:
    source = sensor("one two three", "g,g,g", (1.0, 2.0, 3.0))
    with pytest.raises(UsageError, match=r"in that order, with channels=\[\.\.\.\]"):
        FittedSensor(source, signal("ax ay az", "g,g,g"))
    assert FittedSensor(source, signal("ax ay az", "g,g,g"), ["three", "one", "two"]).values((1.0, 2.0, 3.0)) == (
        3,
        1,
        2,
    )
    with pytest.raises(UsageError, match="say which of the sensor's 3"):
        FittedSensor(source, signal("ax ay az", "g,g,g"), ["three", "one"])


def test_a_unit_that_is_not_told_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    FittedSensor(sensor("x y z", ",,", (1.0, 1.0, 1.0)), signal("ax ay az", "g,g,g"))
    assert "band does not tell the unit of ax; taken for g" in caplog.text


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        ("m/s^2", "g", 9.80665, 1.0),
        ("mg", "m/s²", 1000.0, 9.80665),
        ("°/s", "rad/s", 180.0, pi),
        ("µV", "mV", 250.0, 0.25),
        ("gauss", "uT", 1.0, 100.0),
        ("°F", "degC", 212.0, 100.0),
        ("mCelsius", "K", 25000.0, 298.15),
        ("Hz", "bpm", 1.5, 90.0),
        ("", "g", 2.0, 2.0),
        ("arbitrary", "arbitrary", 2.0, 2.0),
    ],
)
def test_units(source: str, target: str, value: float, expected: float) -> None:
    scale, offset = conversion(source, target)
    assert scale * value + offset == pytest.approx(expected)
    back, off = conversion(target, source)
    assert back * expected + off == pytest.approx(value)


def test_every_spelling_is_of_a_unit() -> None:
    assert {*SPELLINGS.values()} <= {*UNITS}


@pytest.mark.parametrize(
    ("channels", "units", "said"),
    [
        ("x y", "g,g", "has the channels x, y; the bundle wants ax, ay, az"),
        ("x y z", "g,g", "band: units \\('g', 'g'\\), expected 3, one for each of its channels"),
        ("x y z w", "g,g,g,g", "has the channels x, y, z, w; the bundle wants"),
        ("x y z", "g,g,rad/s", "channel az: 'rad/s' is a unit of angular velocity, 'g' one of acceleration"),
        ("x y z", "g,g,counts", "channel az: 'counts' is not 'g', and 'counts' is no unit known here"),
    ],
)
def test_what_does_not_fit_is_refused(channels: str, units: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        FittedSensor(sensor(channels, units, (1.0,) * len(channels.split())), signal("ax ay az", "g,g,g"))
