"""Which packets of one connection its broker has taken, and which may be why it has ended the connection.

With MQTT 3.1.1 a broker that is sent too much cuts the connection, without a word. Some do so before they acknowledge
the packet, some have acknowledged it by then. So a packet is proven when one that was published behind it is
acknowledged, or when it was acknowledged and the connection has lasted for a while.
"""

from __future__ import annotations

from math import inf

LINGER = (
    1.0  # seconds after which the end of a connection is not the answer to a packet that was acknowledged, or is out
)


class PacketProof:
    """What is known of the packets of one connection.

    Args:
        taken: bytes of the largest packet that the broker was known to take before.

    Attributes:
        flying: number of an unacknowledged message -> (when it was published, bytes of its packet, bytes of the largest
            packet before it).
        proven: bytes of the largest packet that was proven in this connection.
    """

    def __init__(self, taken: int):
        self.before, self.proven, self.largest = taken, 0, 0
        self.flying = dict[int, tuple[float, int, int]]()
        self.acknowledged = self.light = (-inf, 0)  # when, and bytes of the largest since anything was proven

    @property
    def taken(self) -> int:
        """Bytes of the largest packet that the broker is known to take."""
        return max(self.before, self.proven)

    def note_sent(self, number: int, size: int, now: float) -> None:
        """A message was published that the broker is to acknowledge."""
        self.flying[number] = now, size, self.largest
        self.largest = max(self.largest, size)

    def note_light(self, size: int, now: float) -> None:
        """A message was published that the broker does not acknowledge."""
        self.light = now, size if now > self.light[0] + LINGER else max(size, self.light[1])
        self.largest = max(self.largest, size)

    def note_acknowledged(self, number: int, now: float) -> tuple[float, int]:
        """A message was acknowledged; returns when it was published and the bytes of its packet, or zeros."""
        sent, size, others = self.flying.pop(number, (0.0, 0, 0))
        if size:
            self.settle(now)
            self.proven = max(self.proven, others)
            self.acknowledged = now, max(size, self.acknowledged[1]) if self.acknowledged[1] > self.proven else size
            if sent >= self.light[0]:
                self.light = -inf, 0
        return sent, size

    def settle(self, now: float) -> None:
        """What was acknowledged some time ago is proven."""
        if now > self.acknowledged[0] + LINGER:
            self.proven = max(self.proven, self.acknowledged[1])

    def find_doubtful(self, now: float) -> int:
        """Bytes of the largest packet that may be why the broker ends the connection now; 0: there is none."""
        self.settle(now)
        fresh = [size for at, size in (self.acknowledged, self.light) if now <= at + LINGER]
        return max((*(size for _, size, _ in self.flying.values()), *fresh), default=0)
