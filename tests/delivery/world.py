"""Four nodes of the counting run without a network: whoever uses this plays broker, disk and time against them.

Everything between MQTT and the role is the real thing, the store on the disk too. What a broker does (deliver, lose,
repeat, overtake, drop a connection) and what happens to a process and its disk are functions, called one at a time.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.delivery.storage import failpoints, log_check
from edge_sdk.delivery.storage.snapshot import copy_store, make_another_disk
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.wire import topics
from edge_sdk.wire.fields import SMALLEST_CHUNK
from edge_sdk.wire.frames import unpack_frame
from edge_sdk.wire.topics import ALL
from tests.delivery import roles
from tests.delivery.flips import flip_record
from tests.delivery.nodes import make_runtime
from tests.delivery.play import ROLES
from tests.delivery.system import Clock, Killed, Points
from tests.delivery.witness import Witness

TREE = {"agg": ("h",), "h": ("a", "b")}
PARENTS = {child: parent for parent, children in TREE.items() for child in children}
NAMES = ("agg", *PARENTS)
TIERS = {"agg": "aggregator", "h": "hospital", "a": "device", "b": "device"}
TIMED = [
    m for n, m in sys.modules.items() if n.startswith(("edge_sdk.delivery.", "edge_sdk.live.")) and hasattr(m, "time")
]
RUN = Run(id="count", method="count", rounds=10**6)
Payload = tuple[str, bytes]  # topic, bytes


class Wire:
    """What a node takes for its connection to a broker."""

    def __init__(self, world: World, name: str):
        self.world, self.name = world, name
        self.up, self.ready, self.lost = True, True, ""
        self.room, self.packet, self.chunk, self.is_light = 1000, 2**28, SMALLEST_CHUNK, True
        self.stream, self.most_body = None, 2**28

    def measure_packet(self, topic: str, payload: bytes) -> int:
        return len(topic) + len(payload)

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        self.world.witness.hear(self.name, unpack_frame(bytes(payload)))
        self.world.publish(topic, bytes(payload))

    def close(self) -> None:
        self.up = False


@dataclass
class Place:
    """A node, and what the broker holds for it.

    Attributes:
        node: None while the process is dead.
        queue: frames that it has not been given.
        wills: what the broker says for it when its connection breaks.
        heard: frames that it has been sent in its life, for whoever has recorded them.
        starts: processes so far.
    """

    node: Runtime | None = None
    queue: list[Payload] = field(default_factory=list)
    wills: list[Payload] = field(default_factory=list)
    heard: list[Payload] = field(default_factory=list)
    connected: bool = False
    starts: int = 0


class World:
    """Nodes, broker, disks and time.

    Args:
        base: directories of the nodes are made below.
        size: floats of a message.

    Attributes:
        told: number -> what the aggregator's application heard.
        clock: the nodes' own.
        step: seconds that a turn takes.
        failing: nodes whose commits fail.
        worked_once: no disk has been lost, and no commit.
    """

    def __init__(self, base: Path, size: int):
        self.base, self.size, self.clock, self.step = base, size, Clock(), 0.003
        self.places = {name: Place() for name in NAMES}
        self.told: dict[int, roles.Done] = {}
        self.boots = 0
        self.failing: set[str] = set()
        self.worked_once = True
        self.witness, self.plain_boot = Witness(self.may_commit), log_check.BOOT_ID
        self.witness.begin()
        failpoints.os = Points()  # type: ignore[assignment]
        log_check.BOOT_ID = base / "boot"
        for module in TIMED:
            module.time = self.clock  # type: ignore[attr-defined]
        self.reboot()

    def may_commit(self, name: str) -> None:
        if name in self.failing:
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full

    def close(self) -> None:
        for name in NAMES:
            self.kill(name)
        self.witness.end()
        failpoints.os, failpoints._point = os, ""
        log_check.BOOT_ID = self.plain_boot
        for module in TIMED:
            module.time = time  # type: ignore[attr-defined]

    # -- processes

    def start(self, name: str) -> None:
        place, tier = self.places[name], TIERS[name]
        if place.node is not None:
            return

        def assemble(run: Run) -> Assembly:
            sizes = dict.fromkeys(TREE.get(name, ()), 1)
            return roles.assembly(ROLES[tier], run, size=self.size, sizes=sizes)

        options: dict[str, Any] = {"run": RUN, "told": self.hear} if name == "agg" else {}
        options |= {
            "parent": PARENTS.get(name),
            "children": TREE.get(name, ()),
            "assemble": assemble,
            "wait_seconds": 5.0,
        }
        node = make_runtime(
            name, directory=self.base / name, broker="mqtt://127.0.0.1", worker=False, rto=1.0, **options
        )
        node.membership.directory = NodeDirectory(self.base / name, "normal")
        place.node, place.starts = node, place.starts + 1
        node.membership.begin_run(node.run_given)
        if node.session is not None:
            self.witness.look(name, node.session.store.db)
        self.connect(name)

    def kill(self, name: str) -> None:
        place = self.places[name]
        if place.node is None:
            return
        node, place.node = place.node, None
        if place.connected:
            self.break_connection(name)
        node.membership.drop_session()
        node.membership.directory.close()

    def die_at(self, name: str, point: str, count: int, frames: int = 1000) -> None:
        """Give a node a turn, in which it dies when it reaches this point for that time, if it does."""
        failpoints._point, failpoints._left = point, count
        try:
            self.turn(name, frames)
        except Killed:
            self.kill(name)
        finally:
            failpoints._point = ""

    def hear(self, number: int, done: roles.Done) -> None:
        assert self.told.setdefault(number, done) == done, "an event has changed"
        assert number == done.round and (done.devices, done.total) == (2, self.size * float(done.round)), done

    # -- the broker

    def connect(self, name: str) -> None:
        place, node = self.places[name], self.places[name].node
        if node is None or place.connected:
            return
        place.connected, place.queue, place.wills = True, [], []
        for link in node.all_links:
            will = node.make_will(link)
            place.wills.append((will.topic, will.payload))
            link.connection = Wire(self, name)  # type: ignore[assignment]
            node.announcer.announce_over(link)

    def break_connection(self, name: str) -> None:
        """The broker notices, and says so for the node; the node notices at its next turn."""
        place = self.places[name]
        place.connected, place.queue = False, []
        if place.node is not None:
            for link in place.node.all_links:
                link.connection = None
                place.node.neighbours.handle_lost_link(link)
        for topic, payload in place.wills:
            self.publish(topic, payload)

    def publish(self, topic: str, payload: bytes) -> None:
        parsed = topics.parse_topic(topic)
        for name, place in self.places.items():
            hears = parsed.parent == name if parsed.upward else parsed.parent == PARENTS.get(name)
            if place.connected and hears and (parsed.upward or parsed.child in (name, ALL)):
                place.queue.append((topic, payload))
                place.heard.append((topic, payload))

    # -- a node's turn

    def turn(self, name: str, frames: int) -> None:
        """Give a node so many frames, and let it work, save and publish."""
        place, node = self.places[name], self.places[name].node
        if node is None:
            return
        self.clock.offset += self.step
        given, place.queue = place.queue[:frames], place.queue[frames:]
        for topic, payload in given:
            node.dispatcher.take_payload(topic, payload)
        now = self.clock.monotonic()
        node.membership.take_up_pending(now)
        node.main.save_session(now)
        node.main.publish_due(now)
        assert not any(key.startswith("quarantined") for key in node.counters), dict(node.counters)
        if node.session is not None:
            self.witness.check_owed(name, node.session.incoming.acks)
        self.check_state(name)

    def check_state(self, name: str) -> None:
        """Nobody has counted anything twice in what a node remembers."""
        state = self.state(name) if self.is_at_work(name) else None
        if isinstance(state, roles.Sums):
            assert all(count == 1 for count in state.heard.values()), (name, state.heard)
        if isinstance(state, roles.Tally) and self.worked_once:
            assert state.count == state.last, (name, state)

    def is_at_work(self, name: str) -> bool:
        node = self.places[name].node
        return node is not None and node.session is not None and node.session.node.record.started

    # -- disks

    def reboot(self) -> None:
        self.boots += 1
        (self.base / "boot").write_text(f"boot {self.boots}")

    def lose_disk(self, name: str) -> None:
        self.kill(name)
        shutil.rmtree(self.base / name, ignore_errors=True)
        self.witness.forget(name)
        self.worked_once = False

    def damage(self, name: str, place: int) -> None:
        self.kill(name)
        self.witness.forget(name)
        if flip_record(self.base / name / "count.db", place):
            self.worked_once = False

    def snapshot(self, name: str) -> None:
        """Keep a copy of a node's disk as it is now, as a disk does that has synced nothing since."""
        shutil.rmtree(self.base / "copies" / name, ignore_errors=True)
        if (self.base / name).exists():
            shutil.copytree(self.base / name, self.base / "copies" / name)

    def cut_power(self, name: str) -> None:
        """The disk has nothing of what came after the last snapshot."""
        copy = self.base / "copies" / name
        self.kill(name)
        if copy.exists():
            shutil.rmtree(self.base / name)
            shutil.copytree(copy, self.base / name)
            self.witness.forget(name)
            self.reboot()
            self.worked_once = False

    def back_up(self, name: str) -> None:
        """Keep a backup of a node, which may run meanwhile."""
        source, target = self.base / name, self.base / "backups" / name
        if (source / "count.db").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            copy_store(source / "count.db", target / "count.db")
            shutil.copyfile(source / "current", target / "current")

    def put_back(self, name: str) -> None:
        """A new machine is given the backup; nothing happens where there is none."""
        if (self.base / "backups" / name).exists():
            self.lose_disk(name)
            shutil.copytree(self.base / "backups" / name, self.base / name)
            make_another_disk(self.base / name / "count.db")

    # -- the end

    def heal(self) -> None:
        """All faults are over."""
        self.failing.clear()
        self.clock.offset += 100
        for name in NAMES:
            self.start(name)
            self.connect(name)

    def go_on(self, rounds: int, turns: int = 300) -> None:
        """All goes well: so many more rounds must end."""
        self.heal()
        wanted = max(self.told, default=0) + rounds
        for turn in range(turns):
            if max(self.told, default=0) >= wanted:
                return
            for name in NAMES:
                self.turn(name, 1000)
            if turn % 10 == 9:
                self.clock.offset += 70
        raise AssertionError(f"the run stands still at round {max(self.told, default=0)}: {self.describe()}")

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, place in self.places.items():
            session = place.node.session if place.node else None
            if session is not None:
                found[name] = session.node.record.below.owed, session.node.record.state, session.members.here
        return found

    def state(self, name: str) -> Any:
        node = self.places[name].node
        assert node is not None and node.session is not None
        return node.session.node.record.state
