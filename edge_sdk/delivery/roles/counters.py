"""Counters of a live node: bytes and messages per peer, and how often something went wrong.

Names are dotted words, the peer last: `bytes_in.wrist-3`, `refused.stale`. Counters are saved with the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


class Counters(Counter[str]):
    """Counts by name. `dirty`: changed since they were saved."""

    dirty = False

    def count(self, name: str, by: int = 1) -> None:
        self[name] += by
        self.dirty = True

    def count_traffic(self, direction: str, peer: str, size: int) -> None:
        """Count one payload; `direction` is "in" or "out"."""
        self[f"bytes_{direction}.{peer}"] += size
        self[f"messages_{direction}.{peer}"] += 1
        self.dirty = True

    def restore(self, saved: Mapping[str, int]) -> None:
        """Add what an earlier process has counted."""
        for name, value in saved.items():
            self[name] += value

    def totals(self) -> dict[str, int]:
        """Sums over peers and reasons: {"bytes_in": ..., "refused": ...}. May be called from any thread."""
        sums: Counter[str] = Counter()
        for name, value in dict(self).items():  # a copy: the loop may count while another thread reads
            sums[name.partition(".")[0]] += value
        return dict(sorted(sums.items()))


class RestOfCounters:
    """Counters of a node without those of some of its lanes: what its main lane has counted."""

    def __init__(self, whole: Counters, lanes: Sequence[Counters]) -> None:
        self.whole, self.lanes = whole, lanes

    def totals(self) -> dict[str, int]:
        """Total of each name, or group of names."""
        found = self.whole.totals()
        for lane in self.lanes:
            for name, count in lane.totals().items():
                found[name] = found.get(name, 0) - count
        return found


class LaneCounters(Counters):
    """Counters of one lane of a node. `whole`: of all its lanes, in which everything is counted too."""

    def __init__(self, whole: Counters) -> None:
        super().__init__()
        self.whole = whole

    def count(self, name: str, by: int = 1) -> None:
        super().count(name, by)
        self.whole.count(name, by)

    def count_traffic(self, direction: str, peer: str, size: int) -> None:
        super().count_traffic(direction, peer, size)
        self.whole.count_traffic(direction, peer, size)
