"""Runs a role: one call at a time, in the loop or on a worker thread, and says what came of it.

A call changes nothing but what it returns. So one that fails, is cancelled or dies with the process leaves the node as
it was.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from queue import SimpleQueue
from typing import Any, Literal, Protocol

from edge_sdk.contract import node as nodes
from edge_sdk.contract.method import NodeEnv, Role
from edge_sdk.contract.node import Effects, Envelope, Node
from edge_sdk.contract.records import changed, record
from edge_sdk.contract.round import Policy
from edge_sdk.delivery.failpoints import reach
from edge_sdk.delivery.store import Job
from edge_sdk.errors import Cancelled, PeerError, UsageError


class Coder(Protocol):
    """What is needed of `codec.Codec`."""

    def encode(self, value: Any) -> bytes: ...
    def decode(self, data: Any) -> Any: ...


@dataclass(frozen=True)
class Assembly:
    """What a process builds from a run.

    Attributes:
        messages: codec of what may cross a wire.
        records: codec of `node.Record`, of this role's state, and of what it tells the application.
    """

    role: Role
    env: NodeEnv
    policy: Policy
    messages: Coder
    records: Coder


Verb = Literal["start", "arrive", "excuse", "tick"]


@record
class Task:
    """One call to be made. `job`: what arrives; to excuse: whose answer to which question is not waited for."""

    verb: Verb
    node: Node
    now: float
    job: Job | None = None


@record
class Parcel:
    """One encoded message for one peer or several. `up`: for the parent. `lasts`: seconds, see `method.Send`."""

    to: tuple[str, ...]
    number: int
    asks: bool
    up: bool
    body: bytes
    lasts: float = inf


@record
class Outcome:
    """What one call came to.

    Attributes:
        node: afterwards, or None if nothing is to be changed.
        parcels: for peers.
        jobs: for this node itself.
        told: for the application, as it is and encoded.
        refused: the message came too late, twice or from a stranger; `broken`: it could not be read.
        cancelled: the role gave up, because it was asked to.
        failed: the traceback of what the role raised.
        unusable: why this node cannot take part in the run after all.
    """

    task: Task
    node: Node | None = None
    parcels: tuple[Parcel, ...] = ()
    jobs: tuple[Job, ...] = ()
    told: tuple[tuple[Any, bytes], ...] = ()
    refused: str = ""
    broken: str = ""
    cancelled: bool = False
    failed: str = ""
    unusable: str = ""


def perform(assembly: Assembly, task: Task) -> Outcome:
    """Make the call. Raises nothing."""
    reach("working")
    try:
        try:
            return outcome(assembly, task, call(assembly, task))
        except PeerError as e:
            return without(assembly, task, str(e))
    except Cancelled:
        return Outcome(task, cancelled=True)
    except UsageError as e:
        return Outcome(task, unusable=str(e))
    except Exception:
        return Outcome(task, failed=traceback.format_exc())
    finally:
        reach("worked")


def without(assembly: Assembly, task: Task, why: str) -> Outcome:
    """A message that cannot be read, or that no role may send: what a child owes by it is not waited for."""
    job = task.job
    if job is None or job.sender in (task.node.parent, task.node.name):
        return Outcome(task, broken=why)
    done = nodes.excused(task.node, job.sender, job.number, task.now)
    return changed(outcome(assembly, task, done), broken=why)


def call(assembly: Assembly, task: Task) -> Effects:
    if task.verb == "start":
        return nodes.start(task.node, task.now)
    if task.verb == "tick" or task.job is None:
        return nodes.tick(task.node, task.now)
    job = task.job
    if task.verb == "excuse":
        return nodes.excused(task.node, job.sender, job.number, task.now)
    message = assembly.messages.decode(job.body)
    return nodes.arrive(task.node, Envelope(job.sender, task.node.name, job.number, message, job.asks), task.now)


def outcome(assembly: Assembly, task: Task, done: Effects) -> Outcome:
    if done.refused:
        return Outcome(task, refused=done.refused)
    encode = assembly.messages.encode
    mine = tuple(Job(e.sender, e.number, e.asks, encode(e.message)) for e in done.out if e.to == e.sender)
    told = tuple((m, assembly.records.encode(m)) for m in done.told)
    return Outcome(task, slim(done.node) if done.out else done.node, parcels(done, encode), mine, told)


def parcels(done: Effects, encode: Callable[[Any], bytes]) -> tuple[Parcel, ...]:
    """The envelopes for peers, those with the same message together: it is encoded once."""
    groups: dict[tuple[int, int, bool, bool, float], list[Envelope]] = {}
    for e in done.out:
        if e.to != e.sender:
            groups.setdefault((id(e.message), e.number, e.asks, e.to == done.node.parent, e.lasts), []).append(e)
    return tuple(
        Parcel(tuple(e.to for e in group), number, asks, up, encode(group[0].message), lasts)
        for (_, number, asks, up, lasts), group in groups.items()
    )


def slim(node: Node) -> Node:
    """Without the messages in `last`: they are in the outbox, from where they are repeated."""
    last = {peer: changed(e, message=None) for peer, e in node.record.last.items() if e.message is not None}
    return nodes.with_record(node, last={**node.record.last, **last}) if last else node


@dataclass
class Worker:
    """A thread that makes calls, one at a time. `done` is filled from there; `wake` is called after each.

    Attributes:
        running: the call in progress.
        stopping: make none of the calls that were given but not begun.
    """

    assembly: Assembly
    wake: Callable[[], None]
    tasks: SimpleQueue[Sequence[Task]] = field(default_factory=SimpleQueue)
    done: SimpleQueue[Outcome] = field(default_factory=SimpleQueue)
    running: Task | None = None
    stopping: bool = False

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self.work, name="auscult-worker", daemon=True)
        self.thread.start()

    def work(self) -> None:
        while not self.stopping:
            node = None
            for task in self.tasks.get():
                if self.stopping:
                    return
                self.running = task if node is None else changed(task, node=node, now=time.time())
                outcome = perform(self.assembly, self.running)
                node = outcome.node or self.running.node
                self.running = None
                self.done.put(outcome)
                self.wake()

    def close(self, grace: float) -> bool:
        """Whether the thread has ended within `grace` seconds."""
        self.stopping = True
        self.tasks.put(())
        self.thread.join(grace)
        return not self.thread.is_alive()
