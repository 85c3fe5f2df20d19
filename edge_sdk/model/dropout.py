"""What a device draws for one step of training: masks of dropout, and noise; and what stands there where it draws none.

A bundle that keeps its module's dropout has one more input, `masks` (B, columns): each sample has a row, and each place
of the network that drops values reads its own columns. An entry is 0 where a value is dropped, and `kept` where it is
not. Where a network adds noise of its own (the samples of a variational autoencoder) an entry is a normal number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
BITS = 16
"""Random bits per entry: a probability is met to within 2^-17."""
NOISE = 1.0
"""Probability of places whose entries are normal numbers, of mean 0 and variance 1, in place of zeros and `kept`."""
MASKS = "masks"
"""Name of the input in graphs."""


@dataclass(frozen=True)
class DropSite:
    """One place of the network that drops values, or adds noise.

    Attributes:
        where: path of its module. columns: entries per sample.
        probability: of an entry to be kept, above 0 and below 1; NOISE: entries are normal numbers.
        kept: value of an entry that is kept. rest: value of all entries where nothing is to be dropped.
    """

    where: str
    columns: int
    probability: float
    kept: float
    rest: float

    def __post_init__(self) -> None:
        if not (self.columns > 0 and 0 < self.probability <= NOISE and np.isfinite([self.kept, self.rest]).all()):
            raise ValueError(f"{self} is no place for dropout")

    @property
    def is_noise(self) -> bool:
        """True for a place that adds noise."""
        return self.probability == NOISE

    @property
    def threshold(self) -> int:
        """Random numbers of BITS bits below this one keep an entry."""
        return min(max(round(self.probability * (1 << BITS)), 1), (1 << BITS) - 1)


def read_sites(entries: Any) -> tuple[DropSite, ...]:
    """The places as a manifest lists them.

    Raises:
        ValueError, KeyError, TypeError: they are not written as `write_sites` writes them.
    """
    return tuple(
        DropSite(str(e["where"]), int(e["columns"]), float(e["probability"]), float(e["kept"]), float(e["rest"]))
        for e in entries
    )


def write_sites(sites: Sequence[DropSite]) -> list[dict[str, Any]]:
    """The places as a manifest lists them."""
    return [asdict(s) for s in sites]


def count_columns(sites: Sequence[DropSite]) -> int:
    """Entries of one sample's row."""
    return sum(s.columns for s in sites)


def draw_masks(sites: Sequence[DropSite], batch: int, random: np.random.Generator) -> Floats:
    """Masks for one step (batch, columns): equal for equal generators, on every machine and with every numpy.

    numpy keeps the numbers of a bit generator the same for ever, but not what a Generator makes of them. So the raw
    bits are used as they come, 16 per entry.
    """
    columns = count_columns(sites)
    words = random.bit_generator.random_raw(-(-batch * columns * BITS // 64))
    numbers = np.asarray(words, "<u8").view("<u2")[: batch * columns].reshape(batch, columns)
    counts = [s.columns for s in sites]
    below = np.repeat(np.asarray([s.threshold for s in sites], np.uint16), counts)
    kept = np.repeat(np.asarray([s.kept for s in sites], np.float32), counts)
    masks = np.asarray((numbers < below) * kept, np.float32)
    noisy = np.repeat([s.is_noise for s in sites], counts)
    if noisy.any():
        masks[:, noisy] = list_normal_numbers()[numbers[:, noisy]]
    return masks


@cache
def list_normal_numbers() -> Floats:
    """Normal numbers (2^BITS,) for random numbers of BITS bits: quantiles at the middle of equal steps.

    They end at 4.3, and their variance is 1 to within 1e-4.
    """
    from statistics import NormalDist  # with fractions and decimals, for networks with noise of their own

    half, count = NormalDist(), 1 << BITS
    above = np.asarray([half.inv_cdf((k + 0.5) / count) for k in range(count // 2, count)], np.float32)
    return np.concatenate([-above[::-1], above])


def rest_masks(sites: Sequence[DropSite], batch: int) -> Floats:
    """Masks (batch, columns) with which a graph computes what the module does in evaluation."""
    row = np.repeat(np.asarray([s.rest for s in sites], np.float32), [s.columns for s in sites])
    return np.ascontiguousarray(np.broadcast_to(row, (batch, len(row))))


def step_masks(sites: Sequence[DropSite], batch: int, random: np.random.Generator | None) -> dict[str, Floats]:
    """The input of a graph for one step, by name: drawn, or (None) such that nothing is dropped; {} without places."""
    if not sites:
        return {}
    return {MASKS: rest_masks(sites, batch) if random is None else draw_masks(sites, batch, random)}
