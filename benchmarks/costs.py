"""The traffic of HSGD and its baselines and the time it takes: every message of a run, the paper's formula, its clock.

The paper's cost (19) counts four of the hops between sensor and cloud, and of some only a part. `list_messages` lists
all of them and marks those that the paper counts; a test checks that the sum of these is the paper's formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_sdk.contract.environment.kernels import Split
from edge_sdk.errors import UsageError
from edge_sdk.methods.hsgd.compression import PAPER_KEEP

BYTES = 4
"""Size of a number."""


@dataclass(frozen=True)
class HopMessage:
    """One transfer over one hop, for a whole group.

    Attributes:
        t: iteration.
        group: index.
        sender, to: "device", "edge", "hospital" or "cloud".
        what: in the paper's symbols.
        floats: numbers of 32 bits.
        counted: whether the paper's cost counts it.
    """

    t: int
    group: int
    sender: str
    to: str
    what: str
    floats: float
    counted: bool = False


@dataclass(frozen=True)
class Traffic:
    """The sizes that decide what a run sends.

    Attributes:
        split: sizes of the model.
        groups: (K_m, |A_m|) of each group.
        ratio: of the size of theta_0, zeta_1 and zeta_2 after compression to before; 7/32 in C-HSGD.
        pairs: JFL: a theta_0 and a theta_1 for each device of A_m, no local average.
        everybody: the edge sends theta_2 to all K_m devices, as the listing has it, and not only to A_m.
    """

    split: Split
    groups: Sequence[tuple[int, int]]
    ratio: float = 1.0
    pairs: bool = False
    everybody: bool = False


def list_messages(traffic: Traffic, rounds: Iterable[tuple[int, int]]) -> Iterator[HopMessage]:
    """Lists all messages of a run.

    Args:
        rounds: (P, Q) of each global round.
    """
    t = 0
    for P, Q in rounds:
        if Q < 1 or P % Q:
            raise UsageError(f"P = {P}, Q = {Q}: P is a multiple of Q")
        for m in range(len(traffic.groups)):
            yield from send_model(traffic, m, t)
            for s in range(t, t + P, Q):
                yield from list_exchange(traffic, m, s, first=s == t)
                if not traffic.pairs or s + Q == t + P:
                    yield local_average(traffic, m, s + Q)
            yield from collect_models(traffic, m, t + P)
        t += P


def send_model(traffic: Traffic, m: int, t: int) -> Iterator[HopMessage]:
    """The messages that bring the global model down."""
    s = traffic.split
    yield HopMessage(t, m, "cloud", "hospital", "theta_0, theta_1", s.s0 + s.s1)
    yield HopMessage(t, m, "cloud", "edge", "theta_2", s.s2)


def list_exchange(traffic: Traffic, m: int, t: int, first: bool) -> Iterator[HopMessage]:
    """The messages of one exchange: theta_2 down to the new A_m, zeta_2 up, theta_0 and zeta_1 down."""
    s, (everybody, n), ratio = traffic.split, traffic.groups[m], traffic.ratio
    copies = n if traffic.pairs else 1
    if first or not traffic.pairs:
        yield HopMessage(t, m, "edge", "device", "theta_2", (everybody if traffic.everybody else n) * s.s2)
    yield HopMessage(t, m, "edge", "hospital", "A_m", n)
    yield HopMessage(t, m, "device", "edge", "zeta_2", ratio * n * s.d2, counted=True)
    yield HopMessage(t, m, "edge", "hospital", "Z2", ratio * n * s.d2)
    yield HopMessage(t, m, "hospital", "edge", "theta_0, Z1", ratio * (copies * s.s0 + n * s.d1), counted=True)
    yield HopMessage(t, m, "edge", "device", "theta_0, zeta_1", ratio * n * (s.s0 + s.d1))


def local_average(traffic: Traffic, m: int, t: int) -> HopMessage:
    """The message that brings theta_2 of A_m to the edge, where it is averaged."""
    return HopMessage(t, m, "device", "edge", "theta_2", traffic.groups[m][1] * traffic.split.s2, counted=True)


def collect_models(traffic: Traffic, m: int, t: int) -> Iterator[HopMessage]:
    """The messages that bring the group's model up; in JFL one model for each device of A_m."""
    s, copies = traffic.split, traffic.groups[m][1] if traffic.pairs else 1
    yield HopMessage(t, m, "hospital", "cloud", "theta_1", copies * s.s1, counted=True)
    yield HopMessage(t, m, "hospital", "cloud", "theta_0", copies * s.s0)
    yield HopMessage(t, m, "edge", "cloud", "theta_2", copies * s.s2)


