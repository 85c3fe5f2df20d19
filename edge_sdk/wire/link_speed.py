"""The speed of a link, as it was measured or as somebody has set it, and how much travels at once because of it."""

from __future__ import annotations

from math import inf

SAMPLE = 16 * 1024  # bytes that a message must have to tell something about the speed of the link
SMALLEST, LARGEST = 32 * 1024, 1024 * 1024  # bytes of a chunk, where the broker takes so much
UNLIMITED = 2**31
AT_ONCE = 0.2  # share of a second's messages that may go at once; the others go during the second
SHARE = 0.05  # seconds that a chunk may take over the link


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
