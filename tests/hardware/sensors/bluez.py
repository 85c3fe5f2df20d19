"""A BlueZ that has no radio: the service `org.bluez` on a D-Bus daemon of its own, with one heart rate strap.

What bleak asks is answered as BlueZ does (its doc/device-api.txt and doc/gatt-api.txt): a device is found while
scanning, connected, its services resolved, and notifications are changes of a characteristic's Value.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import threading
from pathlib import Path
from typing import Any

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

ADDRESS = "C8:1E:00:00:00:01"
ADAPTER = "/org/bluez/hci0"
DEVICE = f"{ADAPTER}/dev_{ADDRESS.replace(':', '_')}"
SERVICE, HEART_RATE = f"{DEVICE}/service0010", f"{DEVICE}/service0010/char0011"
BASE = "0000{}-0000-1000-8000-00805f9b34fb"
OBJECTS, PROPERTIES = "org.freedesktop.DBus.ObjectManager", "org.freedesktop.DBus.Properties"
UNKNOWN = "org.freedesktop.DBus.Error.UnknownObject"


class BlueZ:
    """The daemon and the service on it, as a context manager.

    Attributes:
        address: of the daemon, for DBUS_SYSTEM_BUS_ADDRESS.
        calls: members that were called, in order.
        is_near: the strap is found while scanning.
    """

    def __init__(self, folder: Path, is_near: bool = True) -> None:
        self.address, self.is_near = f"unix:path={folder / 'bus'}", is_near
        self.calls: list[str] = []
        self.scans = self.is_known = False
        self.ready = threading.Event()
        self.failed: list[BaseException] = []

    def __enter__(self) -> BlueZ:
        command = [
            "dbus-daemon",
            "--session",
            "--nofork",
            "--nopidfile",
            f"--address={self.address}",
            "--print-address",
        ]
        self.daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.daemon.stdout is not None
        assert self.daemon.stdout.readline().startswith(b"unix:")  # it listens
        self.thread = threading.Thread(target=self.run, name="bluez", daemon=True)
        self.thread.start()
        assert self.ready.wait(30) and not self.failed, self.failed
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join(30)
        self.daemon.kill()
        self.daemon.communicate()

    def run(self) -> None:
        try:
            asyncio.run(self.serve())
        except BaseException as error:
            self.failed.append(error)
        finally:
            self.ready.set()

    async def serve(self) -> None:
        self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
        self.bus = await MessageBus(bus_address=self.address, bus_type=BusType.SYSTEM).connect()
        self.queue: asyncio.Queue[list[Message]] = asyncio.Queue()
        self.bus.add_message_handler(self.answer)
        await self.bus.request_name("org.bluez")
        self.ready.set()
        tasks = [asyncio.create_task(self.send_all()), asyncio.create_task(self.scan())]
        await self.over.wait()
        for task in tasks:
            task.cancel()
        self.bus.disconnect()

    async def send_all(self) -> None:
        """Sends messages in the order in which they were made."""
        while True:
            for message in await self.queue.get():
                await self.bus.send(message)

    # -- what bleak asks

    def answer(self, message: Message) -> bool:
        """Takes a call, and answers it when the signals that it causes have left, as BlueZ does."""
        if message.message_type is not MessageType.METHOD_CALL or message.destination != "org.bluez":
            return False
        self.calls.append(message.member)
        signals: list[Message] = []
        if message.member == "GetManagedObjects":
            reply = Message.new_method_return(message, "a{oa{sa{sv}}}", [self.list_objects()])
        elif message.path == DEVICE and not self.is_near:
            reply = Message.new_error(message, UNKNOWN, "gone")
        else:
            reply = Message.new_method_return(message)
            signals = {"Connect": self.connect, "Disconnect": self.drop}.get(message.member, list)()
            self.scans = {"StartDiscovery": True, "StopDiscovery": False}.get(message.member, self.scans)
        self.queue.put_nowait([*signals, reply])
        return True

    def list_objects(self) -> dict[str, Any]:
        roles = {"Roles": Variant("as", ["central"]), "Powered": Variant("b", True), "Address": Variant("s", "00:00")}
        return {ADAPTER: {"org.bluez.Adapter1": roles}}

    async def scan(self) -> None:
        """Hears the strap again and again while scanning, as a radio does: now stronger, now weaker."""
        for strength in itertools.cycle((-60, -61)):
            await asyncio.sleep(0.05)
            if self.scans and self.is_near:
                found = added(DEVICE, "org.bluez.Device1", self.describe_strap())
                heard = changed(DEVICE, "org.bluez.Device1", {"RSSI": Variant("n", strength)})
                self.queue.put_nowait([heard] if self.is_known else [found])
                self.is_known = True

    def describe_strap(self) -> dict[str, Variant]:
        flags = dict.fromkeys(("Connected", "ServicesResolved", "Paired", "Bonded", "Trusted", "Blocked"), False)
        return {name: Variant("b", value) for name, value in flags.items()} | {
            "Address": Variant("s", ADDRESS),
            "AddressType": Variant("s", "random"),
            "Name": Variant("s", "strap"),
            "Alias": Variant("s", "strap"),
            "Adapter": Variant("o", ADAPTER),
            "UUIDs": Variant("as", [BASE.format("180d")]),
            "RSSI": Variant("n", -60),
            "LegacyPairing": Variant("b", False),
        }

    def connect(self) -> list[Message]:
        of_service = {"UUID": Variant("s", BASE.format("180d")), "Device": Variant("o", DEVICE)}
        of_rate = {"UUID": Variant("s", BASE.format("2a37")), "Service": Variant("o", SERVICE)}
        of_rate |= {"Flags": Variant("as", ["notify"]), "Value": Variant("ay", b""), "Notifying": Variant("b", False)}
        return [
            changed(DEVICE, "org.bluez.Device1", {"Connected": Variant("b", True)}),
            added(SERVICE, "org.bluez.GattService1", of_service | {"Primary": Variant("b", True)}),
            added(HEART_RATE, "org.bluez.GattCharacteristic1", of_rate),
            changed(DEVICE, "org.bluez.Device1", {"ServicesResolved": Variant("b", True)}),
        ]

    def drop(self) -> list[Message]:
        off = {"Connected": Variant("b", False), "ServicesResolved": Variant("b", False)}
        return [changed(DEVICE, "org.bluez.Device1", off)]

    # -- what the strap does, from any thread

    def notify(self, data: bytes) -> None:
        """A notification of the heart rate."""
        self.soon([changed(HEART_RATE, "org.bluez.GattCharacteristic1", {"Value": Variant("ay", data)})])

    def go_away(self) -> None:
        """The strap is out of reach."""
        self.soon(self.drop())

    def soon(self, messages: list[Message]) -> None:
        self.loop.call_soon_threadsafe(self.queue.put_nowait, messages)


def added(path: str, interface: str, values: dict[str, Variant]) -> Message:
    return Message.new_signal("/", OBJECTS, "InterfacesAdded", "oa{sa{sv}}", [path, {interface: values}])


def changed(path: str, interface: str, values: dict[str, Variant]) -> Message:
    return Message.new_signal(path, PROPERTIES, "PropertiesChanged", "sa{sv}as", [interface, values, []])
