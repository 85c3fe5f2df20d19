"""The faults of a soak: each befalls one service, or all, and is over when its function returns or soon after."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from edge_sdk.replay.nodes.broker import LocalBroker
from tests.faults.machine import limit_files
from tests.soak.services import STOPPED, Services

DAY = 24 * 3600
FILES = (".db", ".db-wal", ".out")


@dataclass
class Faults:
    """Brings faults over services, one after the other.

    Attributes:
        made: kind of fault -> how often it was made.
        lost: nodes whose disk was damaged, or lost its last changes.
    """

    services: Services
    broker: LocalBroker
    dice: Random
    made: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    later: list[threading.Timer] = field(default_factory=list)

    def make_one(self) -> None:
        """Make one fault, drawn by its weight."""
        kind = self.dice.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
        self.made[kind] += 1
        KINDS[kind][1](self, self.dice.choice(self.services.names))

    def kill(self, name: str) -> None:
        self.services.kill(name)
        time.sleep(self.dice.choice((0.0, 0.0, 1.0, 3.0)) * self.dice.random())
        self.services.start(name)

    def kill_some(self, name: str) -> None:
        for victim in self.dice.sample(self.services.names, 4):
            self.services.kill(victim)
        for victim in self.services.names:
            if victim not in self.services.running:
                self.services.start(victim)

    def stop(self, name: str) -> None:
        """Stop and start a service as an operator would."""
        self.services.running[name].terminate()
        status = self.services.running.pop(name).wait(60)
        if status not in STOPPED:
            self.services.odd.append((name, status))
        self.services.start(name)

    def bounce(self, name: str) -> None:
        self.broker.kill()
        time.sleep(2 * self.dice.random())
        self.broker.start()

    def fill_disk(self, name: str) -> None:
        machine = self.services.machines[name]
        machine.fill_disk(True)
        self.after(self.dice.uniform(0.5, 6.0), lambda: machine.fill_disk(False))

    def take_files(self, name: str) -> None:
        process = self.services.running[name]
        if process.poll() is None:
            limit_files(process.pid, self.dice.choice((0, 1, 2)))
            self.after(self.dice.uniform(0.5, 3.0), lambda: give_files(process.pid))

    def set_clock(self, name: str) -> None:
        self.services.machines[name].set_clock(self.dice.choice((0, 60, -60, DAY, -DAY, 365 * DAY, -365 * DAY)))

    def damage(self, name: str) -> None:
        """Change a byte in what a hospital or a device keeps. (The root asks a person, who is not here.)"""
        if name == "cloud":
            name = self.dice.choice(self.services.devices)
        self.services.kill(name)
        folder = self.services.base / name
        files = [p for p in sorted(folder.rglob("*")) if p.suffix in FILES and p.stat().st_size]
        files = [p for p in files if not any(part.endswith(".damaged") for part in p.parts)]
        if files:
            path = self.dice.choice(files)
            content = bytearray(path.read_bytes())
            content[self.dice.randrange(len(content))] ^= 1 << self.dice.randrange(8)
            path.write_bytes(content)
            self.lost.add(name)
        self.services.start(name)

    def cut_power(self, name: str) -> None:
        """Leave on a node's disk what a power cut might: what was synced, and of the rest anything."""
        self.services.kill(name)
        self.services.machines[name].cut_power(self.dice)
        self.lost.add(name)
        self.services.start(name)

    def start_twice(self, name: str) -> None:
        """A second process says that the directory is taken, and ends, while the first goes on.

        The first may just have been started again: without waiting for it, the second could be the one that works on.
        """
        until = time.monotonic() + 240  # on a busy machine torch alone takes a minute
        while not self.services.holds_directory(name):
            if time.monotonic() > until:
                self.services.odd.append((f"a {name} that does not take its directory", 0))
                return
            time.sleep(0.2)
        second = self.services.spawn(name)
        try:
            status = second.wait(240)
            said = "another process works in this directory" in self.services.log(name)
        except subprocess.TimeoutExpired:
            status, said = 0, False
        second.kill()
        second.wait()
        if not (status and said):
            self.services.odd.append((f"a second {name}", status))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, what)
        timer.daemon = True
        timer.start()
        self.later = [*(t for t in self.later if t.is_alive()), timer]

    def end_all(self) -> None:
        """No more faults: wait for the last ones to pass."""
        for timer in self.later:
            timer.join()
        for machine in self.services.machines.values():
            machine.fill_disk(False)
            machine.set_clock(0)


def give_files(pid: int) -> None:
    try:
        limit_files(pid, None)
    except (OSError, ValueError):  # it has died meanwhile
        return


KINDS: dict[str, tuple[float, Callable[[Faults, str], None]]] = {
    "kill": (6, Faults.kill),
    "kill of four": (1, Faults.kill_some),
    "stop and start": (2, Faults.stop),
    "broker bounce": (2, Faults.bounce),
    "disk full": (3, Faults.fill_disk),
    "no more files": (3, Faults.take_files),
    "clock set": (3, Faults.set_clock),
    "damaged file": (1, Faults.damage),
    "second process": (1, Faults.start_twice),
    "power cut": (2, Faults.cut_power),
}
