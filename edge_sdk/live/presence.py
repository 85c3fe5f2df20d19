"""Presence: which children are here, and whether the parent is. Made of births, hellos and wills; never saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_sdk.wire.codec.bodies import clip
from edge_sdk.wire.frames import Birth, Hello


@dataclass(frozen=True)
class Child:
    """The latest birth of a child.

    Attributes:
        epoch: of its disk in this run.
        session: number of its connection.
        joined: it works in this node's run.
        ready: its role has been started.
        refusal: why it cannot take part, or empty.
    """

    epoch: int
    session: int
    joined: bool
    ready: bool
    refusal: str = ""


REASON = 500  # characters of a refusal that are kept
DISKS = 4  # of one child that are remembered


class Presence:
    """Latest births of the children, and latest hello of the parent.

    Attributes:
        expected: children who may come.
        disks: child -> epochs of its latest disks, each once, the present one last.
    """

    def __init__(self, children: Sequence[str]):
        self.expected = frozenset(children)
        self.disks: dict[str, tuple[int, ...]] = {}
        self.children: dict[str, Child] = {}
        self.parent: Hello | None = None

    def note_birth(self, birth: Birth, run: str) -> tuple[Child, Child | None]:
        """Note a child's birth; returns the child as it is now, and as it was before."""
        joined = bool(run) and birth.run == run
        child = Child(birth.epoch, birth.session, joined, joined and birth.ready, clip(birth.refusal, REASON))
        before = self.children.get(birth.src)
        self.children[birth.src] = child
        return child, before

    def comes_by_turns(self, birth: Birth) -> bool:
        """A child is back with a disk that another one had replaced: two nodes use one name."""
        if not birth.epoch or birth.gone:
            return False
        before = self.disks.get(birth.src, ())
        self.disks[birth.src] = (*(epoch for epoch in before if epoch != birth.epoch), birth.epoch)[-DISKS:]
        return birth.epoch in before[:-1]

    def note_death(self, birth: Birth) -> bool:
        """Note a will or a goodbye; False if it is of an older connection than the child's latest."""
        child = self.children.get(birth.src)
        if child is None or child.session != birth.session:
            return False
        del self.children[birth.src]
        return True

    def note_hello(self, hello: Hello) -> bool:
        """Note the parent's hello; True if it is the first of the parent's present connection."""
        before, self.parent = self.parent, hello
        return before is None or before.session != hello.session

    def forget_children(self) -> None:
        """Our own connection to the children is gone: they will be born again."""
        self.children.clear()

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
    def refusals(self) -> dict[str, str]:
        """Child that cannot take part -> why."""
        return {name: c.refusal for name, c in self.children.items() if c.refusal}
