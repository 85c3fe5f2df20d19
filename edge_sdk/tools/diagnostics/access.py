"""Does the broker let a node in, and does it let it do no more than it should? Found out by trying what must fail.

The node's own connection is made, with its own name and certificate: so this is for a node that is not running.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge_sdk.tools.diagnostics.findings import Finding
from edge_sdk.wire import topics
from edge_sdk.wire.addresses import Broker, Tls
from edge_sdk.wire.mqtt import REFUSED_VERSION, Connection

PATIENCE = 8.0  # seconds for a connection or an answer
STRANGER = "auscult-doctor"  # a name that no node has
OWN = "doctor"  # a channel that no node reads: a parent who hears something there refuses it with a line in its log
ALL_TOPICS = "/".join((*topics.ROOT, "#"))


@dataclass(frozen=True)
class Part:
    """A node's part at one broker.

    Attributes:
        parent: of the node, where it comes here as a child.
        leads: it has children here.
    """

    name: str
    parent: str | None
    leads: bool

    def list_heard(self) -> tuple[str, ...]:
        above = topics.heard_by_child(self.parent, self.name) if self.parent else ()
        return (*above, *(topics.heard_by_parent(self.name) if self.leads else ()))

    def list_own(self) -> list[str]:
        """Topics on which it must be able to speak."""
        above = [topics.upward(self.parent, self.name, OWN)] if self.parent else []
        return above + ([topics.downward(self.name, STRANGER, OWN)] if self.leads else [])

    def list_forbidden(self) -> list[str]:
        """Topics on which it would speak for somebody else."""
        found = [topics.upward(self.name, STRANGER, topics.MESSAGES)] if self.leads else []
        if self.parent:
            found += [way(self.parent, STRANGER, topics.MESSAGES) for way in (topics.upward, topics.downward)]
        return found


class Probe(Connection):
    """A connection that remembers what the broker said to each publication, and whom it let subscribe."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.answers: list[bool] = []  # True: the broker has taken the publication
        super().__init__(*args, **more)

    def on_publish(self, client: Any, user: Any, mid: int, reason: Any, properties: Any) -> None:
        self.answers.append(not reason.is_failure)
        super().on_publish(client, user, mid, reason, properties)

    def on_subscribe(self, client: Any, user: Any, mid: int, reasons: Any, properties: Any) -> None:
        if not self.up:  # what is subscribed to later is a trial
            super().on_subscribe(client, user, mid, reasons, properties)

    def serve(self, done: Callable[[], bool]) -> bool:
        """Serve the connection until `done()`; False: it was lost, or PATIENCE seconds are over."""
        until = time.monotonic() + PATIENCE
        while not done():
            if self.lost or time.monotonic() > until:
                return False
            if self.wants_write:
                self.write()
            if not self.pending:
                select.select([self], [self] if self.wants_write else [], [], 0.05)
            self.received += self.read()
        return True

    def ask(self, topic: str) -> bool:
        """Publish, and return whether the broker has taken it; a lost connection means that it has not."""
        before = len(self.answers)
        self.publish(topic, b"auscult doctor", 1)
        return self.serve(lambda: len(self.answers) > before) and self.answers[-1]


def connect(part: Part, broker: Broker, tls: Tls, version: int | None) -> Probe:
    """The node's connection; `up`, or `lost` says why not. `version`: None: as a node does, 5 first."""
    if version is None:
        five = connect(part, broker, tls, 5)
        if five.is_accepted or five.reason not in (0, REFUSED_VERSION):
            return five
        five.close()
        return connect(part, broker, tls, 4)
    context = tls.context() if broker.tls else None
    probe = Probe(broker, part.name, part.list_heard(), version=version, tls=context)
    try:
        probe.open()
        if not probe.serve(lambda: probe.up):
            probe.lost = probe.lost or f"no answer within {PATIENCE:.0f} s"
    except OSError as error:
        probe.lost = str(error)
    return probe


def check_login(part: Part, broker: Broker, tls: Tls, version: int | None) -> Finding:
    """Does the broker let the node in?"""
    probe = connect(part, broker, tls, version)
    let_in, why = probe.up, probe.lost
    probe.close()
    if not let_in:
        remedy = "the broker's log says why" + (
            ": is the certificate revoked, or of another site? auscult provision DIRECTORY --list" if broker.tls else ""
        )
        return Finding("login", False, f"{broker} does not let {part.name} in: {why}", remedy)
    spoken = f"MQTT 5, packets of up to {probe.packet} bytes" if probe.version == 5 else "MQTT 3.1.1"
    return Finding("login", True, f"{broker} lets {part.name} in, to its topics; {spoken}")


def check_access(part: Part, broker: Broker, tls: Tls) -> Finding:
    """May the node speak where it must, and nowhere else? MQTT 5 tells a client what was refused, 3.1.1 does not."""
    probe = connect(part, broker, tls, version=5)
    try:
        if not probe.up:
            return Finding("access", None, f"{broker} does not speak MQTT 5, and so does not tell what it refuses")
        return judge_access(part, broker, probe)
    finally:
        probe.close()


def judge_access(part: Part, broker: Broker, probe: Probe) -> Finding:
    probe.client.subscribe(ALL_TOPICS, 1)
    missing = [topic for topic in part.list_own() if not probe.ask(topic)]
    wide = [topic for topic in part.list_forbidden() if probe.ask(topic)]
    heard = [topic for topic, _ in probe.received if topic in part.list_own() or STRANGER in topic]
    if missing:
        remedy = f"auscult provision DIRECTORY, with {part.name} among the nodes; then install and reload the broker"
        return Finding("access", False, f"{part.name} may not write {missing[0]}", remedy)
    if not (wide or heard):
        return Finding("access", True, f"{part.name} can neither speak nor hear for somebody else")
    does = " and ".join(["write"] * bool(wide) + ["read"] * bool(heard))
    detail = f"{part.name} may {does} what is somebody else's, such as {(wide or heard)[0]}"
    if not broker.tls:
        return Finding("access", None, f"{detail}: for a trial on one machine only")
    return Finding(
        "access", False, detail, "use the acl_file that `auscult provision` has written, and reload the broker"
    )
