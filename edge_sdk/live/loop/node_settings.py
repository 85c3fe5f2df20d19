"""What a live node is made with: its place in the tree, and its brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edge_sdk.wire.link import Backoff
from edge_sdk.wire.options import DEFAULTS, Wire


@dataclass(frozen=True, kw_only=True)
class TreePlace:
    """A node's place in the tree.

    Attributes:
        parent: name of the parent; None: this is the root.
        children: names of the nodes that may take part below.
        sizes: child -> how many devices the run counts on behind it; it is refused if its own settings differ.
        wait_for: children that must be here before the role starts; None: all.
        flexible: the number of devices may change while a run goes on: a child tells it, and a parent believes it.
    """

    parent: str | None = None
    children: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    wait_for: int | None = None
    flexible: bool = False


@dataclass(frozen=True, kw_only=True)
class Transport:
    """A node's brokers, and how long it waits before it tries again.

    Attributes:
        broker: URL of the children's broker (for a device: of its hospital's).
        upstream: URL of the parent's broker, if it is another one.
        wire: certificates, MQTT version, durability.
        upstream_wire: certificates (and leave for plain text) for the parent's broker; None: those of `wire`.
        wait_seconds, rto: see `edge_sdk.delivery.roles.habits.Habits`.
        backoff: see `edge_sdk.wire.link.Backoff`.

    Raises:
        UsageError: a URL is none, or would carry plain text over a network without leave.
    """

    broker: str
    upstream: str | None = None
    wire: Wire = DEFAULTS
    upstream_wire: Wire | None = None
    wait_seconds: float = 10.0
    rto: float = 2.0
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        self.wire.check(self.broker)
        self.above.check(self.upstream or self.broker)

    @property
    def above(self) -> Wire:
        """The wire to the parent's broker."""
        return self.upstream_wire or self.wire
