"""Messages of a rollout, and what its roles tell their applications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, Tensor, Values
from edge_sdk.algebra.vectors import Layout
from edge_sdk.methods.rollout.plan import check_counts, count_having

FileBytes = Annotated[npt.NDArray[np.uint8], Tensor((ANY,), "uint8")]
NO_BYTES: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
NO_MODEL: npt.NDArray[np.float32] = np.zeros(0, np.float32)


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class VersionOrder:
    """Down to a hospital: let so many of your devices have this version.

    Attributes:
        stage: from 1.
        upto: devices of this hospital that have been asked at the end of the stage.
        bundle, theta: the version.
    """

    stage: int
    upto: int
    bundle: FileBytes
    theta: Values

    def check(self, layout: Layout) -> None:
        if self.stage < 1 or self.upto < 0:
            raise ValueError(f"stage {self.stage}, {self.upto} devices: from 1 on, and 0 or more")


@dataclass(frozen=True)
class VersionOffer:
    """Down to a device: try this version, and take it if it is sound."""

    bundle: FileBytes
    theta: Values


@dataclass(frozen=True)
class VersionStays:
    """Down to a device that was not asked, comes late or has another disk: the rollout has kept this version; take it,
    if it is sound. A device of an earlier release drops it, and waits for the next rollout."""

    bundle: FileBytes
    theta: Values


@dataclass(frozen=True)
class VersionLeave:
    """Down: go back to the version before, if you have that of this rollout."""

    rollout: str


@dataclass(frozen=True)
class VersionTried:
    """Up: counts of a device, or sums over a hospital's."""

    counts: Mapping[str, float]

    def check(self, layout: Layout) -> None:
        check_counts(self.counts)


@dataclass(frozen=True)
class RolloutOver:
    """Down: the rollout is over. `kept`: the version stays."""

    kept: bool


# What roles tell their application ------------------------------------------------------------------------------
@dataclass(frozen=True)
class VersionTaken:
    """Device: this version is to predict from now on. Hospital: it is brought to its devices."""

    bundle: FileBytes
    theta: Values


@dataclass(frozen=True)
class VersionLeft:
    """Device: the version before is to predict again, if that of this rollout does."""

    rollout: str


@dataclass(frozen=True)
class VersionKept:
    """Device: the version that it has taken stays."""


@dataclass(frozen=True)
class StageOver:
    """Aggregator: a stage is over.

    Attributes:
        upto: devices that were to be asked by its end; target: by that of the rollout.
        counts: sums over all stages so far.
        fault: why it is halted; "": it goes on.
    """

    stage: int
    stages: int
    upto: int
    target: int
    counts: Mapping[str, float]
    fault: str = ""

    def to_metrics(self) -> dict[str, Any]:
        found = {"kind": "stage", "stage": self.stage, "stages": self.stages, "upto": self.upto, "target": self.target}
        return {**found, "counts": dict(self.counts), "fault": self.fault}

    def to_sentence(self) -> str:
        has = f"{count_having(self.counts):.0f} devices have the version"
        return f"stage {self.stage} of {self.stages}: {has}" + (f"; halted: {self.fault}" if self.fault else "")


@dataclass(frozen=True)
class RolloutVerdict:
    """Aggregator: what has become of the rollout. `counts`: sums over all of it."""

    kept: bool
    counts: Mapping[str, float]
    fault: str = ""

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "rollout", "kept": self.kept, "counts": dict(self.counts), "fault": self.fault}

    def to_sentence(self) -> str:
        gone = f"{self.counts.get('reverted', 0):.0f} devices are back at the version before"
        return "the version stays" if self.kept else f"{gone}{': ' + self.fault if self.fault else ''}"
