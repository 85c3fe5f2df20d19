"""Who takes part in a round: a draw over all devices of which no device's name goes up.

The aggregator draws how many at each hospital, each hospital draws which of those that are here and willing to train.
Together that is the draw over all devices that the papers write: uniform without replacement, or independent for each
device.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from edge_sdk.contract.children.choice import pick
from edge_sdk.contract.method import NodeEnv

SELECTIONS = ("fixed", "bernoulli")


def quotas(env: NodeEnv, round: int, participation: float, selection: str) -> dict[str, int]:
    """Aggregator: hospital that is here -> how many of its devices are asked. Those with none are left out.

    Args:
        participation: up to 1 the share of all devices, above 1 their number.
        selection: "fixed": exactly so many, uniformly without replacement (a multivariate hypergeometric count per
            hospital); "bernoulli": each device with that probability, drawn again until there is one.
    """
    names = [h for h in env.here if env.sizes.get(h, 0) > 0]
    sizes = np.array([env.sizes[h] for h in names], dtype=np.int64)
    if not names:
        return {}
    share = min(participation if participation <= 1 else participation / env.devices, 1.0)
    counts = draw(env.random(round), sizes, share, max(1, round_half_up(share * env.devices)), selection)
    return {h: int(k) for h, k in zip(names, counts, strict=True) if k}


def draw(
    random: np.random.Generator, sizes: np.typing.NDArray[np.int64], share: float, count: int, selection: str
) -> np.typing.NDArray[np.int64]:
    if selection == "fixed":
        return random.multivariate_hypergeometric(sizes, min(count, int(sizes.sum())), method="marginals")
    while True:
        counts = random.binomial(sizes, share)
        if counts.any():
            return counts


def round_half_up(x: float) -> int:
    return int(np.floor(x + 0.5))


def chosen(env: NodeEnv, round: int, count: int) -> tuple[str, ...]:
    """Hospital: `count` of its devices that are here and willing, uniformly; all of them if there are fewer."""
    return pick(env.willing, count, env.seed, round, crc32(env.me.encode()))
