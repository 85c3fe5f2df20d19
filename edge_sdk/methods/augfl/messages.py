"""Messages of AugFL: the census before the first round, the model of a round, uploads and their sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation.exact import LARGEST
from edge_sdk.methods.shared.aggregation.guard import Measure, norm
from edge_sdk.methods.shared.aggregation.scores import check_scores

MOST_SAMPLES = 2**32
"""Of one device. A sum over all devices is a number that a message can say, so no claim stops who adds it up."""


@dataclass(frozen=True)
class Census:
    """Down, before the first round: how many samples are there? w_i is a share of them all."""


@dataclass(frozen=True)
class Counted:
    """Up: that many, at so many devices."""

    samples: int
    devices: int = 1

    def check(self, layout: Layout) -> None:
        if self.devices < 0 or not 0 <= self.samples <= MOST_SAMPLES * self.devices:
            raise ValueError(f"{self.samples} samples at {self.devices} devices, {MOST_SAMPLES} at each at most")


@dataclass(frozen=True)
class AugflModel:
    """Down: the model of a round.

    Attributes:
        model: theta^t.
        round: t, global; the device's delta depends on it.
        pick: how many devices of the receiving hospital take part.
        samples: of all training devices together; 0 where nobody needs it.
        devices: how many these are.
        counted: receiver -> the last round in which its upload was counted.
    """

    written_as: ClassVar[str] = "Global"

    model: Packed
    round: int
    pick: int
    samples: int = 0
    devices: int = 0
    counted: Mapping[str, int] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        if min(self.round, self.pick, self.samples, self.devices) < 0:
            raise ValueError(f"round {self.round}, {self.pick} of {self.devices} devices, {self.samples} samples")


@dataclass(frozen=True)
class Upload:
    """Up, from a device.

    Attributes:
        samples: how many it has.
        theta, y: its copy and its dual, or None.
        u: y + rho theta, or None.
        scores: of anything to be reported.
    """

    samples: int
    theta: Theta | None = None
    y: Theta | None = None
    u: Theta | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        check_numbers(self.scores, self.theta, self.y, self.u)
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise ValueError(f"{self.samples} samples, it is 1 to {MOST_SAMPLES}")

    def measure(self) -> Measure | None:
        """The length of what is added up, and the number of samples. Lengths differ as the devices' rho do."""
        vector = next((v for v in (self.u, self.theta, self.y) if v is not None), None)
        return None if vector is None else Measure(norm(vector), float(self.samples), longer=30.0)

    def weighing(self, weight: float) -> Self:
        """Count with so many samples."""
        return replace(self, samples=max(1, int(weight)))

    def contribution(self) -> Vector | None:
        """All that it brings, one vector behind the other."""
        found = [v for v in (self.theta, self.y, self.u) if v is not None]
        return np.concatenate(found) if found else None

    def vote(self) -> float:
        """Devices count alike here: what a device's samples weigh is in its dual already."""
        return 1.0

    def contributing(self, vector: npt.NDArray[np.floating]) -> Self:
        """Put other vectors in the places of those that are there."""
        names = [name for name in ("theta", "y", "u") if getattr(self, name) is not None]
        parts = np.split(vector, len(names))
        return replace(self, **{n: part.astype(getattr(self, n).dtype) for n, part in zip(names, parts, strict=True)})


@dataclass(frozen=True)
class Sums:
    """Up, from a hospital: over all its devices that were ever counted.

    Attributes:
        weight: of rho_i.
        samples: of their samples.
        known: how many devices these are.
        count: how many of them answered this time.
        u, y: of u_i and y_i. None: follows from the other.
        scores: over those that answered.
    """

    weight: float
    samples: int
    known: int
    count: int
    u: Theta | None = None
    y: Theta | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        check_numbers(self.scores, self.u, self.y)
        samples = 1 <= self.samples <= MOST_SAMPLES * self.known
        if not 0 < self.weight <= LARGEST or not 1 <= self.count <= self.known or not samples:
            raise ValueError(f"{self.count} of {self.known} devices, weight {self.weight}, {self.samples} samples")
        if self.u is None and self.y is None:
            raise ValueError("neither u nor y")

    def measure(self) -> Measure | None:
        """The length of a device's mean contribution, and its mean number of samples."""
        vector = self.y if self.u is None else self.u
        if vector is None:
            return None
        return Measure(norm(vector) / self.known, self.samples / self.known, longer=30.0)


def check_devices(env: NodeEnv, sender: str, devices: int) -> None:
    """Raises PeerError for a sender that speaks for more devices than it has; a device is one."""
    if devices > (most := env.sizes.get(sender, 1)):
        raise PeerError(f"{sender} counts {devices} devices, it has {most}")


def check_numbers(scores: Mapping[str, float], *vectors: Vector | None) -> None:
    if has_diverged(*vectors):
        raise ValueError(f"a number that is not finite or above {LARGEST:.0f}: the sender's training diverged")
    check_scores(scores)


def has_diverged(*vectors: Vector | None, share: float = 1.0) -> bool:
    """True if a vector has a number beyond what may be sent, or beyond that share of it."""
    return not all((np.abs(v) <= share * LARGEST).all() for v in vectors if v is not None)
