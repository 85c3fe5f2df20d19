"""MQTT topics. Who may write where can be seen in the topic itself, so that a broker's access list can enforce it.

    auscult/v1/<parent>/<child>/up/<channel>      child to parent
    auscult/v1/<parent>/<child>/down/<channel>    parent to one child
    auscult/v1/<parent>/all/down/<channel>        parent to all its children

Channel `m` carries messages and acknowledgements, `b` births, hellos and wills. On `f` a hospital whose settings say so
reports how its devices stand, for a console; nodes do not listen to it. On `r` the service that the console belongs to
tells a hospital whose settings want it which devices were enrolled for it.

A node may work in further runs beside its main one, each in a lane of its own: `m` and `b` are of the main lane, `m1`
and `b1` of the first one beside it. All lanes of a node share its connections, and so its certificate and its rights.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache

from edge_sdk.contract.records import record
from edge_sdk.errors import PeerError

ROOT = ("auscult", "v1")
ALL = "all"
ANYBODY = "+"
MESSAGES, BIRTHS, REPORTS, ROSTERS = "m", "b", "f", "r"

KNOWN = 4096
"""Topics that are kept as they were put together or taken apart: a node has the same few again and again."""
LONGEST = 256
"""Characters of a topic: names have 64 at most, and some brokers take no longer one."""
MOST_LANES = 4
"""Lanes beside the main one, at most."""
LANES = {f"{channel}{lane or ''}": (channel, lane) for channel in (MESSAGES, BIRTHS) for lane in range(MOST_LANES + 1)}
"""Channel as it stands in a topic -> channel and number of the lane; other channels have no lanes."""


@record
class ParsedTopic:
    """A topic, taken apart. `upward`: it is for what the child says to the parent. `lane`: 0 is the main one."""

    parent: str
    child: str
    upward: bool
    channel: str
    lane: int = 0

    @cached_property
    def sender(self) -> str:
        return self.child if self.upward else self.parent


@lru_cache(KNOWN)
def upward(parent: str, child: str, channel: str, lane: int = 0) -> str:
    """Topic of what a child says to its parent."""
    return "/".join((*ROOT, parent, child, "up", f"{channel}{lane or ''}"))


@lru_cache(KNOWN)
def downward(parent: str, child: str, channel: str, lane: int = 0) -> str:
    """Topic of what a parent says to a child, or with ALL to all its children."""
    return "/".join((*ROOT, parent, child, "down", f"{channel}{lane or ''}"))


def heard_by_parent(me: str, children: Iterable[str] = (ANYBODY,), lane: int = 0) -> tuple[str, ...]:
    """Topics that a parent subscribes to.

    Args:
        children: those that it hears; by default whoever calls.
        lane: the only one that it works in; 0: all of them. Wills are of the main lane, whatever the node works in.
    """
    if not lane:
        return tuple(upward(me, child, "+") for child in children)
    channels = ((MESSAGES, lane), (BIRTHS, lane), (BIRTHS, 0))
    return tuple(upward(me, child, *channel) for child in children for channel in channels)


def heard_by_child(parent: str, me: str) -> tuple[str, ...]:
    """Topics that a child subscribes to."""
    return downward(parent, me, "+"), downward(parent, ALL, "+")


def find_lane(topic: str) -> int:
    """Number of the lane that a topic is of; 0 also for what is no topic of ours."""
    return LANES.get(topic.rpartition("/")[2], ("", 0))[1]


def find_child(topic: str, me: str) -> str:
    """The child that speaks to this node in its main lane on a topic; "": nobody does."""
    parts = topic.split("/")
    own = len(parts) == 6 and tuple(parts[:3]) == (*ROOT, me) and parts[4] == "up"
    return parts[3] if own and not find_lane(topic) else ""


@lru_cache(KNOWN)
def parse_topic(topic: str) -> ParsedTopic:
    """Take a topic apart.

    Raises:
        PeerError: it is none of ours.
    """
    if len(topic) > LONGEST:  # it would be kept as long as others
        raise PeerError(f"topic {topic[:40]!r}... has {len(topic)} characters, at most {LONGEST}")
    parts = topic.split("/")
    if len(parts) != 6 or tuple(parts[:2]) != ROOT or parts[4] not in ("up", "down"):
        raise PeerError(f"topic {topic!r} is not {'/'.join(ROOT)}/<parent>/<child>/<up or down>/<channel>")
    return ParsedTopic(parts[2], parts[3], parts[4] == "up", *LANES.get(parts[5], (parts[5], 0)))
