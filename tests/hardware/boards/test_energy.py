"""Energy: counters that wrap, sensors that are integrated, and a model that is called one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edge_sdk.hardware.boards.energy import EnergyMeter, find_counters, find_sensor, model_energy
from edge_sdk.hardware.boards.profile import find_profile
from tests.hardware.boards.fake_root import lay

PI = find_profile("raspberry-pi-4")
RAPL = "sys/class/powercap/intel-rapl:0"


def lay_rapl(root: Path, joules: float, package: int = 0) -> None:
    folder = f"sys/class/powercap/intel-rapl:{package}"
    lay(root, {f"{folder}/name": f"package-{package}", f"{folder}/energy_uj": round(joules * 1e6)})
    lay(root, {f"{folder}/max_energy_range_uj": 100_000_000})
    lay(root, {f"{folder}:0/name": "core", f"{folder}:0/energy_uj": 1})


def test_joules_of_all_packages_are_added_and_parts_of_one_are_not(tmp_path: Path) -> None:
    lay_rapl(tmp_path, 10)
    lay_rapl(tmp_path, 20, package=1)
    lay(tmp_path, {"sys/class/powercap/intel-rapl:2/name": "psys", "sys/class/powercap/intel-rapl:2/energy_uj": 1})
    with EnergyMeter(PI, root=tmp_path) as meter:
        lay_rapl(tmp_path, 12.5)
        lay_rapl(tmp_path, 21, package=1)
    assert meter.energy.joules == pytest.approx(3.5)
    assert meter.energy.source.startswith("measured:") and "intel-rapl:1" in meter.energy.source


def test_a_counter_that_wraps(tmp_path: Path) -> None:
    lay_rapl(tmp_path, 99)
    with EnergyMeter(PI, root=tmp_path) as meter:
        lay_rapl(tmp_path, 2)
    assert meter.energy.joules == pytest.approx(3)


def test_a_counter_that_only_root_may_read_is_no_counter(tmp_path: Path) -> None:
    lay_rapl(tmp_path, 99)
    (tmp_path / RAPL / "energy_uj").unlink()
    assert find_counters(tmp_path) == []
    with EnergyMeter(PI, root=tmp_path) as meter:
        pass
    assert meter.energy.source.startswith("modelled:")


def test_a_counter_that_fails_on_the_way_leaves_the_model_which_says_so(tmp_path: Path) -> None:
    lay_rapl(tmp_path, 99)
    with EnergyMeter(PI, root=tmp_path) as meter:
        (tmp_path / RAPL / "energy_uj").unlink()
    assert meter.energy.source.startswith("modelled:")


def test_power_is_integrated_over_time(tmp_path: Path) -> None:
    sensor = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0/in_power0_input"
    lay(tmp_path, {sensor: 4000})
    began = time.perf_counter()
    with EnergyMeter(PI, root=tmp_path) as meter:
        time.sleep(0.3)
    most = time.perf_counter() - began
    assert meter.energy.joules is not None
    assert 4 * 0.3 * 0.9 < meter.energy.joules <= 4 * most
    assert meter.energy.source.endswith("in_power0_input")


@pytest.mark.parametrize(
    ("files", "watts"),
    [
        ({"sys/class/hwmon/hwmon2/power1_input": 1_500_000}, 1.5),
        ({"sys/class/power_supply/b/type": "Battery", "sys/class/power_supply/b/power_now": 900_000}, None),
        (
            {
                "sys/class/power_supply/b/type": "Battery",
                "sys/class/power_supply/b/status": "Discharging",
                "sys/class/power_supply/b/power_now": -900_000,
            },
            0.9,
        ),
    ],
)
def test_sensors_of_power(tmp_path: Path, files: dict[str, str | int], watts: float | None) -> None:
    sensor = find_sensor(lay(tmp_path, files))
    assert (sensor.read() if sensor else None) == (watts and pytest.approx(watts))


def test_the_model_is_named_and_an_unknown_board_has_no_energy() -> None:
    energy = model_energy(PI, threads=4, seconds=10)
    assert energy.joules == pytest.approx(61) and "Raspberry Pi 4" in energy.source
    none = model_energy(find_profile("linux-watch"), threads=1, seconds=10)
    assert none.joules is None and none.source.startswith("unknown:")
