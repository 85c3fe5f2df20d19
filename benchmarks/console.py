"""A console in front of 10,000 devices: memory of the hospital's node and of the service, time of the fleet's page, and
events through to the browser.

A hospital and the service run as an operator starts them, over a real mosquitto. The devices are ten connections that
say for a thousand names each what a device says when it connects. Then, each as a program without a browser sees it:

    page      milliseconds from the request to the first byte of the answer, one request after the other
    events    devices go and come back; how many changes a browser is told of in a second, how long the first one takes
              from a device's goodbye, and what all browsers together are told when a hundred listen

    python benchmarks/console.py [--devices 10000] [--hospitals 1]
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import paho.mqtt.client as mqtt

from edge_sdk.replay.nodes.broker import Mosquitto
from edge_sdk.replay.nodes.processes import NodeProcesses
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from edge_sdk.replay.planning.toml_files import write_toml
from edge_sdk.wire.frames import Birth, Hello, pack_frame, unpack_frame
from edge_sdk.wire.topics import BIRTHS, downward, parse_topic, upward

CLOUD = "cloud"
CLIENTS = 10
PAGES = ("/", "/fleet", "/fleet?q=d-0123&sort=name", "/fleet?page=50", "/metrics", "/api/v1/fleet")
TRIES = 30
LISTENERS = 100
SECONDS = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--hospitals", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base, Mosquitto() as broker, NodeProcesses(Path(base) / "logs") as processes:
        fleet = share_out(options.devices, options.hospitals)
        console = start(Path(base), broker.url, processes, fleet)
        with presence(broker.port, fleet) as crowd:
            began = time.monotonic()
            wait(lambda: count_connected(console) == options.devices, 300)
            print(f"{options.devices} devices of {options.hospitals} hospitals are in the console after "
                  f"{time.monotonic() - began:.0f} s")  # fmt: skip
            for name, process in processes.running.items():
                print(f"memory of {name:<10} {resident(process.pid):7.1f} MB")
            for page in PAGES:
                print_times(console, page)
            print_events(console, crowd)


def share_out(devices: int, hospitals: int) -> dict[str, list[str]]:
    """Hospital -> its devices."""
    return {f"h-{i}": [f"d-{n:05}" for n in range(i, devices, hospitals)] for i in range(hospitals)}


# Processes ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Console:
    """Where the service is, and a token for it."""

    port: int
    token: str

    def get(self, page: str) -> http.client.HTTPResponse:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        line.request("GET", page, headers={"authorization": f"Bearer {self.token}", "host": "127.0.0.1"})
        return line.getresponse()


def start(base: Path, url: str, processes: NodeProcesses, fleet: Mapping[str, list[str]]) -> Console:
    """Hospitals and the service; returns when the console answers."""
    bundle = find_shipped_bundle("wrist.bundle")
    assert bundle is not None
    for name, devices in fleet.items():
        table = {"name": name, "aggregator": CLOUD, "broker": url, "bundle": bundle.resolve(), "directory": name}
        processes.start(
            name, ["hospital", write_toml(base / f"{name}.toml", table | {"devices": devices, "reports": "names"})]
        )
    table = {"name": CLOUD, "broker": url, "directory": "service", "bundles": [bundle.resolve()]}
    table |= {"classes": [f"c{i}" for i in range(11)], "listen": "127.0.0.1:0"}
    processes.start("service", ["serve", write_toml(base / "fleet.toml", table)])
    place = base / "service" / "console.json"
    wait(place.exists, 120)
    found = json.loads(place.read_text())
    console = Console(int(found["url"].rpartition(":")[2]), found["token"])
    wait(lambda: answers(console), 60)
    return console


def answers(console: Console) -> bool:
    try:
        return console.get("/metrics").status == 200
    except OSError:
        return False


def wait(what: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            sys.exit(f"not within {seconds:.0f} s")
        time.sleep(0.25)


def count_connected(console: Console) -> int:
    text = console.get("/metrics").read().decode()
    return sum(int(count) for count in re.findall(r'auscult_devices\{[^}]*state="connected"\} (\d+)', text))


def resident(pid: int) -> float:
    """Memory of a process, MB."""
    [pages] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(pages) / 1000


# Devices ------------------------------------------------------------------------------------------------------------
@dataclass
class Crowd:
    """Devices that are names on a few connections; the first of these hears what hospitals say to all of them."""

    clients: list[mqtt.Client]
    homes: dict[str, str]
    births: dict[str, int] = field(default_factory=dict)

    def say(self, name: str, gone: bool = False, nonce: int = 0) -> None:
        """A device connects, or says goodbye."""
        self.births[name] = count = self.births.get(name, 0) + 1
        birth = Birth(name, 1, 1, gone=gone, count=count, nonce=nonce)
        client = self.clients[hash(name) % len(self.clients)]
        client.publish(upward(self.homes[name], name, BIRTHS), pack_frame(birth), 0)

    def hear(self, _: object, __: object, message: mqtt.MQTTMessage) -> None:
        """A hospital asks for a birth with its nonce, to know that it is no old one."""
        child, hello = parse_topic(message.topic).child, unpack_frame(message.payload)
        if isinstance(hello, Hello) and not hello.taken and child in self.homes:
            self.say(child, nonce=hello.nonce)


@contextmanager
def presence(port: int, fleet: Mapping[str, list[str]]) -> Iterator[Crowd]:
    """All devices are there."""
    clients = [mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, f"crowd-{i}") for i in range(CLIENTS)]
    for client in clients:
        client.connect("127.0.0.1", port)
        client.loop_start()
    crowd = Crowd(clients, {device: hospital for hospital, devices in fleet.items() for device in devices})
    clients[0].on_message = crowd.hear
    for hospital in fleet:
        clients[0].subscribe(downward(hospital, "+", BIRTHS))
    for number, name in enumerate(crowd.homes):
        crowd.say(name)
        if number % 100 == 99:
            time.sleep(0.05)  # 2,000 in a second: devices do not all connect in one instant
    try:
        yield crowd
    finally:
        for client in clients:
            client.disconnect()
            client.loop_stop()


# What is measured ---------------------------------------------------------------------------------------------------
def print_times(console: Console, page: str) -> None:
    times, size = [], 0
    for _ in range(TRIES):
        began = time.monotonic()
        answer = console.get(page)
        assert answer.status == 200, (page, answer.status)
        first = answer.read(1)
        times.append(1000 * (time.monotonic() - began))
        size = len(first + answer.read())
    times.sort()
    said = f"median {statistics.median(times):6.1f} ms, 95 % {times[int(0.95 * TRIES)]:6.1f} ms, {size / 1000:8.1f} kB"
    print(f"first byte of {page:<26} {said}")


@dataclass
class Listener(threading.Thread):
    """A browser that listens to events. `times`: when each change came."""

    console: Console
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        for line in self.console.get("/events"):
            if line.startswith(b"event: change"):
                self.times.append(time.monotonic())


def print_events(console: Console, crowd: Crowd) -> None:
    listeners = [Listener(console) for _ in range(LISTENERS)]
    for listener in listeners:
        listener.start()
    time.sleep(3.0)
    for listener in listeners:
        listener.times.clear()
    began, names = time.monotonic(), list(crowd.homes)
    crowd.say(names[0], gone=True)
    wait(lambda: bool(listeners[0].times), 60)
    print(f"from a device's goodbye to the browser: {listeners[0].times[0] - began:.1f} s")
    told = [len(listener.times) for listener in listeners]
    began = time.monotonic()
    for number in range(int(50 * SECONDS)):
        crowd.say(names[1 + number], gone=True)
        time.sleep(max(0.0, began + number / 50 - time.monotonic()))
    told = [len(listener.times) - before for listener, before in zip(listeners, told, strict=True)]
    seconds = time.monotonic() - began
    print(f"50 devices go in a second: a browser is told {told[0] / seconds:.2f} times in a second, "
          f"{LISTENERS} browsers together {sum(told) / seconds:.0f} times")  # fmt: skip


if __name__ == "__main__":
    main()
