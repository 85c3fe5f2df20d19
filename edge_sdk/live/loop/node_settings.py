"""What a live node is made with: its place in the tree, its brokers, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edge_sdk.contract.run import RESERVED_NAMES, checked_name
from edge_sdk.errors import UsageError
from edge_sdk.wire.link import Backoff
from edge_sdk.wire.options import DEFAULTS, Wire

if TYPE_CHECKING:
    from edge_sdk.contract.node import Node

NOTHING, COUNTS, NAMES = "nothing", "counts", "names"
LEVELS = (NOTHING, COUNTS, NAMES)
"""What a hospital tells a console of its devices."""


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


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """What a node says of itself and of its children.

    Attributes:
        reports: what it reports of its children to a console, see `fleet_report`.
        figures: the node as it was last saved -> further gauges, by name.
    """

    reports: str = NOTHING
    figures: Callable[[Node], dict[str, float]] = lambda node: {}


NO_REPORTS = Reporting()


def check_names(name: str, parent: str | None, children: Sequence[str], wait_for: int | None = None) -> None:
    """Raises UsageError for a name that cannot be used or that two of them have, or for more to wait for than these."""
    for each in (name, *([parent] if parent is not None else []), *children):
        checked_name(each, "name")
        if each in RESERVED_NAMES:
            raise UsageError(f"name = {each!r} has a meaning of its own; choose another")
    if len({name, parent, *children}) < 2 + len(children):
        raise UsageError(f"{name}, its parent and its children must have different names")
    if wait_for is not None and not 0 <= wait_for <= len(children):
        raise UsageError(f"wait_for = {wait_for}, there are {len(children)} children")
