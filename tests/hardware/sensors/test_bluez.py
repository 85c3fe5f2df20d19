"""A heart rate strap by bleak and D-Bus, as on a board, with a BlueZ that has no radio."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edge_sdk.hardware.sensors.ble import GattNotifications, decode_packed, heart_rate
from edge_sdk.hardware.sensors.sensor import SensorError, opened
from tests.delivery.fleet import eventually
from tests.hardware.sensors.bluez import ADDRESS, BlueZ

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="dbus-daemon is not installed")


@pytest.fixture
def system_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path / 'bus'}")
    return tmp_path


def test_a_strap_is_found_connected_and_heard_until_it_goes_away(system_bus: Path) -> None:
    with BlueZ(system_bus) as bluez, opened(heart_rate(ADDRESS)) as strap:
        assert [call for call in bluez.calls if call in ("StartDiscovery", "Connect", "StartNotify")] == [
            "StartDiscovery",
            "Connect",
            "StartNotify",
        ]
        found = []
        for data in (bytes([0, 60]), b"", bytes([0x10, 75, 0, 4, 0, 2])):
            bluez.notify(data)
        eventually(lambda: found.extend(strap.read(0.1)) is None and len(found) >= 3, 60)
        assert [reading.values for reading in found] == [(60.0, 0.0), (75.0, 1.0), (75.0, 0.5)]
        assert strap.refused == 1 and strap.channels == ("bpm", "rr")
        bluez.go_away()
        with pytest.raises(SensorError, match="the connection is lost"):
            eventually(lambda: strap.read(0.1) == [] and False, 60)


def test_a_strap_out_of_reach(system_bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bleak import BleakClient

    def impatient(address: str, **given: object) -> BleakClient:
        return BleakClient(address, timeout=0.5, **given)  # type: ignore[arg-type]

    with (
        BlueZ(system_bus, is_near=False),
        pytest.raises(SensorError, match="was not found"),
        opened(heart_rate(ADDRESS, connect=impatient)),
    ):
        pass


def test_a_characteristic_that_the_strap_does_not_have(system_bus: Path) -> None:
    missing = "0000fff0-0000-1000-8000-00805f9b34fb"
    with (
        BlueZ(system_bus) as bluez,
        pytest.raises(SensorError, match="fff0"),
        opened(GattNotifications(ADDRESS, missing, decode_packed("<h"), ["x"])),
    ):
        pass
    assert "Disconnect" in bluez.calls
