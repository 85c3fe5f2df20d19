"""Presence: which children are here, and whether the parent is. Made of births, hellos and wills; never saved."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge_sdk.contract.children.device_facts import DeviceFacts, Reason
from edge_sdk.wire.codec.bodies import clip
from edge_sdk.wire.frames import Birth, Hello


@dataclass(frozen=True)
class Child:
    """The latest birth of a child.

    Attributes:
        epoch: of its disk in this run.
        session: number of its connection.
        count: which birth of that connection it is.
        joined: it works in this node's run.
        ready: its role has been started.
        refusal: why it cannot take part, or empty.
        unwilling: why it wants no training now; None: it does.
        facts: what it tells of its machine; None: nothing.
    """

    epoch: int
    session: int
    count: int
    joined: bool
    ready: bool
    refusal: str = ""
    unwilling: Reason | None = None
    facts: DeviceFacts | None = None


REASON = 500  # characters of a refusal that are kept
NAMED = 5  # children that cannot take part whose names go up
DISKS = 4  # of one child that are remembered


class Presence:
    """Latest births of the children, and latest hello of the parent.

    Attributes:
        expected: children who may come.
        disks: child -> epochs of its latest disks, each once, the present one last.
        second: child -> epochs of disks of other nodes that use its name.
        refusals: child that cannot take part -> why.
        nonces: child -> what the first birth of its next connection has to repeat.
    """

    def __init__(self, children: Sequence[str]):
        self.expected = frozenset(children)
        self.disks: dict[str, tuple[int, ...]] = {}
        self.second: dict[str, tuple[int, ...]] = {}
        self.nonces: dict[str, int] = {}
        self.children: dict[str, Child] = {}
        self.refusals: dict[str, str] = {}
        self.parent: Hello | None = None

    def expect(self, children: Sequence[str]) -> None:
        """Expect others from now on; who is none of them any more is not here."""
        self.expected = frozenset(children)
        self.children = {name: child for name, child in self.children.items() if name in self.expected}

    def judge_birth(self, birth: Birth) -> str:
        """Judge a child's birth: "new", "old", "unproven" or "second".

        Old: a later one of the same connection has come. Unproven: of a connection whose first birth has not repeated
        the nonce, so that it may be one that was recorded once. Second: of a node that uses another one's name.
        """
        child = self.children.get(birth.src)
        if child is not None and child.session == birth.session:
            return "new" if birth.count > child.count else "old"
        if not birth.nonce or birth.nonce != self.nonces.get(birth.src):
            return "unproven"
        return "second" if birth.epoch in self.second.get(birth.src, ()) else "new"

    def nonce_for(self, name: str) -> int:
        """The nonce that a child's next connection has to repeat."""
        return self.nonces.setdefault(name, random.getrandbits(62) or 1)

    def note_birth(self, birth: Birth, run: str) -> tuple[Child, Child | None]:
        """Note a child's birth; returns the child as it is now, and as it was before."""
        joined, refusal = bool(run) and birth.run == run, clip(birth.refusal, REASON)
        ready, about = joined and birth.ready, (birth.unwilling, birth.facts)
        child = Child(birth.epoch, birth.session, birth.count, joined, ready, refusal, *about)
        before = self.children.get(birth.src)
        if before is None or before.session != birth.session:
            self.nonces.pop(birth.src, None)  # it has been used
        self.children[birth.src] = child
        self.note_refusal(birth.src, refusal)
        return child, before

    def note_refusal(self, name: str, refusal: str) -> None:
        if refusal:
            self.refusals[name] = refusal
        else:
            self.refusals.pop(name, None)

    def comes_by_turns(self, birth: Birth) -> bool:
        """A child is back with a disk that another one had replaced: two nodes use one name."""
        if not birth.epoch or birth.gone:
            return False
        before = self.disks.get(birth.src, ())
        self.disks[birth.src] = (*(epoch for epoch in before if epoch != birth.epoch), birth.epoch)[-DISKS:]
        if birth.epoch not in before[:-1]:
            return False
        others = {*self.second.get(birth.src, ()), *before[before.index(birth.epoch) + 1 :]}
        self.second[birth.src] = tuple(sorted(others))[:DISKS]
        return True

    def note_death(self, birth: Birth) -> Child | None:
        """Note a will or a goodbye; returns the child as it was, or None if this is of an older connection than its
        latest."""
        child = self.children.get(birth.src)
        if child is None or child.session != birth.session:
            return None
        self.note_refusal(birth.src, "")
        return self.children.pop(birth.src)

    def note_hello(self, hello: Hello) -> bool:
        """Note the parent's hello; True if it is the first of the parent's present connection."""
        before, self.parent = self.parent, hello
        return before is None or before.session != hello.session

    def forget_children(self) -> None:
        """Our own connection to the children is gone: they will be born again."""
        self.children.clear()
        self.refusals.clear()

    def forget_parent(self) -> None:
        self.parent = None

    @property
    def here(self) -> tuple[str, ...]:
        """Names of the children that count: in this run, and ready."""
        return tuple(sorted(name for name, c in self.children.items() if c.ready))

    @property
    def joined(self) -> frozenset[str]:
        """Names of the children that can be sent messages of this run."""
        return frozenset(name for name, c in self.children.items() if c.joined)

    @property
    def willingness(self) -> dict[str, Reason | None]:
        """Child that has come -> why it wants no training now, or None if it does."""
        return {name: c.unwilling for name, c in self.children.items()}


def describe_refusals(refusals: Mapping[str, str], children: int) -> str:
    """Who cannot take part, and the reason of the first one, e.g. "2 of 2 children cannot take part: a (why), b"."""
    names = sorted(refusals)
    more = [*names[1:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])]
    first = f"{names[0]} ({refusals[names[0]]})"
    return f"{len(names)} of {children} children cannot take part: {', '.join([first, *more])}"