def count_floats(messages: Iterable[HopMessage], counted: bool = False) -> float:
    """Adds up the numbers that messages carry; with `counted` only those that the paper counts."""
    return sum(m.floats for m in messages if m.counted or not counted)


# The paper's cost -----------------------------------------------------------------------------------------------
def paper_floats(traffic: Traffic, P: int, Q: int, T: int) -> float:
    """Eq. (19): C(P, Q) of T iterations, all groups. JFL: the same hops for a model per device."""
    s, total = traffic.split, 0.0
    for _, n in traffic.groups:
        copies = n if traffic.pairs else 1
        vertical = traffic.ratio * (copies * s.s0 + n * s.d1 + n * s.d2) / Q
        total += copies * s.s1 / P + n * s.s2 / (P if traffic.pairs else Q) + vertical
    return total * T


def pooled_floats(split: Split, n: int, Q: int, T: int, raw: float = 0.0, ratio: float = 1.0) -> float:
    """TDCD: all patients in one group of which `n` take part, after `raw` numbers of data have been brought there."""
    return raw + T / Q * (n * split.s2 + ratio * (split.s0 + n * split.d1 + n * split.d2))


def compress(traffic: Traffic, ratio: float = PAPER_KEEP) -> Traffic:
    """The same traffic with compression, as C-HSGD has it."""
    return Traffic(traffic.split, traffic.groups, ratio, traffic.pairs, traffic.everybody)


# The paper's clock ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Links:
    """Rates in bits per second; the paper's. `parallel`: devices send at the same time, or one after the other."""

    mobile_up: float = 14e6
    mobile_down: float = 110e6
    fixed_up: float = 74e6
    fixed_down: float = 204e6
    parallel: bool = True


@dataclass(frozen=True)
class Times:
    """Seconds of a global aggregation, a local aggregation and an exchange."""

    t_g: float
    t_l: float
    t_e: float


def estimate_times(split: Split, n: int, links: Links = Links(), ratio: float = 1.0) -> Times:
    """Seconds of each kind of transfer in a group of which `n` devices take part; groups are parallel."""
    s, each = split, 1 if links.parallel else n
    up, down, sent, got = (
        8 * BYTES / r for r in (links.mobile_up, links.mobile_down, links.fixed_up, links.fixed_down)
    )
    largest = max(s.s0 + s.s1, s.s2)
    t_l = each * s.s2 * (up + down)
    relayed = n * s.d2 * sent + (s.s0 + n * s.d1) * sent
    t_e = ratio * (each * s.d2 * up + relayed + each * (s.s0 + s.d1) * down)
    return Times(largest * (sent + got), t_l, t_e)


def estimate_round(t: Times, P: int, Q: int, t_c: float) -> float:
    """Seconds of one global round: t_g + (P / Q) (t_l + t_e) + P t_c, with t_c the computing time of an iteration."""
    return t.t_g + P / Q * (t.t_l + t.t_e) + P * t_c


# To a target ----------------------------------------------------------------------------------------------------
def find_target(
    curve: Sequence[Mapping[str, Any]], key: str, target: float, falling: bool = False
) -> Mapping[str, Any] | None:
    """Finds the first point of a curve (iterations, cost, seconds and metrics) that has reached a target, or None."""
    reached: Callable[[float], bool] = (lambda v: v <= target) if falling else (lambda v: v >= target)
    return next((point for point in curve if point.get(key) is not None and reached(point[key])), None)
