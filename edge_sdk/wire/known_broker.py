"""What a node has learned of a broker: the version of MQTT that it speaks, and how large a packet it takes.

With MQTT 5 a broker says at once how large a packet may be. With 3.1.1 it cuts off whoever sends a larger one, without
a word, and what was cut off would be sent again for ever. So whoever is cut off while larger packets were under way
than the broker has acknowledged sends half as large ones next time. A bad link cuts connections too: one cut says
nothing, a packet that was proven (`link_limits.py`) says that the broker takes packets of its size, and smaller ones
are what a bad link needs anyway. What was learned is kept on the disk, and forgotten after a week: brokers change.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from logging import Logger
from math import inf
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.errors import UsageError
from edge_sdk.wire.fields import SMALLEST_CHUNK
from edge_sdk.wire.frames import ACKS_PER_FRAME

PACKET = 256 * 1024 * 1024 - 1  # bytes of the largest packet that MQTT has
HEADROOM = 4096  # bytes of a packet that are not the body
LEAST_PACKET = SMALLEST_CHUNK + HEADROOM  # bytes; a broker that takes no such packet cannot be used
TELLING = 1024  # bytes; a cut while only smaller packets were under way says nothing of their size
FORGOTTEN_AFTER = 7 * 86400.0  # seconds
CUTS, CUTS_OF_PROVEN = 2, 4  # in a row, before packets of a size are given up: such as were never taken; that were once
HOPELESS = 8  # cuts in a row with the smallest packets, after which it is said that this cannot work
ROOMY, ACKS_OF_SMALL = 64 * 1024, 32  # bytes of a packet below which so many acknowledgements go together
RECENT = 150.0  # seconds; what cannot be sent is tried again at least once a minute
FILE = "brokers.json"  # in a node's directory


def fit_acks(packet: int) -> int:
    """Number of acknowledgements that may travel together: as many as fit into HEADROOM where packets are small."""
    return ACKS_PER_FRAME if packet >= ROOMY else ACKS_OF_SMALL


@dataclass(frozen=True)
class SendLimits:
    """What may be sent over a connection.

    Attributes:
        packet: bytes of the largest packet, unless the broker says less.
        taken: bytes of the largest packet that the broker is known to take; it is to acknowledge larger ones.
        per_second: messages that may be published in a second; None: any number.
    """

    packet: int = PACKET
    taken: int = LEAST_PACKET
    per_second: float | None = None


UNKNOWN = SendLimits()
"""Of a broker of which nothing has been learned."""


@dataclass
class KnownBroker:
    """What is known of one broker.

    Attributes:
        version: of MQTT in which it has accepted this node since that was started, 4 or 5; None: not yet.
        wanted: the only version that may be spoken; None: 5 first, and 4 where the broker has no 5.
        taken: bytes of the largest packet that was proven.
        most: bytes of the largest packet that is sent to it.
        learned: when `most` was learned, by time.time().
        culprit, cuts: bytes of the largest packet under way at the latest cut, and how many cuts in a row there were.
        cannot: why this broker cannot be used, for people; "": it can.
        unsendable: a message that it does not take and that cannot be cut smaller, for people.
        unsendable_at: when there was one last, by time.monotonic().
        has_no_five: it has not answered to MQTT 5.
    """

    wanted: int | None = None
    version: int | None = None
    taken: int = LEAST_PACKET
    most: int = PACKET
    learned: float = 0.0
    culprit: int = 0
    cuts: int = 0
    cannot: str = ""
    unsendable: str = ""
    unsendable_at: float = -inf
    has_no_five: bool = False

    @property
    def trouble(self) -> str:
        """What stands in the way, for people; "": nothing."""
        return self.cannot or (self.unsendable if time.monotonic() < self.unsendable_at + RECENT else "")

    def next_version(self) -> int:
        """Version for the next connection."""
        return self.wanted or self.version or (4 if self.has_no_five else 5)

    def next_packet(self) -> int:
        """Bytes of the largest packet for the next connection."""
        if self.most < PACKET and not 0 <= time.time() - self.learned < FORGOTTEN_AFTER:
            self.most, self.cuts = PACKET, 0
        return self.most

    def note_acceptance(self, version: int) -> None:
        """The broker has accepted a connection of this version."""
        self.version, self.cannot = version, self.cannot if self.cuts else ""

    def note_no_answer(self, version: int) -> bool:
        """The broker has refused this version, or has closed without a word before it accepted anybody.

        Returns:
            True if the other version is to be tried, which needs no waiting.
        """
        if self.wanted is not None or self.version is not None:
            return False
        self.has_no_five = version == 5
        return self.has_no_five

    def note_acknowledged(self, size: int) -> None:
        """During a connection, packets of so many bytes at most were proven."""
        if size >= max(self.culprit, TELLING):
            self.culprit, self.cuts, self.cannot = 0, 0, ""
        self.taken = max(self.taken, size)

    def note_cut(self, under_way: int, acknowledged: int, said: bool = False) -> str:
        """The broker has cut a connection.

        Args:
            under_way: bytes of the largest packet for which it may have done so.
            acknowledged: bytes of the largest packet that was proven during this connection.
            said: it has said that a packet was too large.

        Returns:
            What was learned by that, for the log; "": nothing.
        """
        if under_way <= max(acknowledged, TELLING):
            return ""
        self.culprit, self.cuts = under_way, self.cuts + 1
        if under_way <= LEAST_PACKET:
            if self.cuts >= HOPELESS:
                self.cannot = (
                    f"cut off {self.cuts} times in a row with packets of {under_way} bytes under way; a broker has to "
                    f"take packets of {LEAST_PACKET} bytes"
                )
            return ""
        if not said and self.cuts < (CUTS if under_way > self.taken else CUTS_OF_PROVEN):
            return ""
        if under_way <= self.taken:
            self.taken = LEAST_PACKET
        self.most, self.learned = max(LEAST_PACKET, self.taken, under_way // 2), time.time()
        self.cuts = CUTS - 1  # what is sent next is smaller: one more cut is enough to halve that
        return f"cut off again and again with packets of {under_way} bytes under way; from now on at most {self.most}"

    def note_unsendable(self, size: int, limit: int) -> bool:
        """A message that cannot be cut smaller is larger than the broker takes; True if that was not known."""
        before, self.unsendable_at = self.trouble, time.monotonic()
        self.unsendable = f"the broker takes packets of {limit} bytes, and a message that cannot be cut needs {size}"
        return self.trouble != before


class KnownBrokers:
    """What one node has learned of its brokers, in a file of its directory.

    Args:
        directory: None: nothing is kept.
        wanted: the only version of MQTT that may be spoken; None: 5, and 4 (3.1.1) where a broker has no 5.

    Raises:
        UsageError: there is no such version.
    """

    def __init__(self, directory: Path | None, wanted: int | None, log: Logger):
        if wanted not in (None, 4, 5):
            raise UsageError(f"version = {wanted}, MQTT is spoken in 4 (3.1.1) and 5")
        self.path, self.wanted, self.log = None if directory is None else directory / FILE, wanted, log
        self.known: dict[str, KnownBroker] = {}
        self.saved: dict[str, Any] = {}

    def find(self, broker: str) -> KnownBroker:
        """What is known of a broker, by its address without a password."""
        if broker not in self.known:
            kept = self.read().get(broker)
            known = self.known[broker] = KnownBroker(self.wanted)
            if kept is not None and is_kept(kept):
                known.taken, known.most, known.learned = kept["taken"], kept["most"], kept["learned"]
        return self.known[broker]

    def read(self) -> dict[str, Any]:
        """What the file says; where it cannot be read, which is said, that is learned anew."""
        try:
            found = {} if self.path is None or not self.path.exists() else json.loads(self.path.read_text())
            if type(found) is not dict:
                raise ValueError(f"a table of brokers was expected, there is a {type(found).__name__}")
            return found
        except (OSError, ValueError) as error:
            self.log.warning("%s: %s; the limits of brokers are learned anew", self.path, error)
            return {}

    def save(self) -> None:
        """Write what was learned. Without room on the disk it is learned once more after the next start."""
        facts = {name: {"taken": k.taken, "most": k.most, "learned": k.learned} for name, k in self.known.items()}
        if self.path is None or facts == self.saved:
            return
        self.saved = facts
        try:
            write_text(self.path, json.dumps(self.read() | facts, indent=1) + "\n")
        except OSError as error:
            self.log.warning("%s: %s", self.path, error)


def is_kept(found: Any) -> bool:
    """True if this is what `KnownBrokers.save` writes of a broker, with sizes that there can be."""
    return (
        type(found) is dict
        and found.keys() == {"taken", "most", "learned"}
        and all(type(found[key]) is int and LEAST_PACKET <= found[key] <= PACKET for key in ("taken", "most"))
        and type(found["learned"]) in (int, float)
    )
