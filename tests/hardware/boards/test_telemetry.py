"""Telemetry from laid out trees: what files tell, what they do not tell, and what they tell wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.hardware.boards.memory import read_memory_limit, read_resident_mb
from edge_sdk.hardware.boards.telemetry import NetworkLink, read_telemetry
from tests.hardware.boards.fake_root import lay, lay_raspberry


def test_a_hot_raspberry(tmp_path: Path) -> None:
    t = read_telemetry(lay_raspberry(tmp_path))
    assert t.temperatures == {"cpu-thermal": pytest.approx(81.234)} and t.hottest == pytest.approx(81.234)
    assert t.clocks_mhz == {n: pytest.approx(600 + n / 1000) for n in range(4)}
    assert t.clock_limits_mhz[3] == 1500
    assert t.throttled == ("undervoltage", "throttled") == t.throttled_before  # 0x50005
    assert t.load == 0.52 and t.memory_mb == pytest.approx(948208 / 1024) and t.memory_free_mb == 500
    assert t.battery is None and t.charging is None


@pytest.mark.parametrize(
    ("bits", "now", "before"),
    [
        ("0", (), ()),
        ("0x0", (), ()),
        ("8", ("soft temperature limit",), ()),
        ("50000", (), ("undervoltage", "throttled")),
        ("e0002", ("clock capped",), ("clock capped", "throttled", "soft temperature limit")),
        ("nonsense", None, None),
    ],
)
def test_bits_of_throttling(
    tmp_path: Path, bits: str, now: tuple[str, ...] | None, before: tuple[str, ...] | None
) -> None:
    t = read_telemetry(lay_raspberry(tmp_path, throttled=bits))
    assert (t.throttled, t.throttled_before) == (now, before)


def test_undervoltage_is_also_told_by_hwmon(tmp_path: Path) -> None:
    lay(tmp_path, {"sys/class/hwmon/hwmon1/name": "rpi_volt", "sys/class/hwmon/hwmon1/in0_lcrit_alarm": 1})
    assert read_telemetry(tmp_path).throttled == ("undervoltage",)
    lay(tmp_path, {"sys/class/hwmon/hwmon1/in0_lcrit_alarm": 0})
    assert read_telemetry(tmp_path).throttled == ()


def test_nothing_is_told_by_an_empty_tree(tmp_path: Path) -> None:
    t = read_telemetry(tmp_path)
    assert (t.temperatures, t.clocks_mhz, t.throttled, t.battery, t.load) == ({}, {}, None, None, None)
    assert t.hottest is None
    assert read_memory_limit(tmp_path).free_mb is None


def test_sensors_of_one_name_are_kept_apart_and_impossible_readings_left_out(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "sys/class/thermal/thermal_zone0/type": "cpu",
            "sys/class/thermal/thermal_zone0/temp": 40000,
            "sys/class/thermal/thermal_zone1/type": "cpu",
            "sys/class/thermal/thermal_zone1/temp": 41000,
            "sys/class/thermal/thermal_zone2/type": "broken",
            "sys/class/thermal/thermal_zone2/temp": -274000,
            "sys/class/thermal/thermal_zone3/type": "busy",  # no temp: reading it fails
            "sys/class/hwmon/hwmon0/name": "nvme",
            "sys/class/hwmon/hwmon0/temp1_input": 35500,
            "sys/class/hwmon/hwmon0/temp2_input": 36500,
            "sys/class/hwmon/hwmon0/temp2_label": "Composite",
        },
    )
    found = read_telemetry(tmp_path).temperatures
    assert found == {"cpu": 40, "cpu (thermal_zone1)": 41, "nvme temp1": 35.5, "Composite": 36.5}


@pytest.mark.parametrize(
    ("files", "battery", "charging"),
    [
        ({"BAT0/type": "Battery", "BAT0/capacity": 18, "BAT0/status": "Discharging"}, 0.18, False),
        ({"BAT0/type": "Battery", "BAT0/capacity": 100, "BAT0/status": "Full"}, 1.0, True),
        ({"BAT0/type": "Battery", "BAT0/capacity": 50, "BAT0/status": "Unknown"}, 0.5, None),
        ({"BAT0/type": "Battery", "BAT0/capacity": 250}, None, None),
        ({"AC/type": "Mains", "AC/online": 1}, None, True),
        ({"usb/type": "USB", "usb/online": 0, "BAT/type": "Battery", "BAT/capacity": 7}, 0.07, False),
        ({"m/type": "Battery", "m/scope": "Device", "m/capacity": 3, "AC/type": "Mains", "AC/online": 1}, None, True),
    ],
)
def test_power_supplies(
    tmp_path: Path, files: dict[str, str | int], battery: float | None, charging: bool | None
) -> None:
    lay(tmp_path, {f"sys/class/power_supply/{name}": text for name, text in files.items()})
    t = read_telemetry(tmp_path)
    assert (t.battery, t.charging) == (battery, charging)


def test_links_and_what_they_have_carried(tmp_path: Path) -> None:
    for name, state, sent in (("wlan0", "up", 12), ("eth0", "down", 0), ("tun0", "unknown", 1), ("lo", "up", 99)):
        net = f"sys/class/net/{name}"
        lay(tmp_path, {f"{net}/operstate": state, f"{net}/statistics/rx_bytes": 5, f"{net}/statistics/tx_bytes": sent})
    links = read_telemetry(tmp_path).links
    assert links["wlan0"] == NetworkLink(True, 5, 12) and links["eth0"].up is False and links["tun0"].up is None
    assert set(links) == {"wlan0", "eth0", "tun0"}


def test_the_smallest_room_is_that_of_the_machine_or_of_a_control_group(tmp_path: Path) -> None:
    lay_raspberry(tmp_path)
    assert read_memory_limit(tmp_path).free_mb == 500
    group = "sys/fs/cgroup/app.slice/watch.service"
    lay(tmp_path, {"proc/self/cgroup": "0::/app.slice/watch.service"})
    lay(tmp_path, {f"{group}/memory.max": "max", f"{group}/memory.current": 1})
    assert read_memory_limit(tmp_path).free_mb == 500
    lay(
        tmp_path, {"sys/fs/cgroup/app.slice/memory.max": 300 << 20, "sys/fs/cgroup/app.slice/memory.current": 100 << 20}
    )
    found = read_memory_limit(tmp_path)
    assert found.free_mb == 200 and "/app.slice" in found.reason
    lay(tmp_path, {f"{group}/memory.max": 64 << 20, f"{group}/memory.current": 80 << 20})
    assert read_memory_limit(tmp_path).free_mb == 0


def test_older_control_groups(tmp_path: Path) -> None:
    lay_raspberry(tmp_path)
    lay(tmp_path, {"proc/self/cgroup": "4:cpu,memory:/box\n3:pids:/box"})
    box = "sys/fs/cgroup/memory/box"
    lay(tmp_path, {f"{box}/memory.limit_in_bytes": 128 << 20, f"{box}/memory.usage_in_bytes": 28 << 20})
    above = "sys/fs/cgroup/memory"
    lay(tmp_path, {f"{above}/memory.limit_in_bytes": 9223372036854771712, f"{above}/memory.usage_in_bytes": 1})
    assert read_memory_limit(tmp_path).free_mb == 100


def test_memory_of_this_process_and_of_one_that_is_over() -> None:
    import os

    mine = read_resident_mb(os.getpid())
    assert mine is not None and mine > 5
    assert read_resident_mb(2**22 + 7) is None
