"""Calls a role: one call at a time, in the loop or on a worker thread, and says what came of it.

A call changes nothing but what it returns. So a call that fails, is cancelled or dies with the process leaves the node
as it was.
"""

from __future__ import annotations

import errno
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
from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.delivery.storage.store import NEW_DISK, Job
from edge_sdk.errors import Cancelled, EncodeError, PeerError, UsageError
from edge_sdk.wire.frames import Buffer

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""Errors of a disk that is full or fails."""


class MessageCodec(Protocol):
    """Writes values as bytes and reads them back; `wire.codec.codec.Codec` does."""

    def encode(self, value: Any) -> bytes: ...
    def decode(self, data: Any) -> Any: ...


def decode_saved(codec: MessageCodec, body: Buffer, what: str) -> Any:
    """Read something that this node has saved, and whose checksum is right.

    Raises:
        UsageError: another version has saved it, which writes it in another way.
    """
    try:
        return codec.decode(body)
    except PeerError as e:
        raise UsageError(f"{what} was saved by a version that writes it in another way ({e})") from None


@dataclass(frozen=True)
class Assembly:
    """A role with all that it needs, built from a run's description.

    Attributes:
        role: the three functions of this node's tier.
        env: what the role is given.
        policy: when a round of this node is over.
        messages: codec of what may cross a wire.
        records: codec of `node.Record`, of this role's state, and of what it tells the application.
        late_counts: what is done for a round that the parent has closed without this node counts in a later one.
        patient: a node that begins the run waits for its children however long that takes; see `roles/beginning.py`.
        joins_later: a child may take part from a later round on, so nobody need wait for one that cannot now.
        may_decline: so a child whose application wants no training is away; in a rollout nothing is trained.
        looks_on: the node is never ready: it is asked nothing, and hears the end (live/membership/onlooking.py).
    """

    role: Role
    env: NodeEnv
    policy: Policy
    messages: MessageCodec
    records: MessageCodec
    late_counts: bool = False
    patient: bool = True
    joins_later: bool = False
    may_decline: bool = False
    looks_on: bool = False


Verb = Literal["start", "arrive", "excuse", "tick"]


@record
class Task:
    """One call to be made.

    Attributes:
        job: to arrive: the message; to excuse: whose answer to which question is not waited for.
    """

    verb: Verb
    node: Node
    now: float
    job: Job | None = None


@record
class EncodedMessage:
    """One message for one peer or several, as bytes.

    Attributes:
        up: it is for the parent.
        lasts: seconds for which it is worth sending, see `method.Send`.
    """

    to: tuple[str, ...]
    number: int
    asks: bool
    up: bool
    body: bytes
    lasts: float = inf


@record
class Outcome:
    """Outcome of one call.

    Attributes:
        node: the node after the call, or None if nothing is to be changed.
        messages: what is to be sent to peers.
        jobs: messages of this node to itself.
        told: messages for the application, each beside its encoding.
        refused: the message came too late, twice or from a stranger.
        broken: it could not be read, or nothing could be sent after it.
        cancelled: the role gave up, because it was asked to.
        failed: the traceback of what the role raised.
        unsaved: the disk did not take what the role writes beside its answer; nothing is wrong with the message.
        unusable: why this node cannot take part in the run after all.
    """

    task: Task
    node: Node | None = None
    messages: tuple[EncodedMessage, ...] = ()
    jobs: tuple[Job, ...] = ()
    told: tuple[tuple[Any, bytes], ...] = ()
    refused: str = ""
    broken: str = ""
    cancelled: bool = False
    failed: str = ""
    unsaved: OSError | None = None
    unusable: str = ""


def perform(assembly: Assembly, task: Task) -> Outcome:
    """Make the call. Raises nothing."""
    reach("working")
    try:
        return call_and_encode(assembly, task)
    except Cancelled:
        return Outcome(task, cancelled=True)
    except EncodeError as e:
        return Outcome(task, unusable=f"what {task.node.name} is to send now cannot be sent: {e}")
    except UsageError as e:
        return Outcome(task, unusable=str(e))
    except OSError as e:
        return Outcome(task, unsaved=e) if e.errno in FULL else Outcome(task, failed=traceback.format_exc())
    except Exception:
        return Outcome(task, failed=traceback.format_exc())
    finally:
        reach("worked")


def call_and_encode(assembly: Assembly, task: Task) -> Outcome:
    """Make the call, as if the message that it is for had not come if that is of no use.

    Also where a child's message could be read but nothing could be sent after it: the sum with it is out of range, say.
    Without this step the others' messages may do, so it costs its sender this step and nobody the run. If they do not
    either, it is not this child's doing, and `EncodeError` is raised: the node cannot go on, and says so to its parent.
    """
    try:
        return encode_outcome(assembly, task, call_role(assembly, task))
    except PeerError as e:
        return excuse_sender(assembly, task, str(e))
    except EncodeError as e:
        if task.verb != "arrive" or not is_of_child(task):
            raise
        return excuse_sender(assembly, task, f"what follows from it cannot be sent: {e}")


def is_of_child(task: Task) -> bool:
    """The call is for a message of a child: not of the parent, and not of the node itself."""
    return task.job is not None and task.job.sender not in (task.node.parent, task.node.name)


def excuse_sender(assembly: Assembly, task: Task, why: str) -> Outcome:
    """Drop a message that cannot be read, or that no role may send. A child's answer is not waited for any longer:
    the child has given it, and will not give another one."""
    job = task.job
    if job is None or not is_of_child(task):
        return Outcome(task, broken=why)
    done = nodes.excused(task.node, job.sender, job.number, task.now, why)
    return changed(encode_outcome(assembly, task, done), broken=why)


def call_role(assembly: Assembly, task: Task) -> Effects:
    """Make the call that a task stands for."""
    if task.verb == "start":
        return nodes.start(task.node, task.now)
    if task.verb == "tick" or task.job is None:
        return nodes.tick(task.node, task.now)
    job = task.job
    if task.verb == "excuse":
        return nodes.excused(task.node, job.sender, job.number, task.now)
    if job.number == NEW_DISK:
        return nodes.renewed(task.node, job.sender, task.now)
    message = assembly.messages.decode(job.body)
    return nodes.arrive(task.node, Envelope(job.sender, task.node.name, job.number, message, job.asks), task.now)


def encode_outcome(assembly: Assembly, task: Task, done: Effects) -> Outcome:
    """Write what a call wants to send as bytes. Here, and not when it is saved: the worker may do it meanwhile."""
    if done.refused:
        return Outcome(task, refused=done.refused)
    if not (done.out or done.told):
        return Outcome(task, done.node)
    encode = assembly.messages.encode
    mine = tuple(Job(e.sender, e.number, e.asks, encode(e.message)) for e in done.out if e.to == e.sender)
    told = tuple((m, assembly.records.encode(m)) for m in done.told)
    node = without_messages(done.node) if done.out else done.node
    return Outcome(task, node, encode_messages(done, encode), mine, told)


def encode_messages(done: Effects, encode: Callable[[Any], bytes]) -> tuple[EncodedMessage, ...]:
    """Encode the envelopes for peers. Envelopes with the same message go together: it is encoded once."""
    groups: dict[tuple[int, int, bool, bool, float], list[Envelope]] = {}
    for e in done.out:
        if e.to != e.sender:
            groups.setdefault((id(e.message), e.number, e.asks, e.to == done.node.parent, e.lasts), []).append(e)
    return tuple(
        EncodedMessage(tuple(e.to for e in group), number, asks, up, encode(group[0].message), lasts)
        for (_, number, asks, up, lasts), group in groups.items()
    )


def without_messages(node: Node) -> Node:
    """The node without the messages in `last`: they are in the outbox, from where they are repeated."""
    last = {peer: changed(e, message=None) for peer, e in node.record.last.items() if e.message is not None}
    return nodes.with_record(node, last={**node.record.last, **last}) if last else node


@dataclass
class Worker:
    """A thread that makes calls, one at a time.

    Attributes:
        wake: called after each call, from this thread.
        tasks: calls to be made; those that are given together follow each other without a look at the disk.
        done: outcomes that nobody has taken yet.
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
        """Make calls until `close`. Each call in a batch starts from the node that the one before has left."""
        while not self.stopping:
            node = None
            for task in self.tasks.get():
                if self.stopping:
                    return
                self.running = task if node is None else changed(task, node=node, now=time.monotonic())
                outcome = perform(self.assembly, self.running)
                node = outcome.node or self.running.node
                self.running = None
                self.done.put(outcome)
                self.wake()

    def close(self, grace: float) -> bool:
        """End the thread; True if it has ended within `grace` seconds."""
        self.stopping = True
        self.tasks.put(())
        self.thread.join(grace)
        return not self.thread.is_alive()
