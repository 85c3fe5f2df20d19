"""MQTT topics. Who may write where can be seen in the topic itself, so that a broker's access list can enforce it.

    auscult/v1/<parent>/<child>/up/<channel>      child to parent
    auscult/v1/<parent>/<child>/down/<channel>    parent to one child
    auscult/v1/<parent>/all/down/<channel>        parent to all its children

Channel `m` carries messages and acknowledgements, `b` births, hellos and wills. On `f` a hospital whose settings say so
reports how its devices stand, for a console; nodes do not listen to it. On `r` the service that the console belongs to
tells a hospital whose settings want it which devices were enrolled for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from edge_sdk.contract.records import record
from edge_sdk.errors import PeerError

ROOT = ("auscult", "v1")
ALL = "all"
ANYBODY = "+"
MESSAGES, BIRTHS, REPORTS, ROSTERS = "m", "b", "f", "r"


@record
class ParsedTopic:
    """A topic, taken apart. `upward`: it is for what the child says to the parent."""

    parent: str
    child: str
    upward: bool
    channel: str

    @property
    def sender(self) -> str:
        return self.child if self.upward else self.parent


def upward(parent: str, child: str, channel: str) -> str:
    """Topic of what a child says to its parent."""
    return "/".join((*ROOT, parent, child, "up", channel))


def downward(parent: str, child: str, channel: str) -> str:
    """Topic of what a parent says to a child, or with ALL to all its children."""
    return "/".join((*ROOT, parent, child, "down", channel))


def heard_by_parent(me: str, children: Iterable[str] = (ANYBODY,)) -> tuple[str, ...]:
    """Topics that a parent subscribes to. `children`: those that it hears; by default whoever calls."""
    return tuple(upward(me, child, "+") for child in children)


def heard_by_child(parent: str, me: str) -> tuple[str, ...]:
    """Topics that a child subscribes to."""
    return downward(parent, me, "+"), downward(parent, ALL, "+")


def parse_topic(topic: str) -> ParsedTopic:
    """Take a topic apart.

    Raises:
        PeerError: it is none of ours.
    """
    parts = topic.split("/")
    if len(parts) != 6 or tuple(parts[:2]) != ROOT or parts[4] not in ("up", "down"):
        raise PeerError(f"topic {topic!r} is not {'/'.join(ROOT)}/<parent>/<child>/<up or down>/<channel>")
    return ParsedTopic(parts[2], parts[3], parts[4] == "up", parts[5])
