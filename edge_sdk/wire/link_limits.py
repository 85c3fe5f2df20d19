"""What a link bears, as it was measured or as somebody has set it: how fast it is, and how large a packet may be.

With MQTT 3.1.1 a broker that is sent too much cuts the connection, without a word. Some do so before they acknowledge
the packet, some have acknowledged it by then. So a packet is proven when one that was published behind it is
acknowledged, or when it was acknowledged and the connection has lasted for a while.
"""

from __future__ import annotations

from math import inf

SAMPLE = 16 * 1024  # bytes that a message must have to tell something about the speed of the link
SMALLEST, LARGEST = 32 * 1024, 1024 * 1024  # bytes of a chunk, where the broker takes so much
UNLIMITED = 2**31
AT_ONCE = 0.2  # share of a second's messages that may go at once; the others go during the second
SHARE = 0.05  # seconds that a chunk may take over the link
LINGER = (
    1.0  # seconds after which the end of a connection is not the answer to a packet that was acknowledged, or is out
)


def update_rate(rate: float, size: int, took: float) -> float:
    """Bytes per second that a broker takes, after it has acknowledged `size` bytes in `took` seconds; 0: not known."""
    if size < SAMPLE:
        return rate
    return 0.8 * rate + 0.2 * size / took if rate else size / took


def fit_chunk(rate: float) -> int:
    """Number of bytes that should travel together: few over a slow link, which may be cut, many over a fast one."""
    wanted = SMALLEST * 2 if not rate else max(SMALLEST, min(LARGEST, int(rate * SHARE)))
    return 1 << (wanted.bit_length() - 1)


class Quota:
    """Messages that may be published in a second, over any second: brokers in the cloud drop what is beyond.

    What cannot wait (an acknowledgement, a birth) is published all the same and counts: the others wait for longer.

    Args:
        per_second: None: there is no limit.
    """

    def __init__(self, per_second: float | None):
        rate = per_second or inf
        self.limited, self.rate, self.most = per_second is not None, (1 - AT_ONCE) * rate, max(1.0, AT_ONCE * rate)
        self.left, self.at = self.most, 0.0

    def refill(self, now: float) -> None:
        self.left, self.at = min(self.most, self.left + (now - self.at) * self.rate), now

    def count(self, now: float) -> int:
        """Number of messages that may be published now. `now`: time.monotonic()."""
        if not self.limited:
            return UNLIMITED
        self.refill(now)
        return int(self.left)

    def use(self, now: float) -> None:
        """One is published."""
        if self.limited:
            self.refill(now)
            self.left -= 1

    def get_pause(self, now: float) -> float:
        """Seconds until another may be published; inf: one may be now."""
        return inf if self.count(now) >= 1 else max(0.001, (1 - self.left) / self.rate)


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
