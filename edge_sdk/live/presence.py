"""Which children are here, and whether the parent is. Sans-I/O, made of births, hellos and wills; not saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_sdk.wire.frames import Birth, Hello


@dataclass(frozen=True)
class Child:
    """The latest birth of a child.

    Attributes:
        epoch: of its disk in this run.
        session: of its connection.
        joined: it works in this node's run.
        ready: its role plays.
        refusal: why it cannot take part, or empty.
    """

    epoch: int
    session: int
    joined: bool
    ready: bool
    refusal: str = ""


class Presence:
    """Births of children, hellos of the parent."""

    def __init__(self, children: Sequence[str]):
        self.expected = frozenset(children)
        self.children: dict[str, Child] = {}
        self.parent: Hello | None = None

    def born(self, birth: Birth, run: str) -> tuple[Child, Child | None]:
        """The child now, and as it was before."""
        joined = bool(run) and birth.run == run
        child = Child(birth.epoch, birth.session, joined, joined and birth.ready, birth.refusal)
        before = self.children.get(birth.src)
        self.children[birth.src] = child
        return child, before

    def died(self, birth: Birth) -> bool:
        """A will; one of an older connection than the latest counts for nothing."""
        child = self.children.get(birth.src)
        if child is None or child.session != birth.session:
            return False
        del self.children[birth.src]
        return True

    def hello(self, hello: Hello) -> bool:
        """Whether it is the first in this connection of the parent's and ours."""
        before, self.parent = self.parent, hello
        return before is None or before.session != hello.session

    def lost_children(self) -> None:
        """Our own connection to them is gone: they will be born again."""
        self.children.clear()

    def lost_parent(self) -> None:
        self.parent = None

    @property
    def here(self) -> tuple[str, ...]:
        """Children that count: in this run, and ready."""
        return tuple(sorted(name for name, c in self.children.items() if c.ready))

    @property
    def joined(self) -> frozenset[str]:
        """Children that can be sent messages of this run."""
        return frozenset(name for name, c in self.children.items() if c.joined)

    @property
    def refusals(self) -> dict[str, str]:
        return {name: c.refusal for name, c in self.children.items() if c.refusal}
