"""Names of MQTT topics: who may write where is visible in the topic, so that a broker's access list can hold it.

    auscult/v1/<parent>/<child>/up/<channel>      child to parent
    auscult/v1/<parent>/<child>/down/<channel>    parent to one child
    auscult/v1/<parent>/all/down/<channel>        parent to all its children

Channel `m` carries messages and acknowledgements, `b` births, hellos and wills.
"""

from __future__ import annotations

from edge_sdk.contract.records import record
from edge_sdk.errors import PeerError

ROOT = ("auscult", "v1")
ALL = "all"
MESSAGES, BIRTHS = "m", "b"


@record
class Place:
    """A topic, taken apart. `upward`: from the child to the parent."""

    parent: str
    child: str
    upward: bool
    channel: str

    @property
    def sender(self) -> str:
        return self.child if self.upward else self.parent


def up(parent: str, child: str, channel: str) -> str:
    return "/".join((*ROOT, parent, child, "up", channel))


def down(parent: str, child: str, channel: str) -> str:
    return "/".join((*ROOT, parent, child, "down", channel))


def of_children(me: str) -> tuple[str, ...]:
    """What a parent subscribes to."""
    return (up(me, "+", "+"),)


def of_parent(parent: str, me: str) -> tuple[str, ...]:
    """What a child subscribes to."""
    return down(parent, me, "+"), down(parent, ALL, "+")


def parse(topic: str) -> Place:
    parts = topic.split("/")
    if len(parts) != 6 or tuple(parts[:2]) != ROOT or parts[4] not in ("up", "down"):
        raise PeerError(f"topic {topic!r} is not {'/'.join(ROOT)}/<parent>/<child>/<up or down>/<channel>")
    return Place(parts[2], parts[3], parts[4] == "up", parts[5])
