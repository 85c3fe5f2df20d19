"""Plan of a rollout: how many devices each stage reaches, and what must not happen for the next one to begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite

import numpy as np

from edge_sdk.errors import UsageError

Counts = Mapping[str, float]
COUNTED = (
    "asked", "answered", "installed", "already", "golden_failed", "unfit", "reverted", "samples", "before", "after",
)  # fmt: skip
"""Sums over devices: asked to take the version; that have answered; that have taken it; that had it; that compute
something else than its golden vectors say; whose samples do not fit it; that have gone back to the version before.
Then held-out samples, of each device EACH at most, and how many of them are right by the version before and by this
one."""
MOST = 2.0**32
JUDGED = ("samples", "before", "after")
ENDS = ("installed", "already", "golden_failed", "unfit")
"""What becomes of a device that was asked: one of these, or it would stand in for others that failed."""
ODD = 0.01
"""Share of the asked devices whose golden vectors may fail: a kind of device is more of them. One alone, which may be
broken or lie, is one that fails. They never take the version, however many they are."""
EACH = 100
"""Held-out samples with which one device counts at most: how many it has is its word, and none may decide for all."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a rollout is to do.

    Attributes:
        theta: sha256 (hex) of the model as float32 bytes, which every device checks; "": nothing is rolled out.
        model: hash of the model in the registry, for people.
        undo: id of a rollout that is undone: devices that have its version go back to the one before.
        share: of all devices, above 0 up to 1.
        devices: only these; empty: `share` of all.
        canary: devices of the first stage.
        growth: each stage reaches so many times the devices of the one before.
        margin: drop of accuracy on the devices' own held-out samples that is borne, in shares of 1.
        failures: share of the asked devices that may fail or stay silent.
        judged: held-out samples below which accuracies are not compared.
        only_judge: it is an evaluation: devices try the version and say what they found, all in one stage, and keep
            what they have.
    """

    theta: str = ""
    model: str = ""
    undo: str = ""
    share: float = 1.0
    devices: tuple[str, ...] = ()
    canary: int = 1
    growth: float = 2.0
    margin: float = 0.02
    failures: float = 0.1
    judged: int = 20
    only_judge: bool = False

    def __post_init__(self) -> None:
        if bool(self.theta) == bool(self.undo):
            raise UsageError("a rollout has either theta, a version that is rolled out, or undo, a rollout before")
        if not 0 < self.share <= 1:
            raise UsageError(f"share = {self.share}: above 0, up to 1, which is all devices")
        if self.canary < 1:
            raise UsageError(f"canary = {self.canary}: the first stage has at least 1 device")
        if not self.growth > 1:
            raise UsageError(f"growth = {self.growth}: above 1, or the stages would not grow")
        for name in ("margin", "failures"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} = {getattr(self, name)}: a share from 0 to 1")
        if self.only_judge and self.undo:
            raise UsageError("only_judge: an evaluation takes no rollout back")
        if self.judged < 0:
            raise UsageError(f"judged = {self.judged}: held-out samples, 0 or more")


def count_target(settings: Settings, devices: int) -> int:
    """Number of devices that are to have the version at the end."""
    return len(settings.devices) or max(1, ceil(settings.share * devices - 1e-9))


def list_stages(settings: Settings, devices: int) -> tuple[int, ...]:
    """Devices that have been asked by the end of each stage: the canaries, then growing, up to the target."""
    target = count_target(settings, devices)
    stages = [target if settings.only_judge else min(settings.canary, target)]
    while stages[-1] < target:
        stages.append(max(stages[-1] + 1, ceil(min(target, settings.growth * stages[-1] - 1e-9))))
    return tuple(stages)


def share_out(sizes: Mapping[str, int], count: int, seed: int) -> dict[str, int]:
    """Shares of `count` devices, by hospital. A larger count leaves none with fewer.

    Every device of every hospital has a place in one random order, and the first `count` are taken.
    """
    names = [name for name in sorted(sizes) for _ in range(sizes[name])]
    order = np.random.default_rng(seed).permutation(len(names))[:count]
    chosen = [names[i] for i in order]
    return {name: chosen.count(name) for name in sorted(sizes)}


def add_counts(a: Counts, b: Counts) -> dict[str, float]:
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in COUNTED if name in a or name in b}


def weigh_counts(counts: Counts, devices: int) -> dict[str, float]:
    """Counts of so many devices in which their held-out samples weigh no more than EACH of them may."""
    share = min(1.0, EACH * devices / max(counts.get("samples", 0.0), 1.0))
    return {name: value * share if name in JUDGED else value for name, value in counts.items()}


def check_counts(counts: Counts, devices: float = MOST) -> None:
    """Check counts that a peer has sent.

    Args:
        devices: of which they are sums.

    Raises:
        ValueError: they cannot be those of so many devices.
    """
    for name, value in counts.items():
        if name not in COUNTED or not (isfinite(value) and 0 <= value <= MOST):
            raise ValueError(f"count {name[:40]!r} = {value}: expected one of {', '.join(COUNTED)}, 0 or more")
    ends = sum(counts.get(name, 0.0) for name in ENDS)
    if ends > devices or any(value > devices for name, value in counts.items() if name not in JUDGED):
        raise ValueError(f"counts of more than {devices:.0f} devices")
    if max(counts.get("before", 0), counts.get("after", 0)) > counts.get("samples", 0):
        raise ValueError("more held-out samples are right than there are")


def check_asked(counts: Counts, quota: float) -> None:
    """Raises ValueError if a hospital has asked more devices than its quota of the stage, or more of them have an end
    than it asked: such counts would hide failures of others."""
    ends, asked = sum(counts.get(name, 0.0) for name in ENDS), counts.get("asked", 0.0)
    if ends > asked:
        raise ValueError(f"{ends:.0f} devices took the version or did not, and {asked:.0f} were asked")
    if asked > quota:
        raise ValueError(f"{asked:.0f} devices were asked in a stage that reaches {quota:.0f} of this hospital")


def count_having(counts: Counts) -> float:
    """Devices that have the version."""
    return counts.get("installed", 0) + counts.get("already", 0)


def count_failures(counts: Counts) -> float:
    """Devices that were asked and have not taken the version, for whatever reason."""
    return max(0.0, counts.get("asked", 0) - count_having(counts))


def find_fault(settings: Settings, counts: Counts) -> str:
    """Why a rollout has to be halted, as a sentence; "": it is healthy."""
    if settings.only_judge:
        return ""  # nothing is taken, so nothing has to be halted
    asked, failed, samples = counts.get("asked", 0), count_failures(counts), counts.get("samples", 0)
    golden, too_many = counts.get("golden_failed", 0), bool(asked) and failed / asked > settings.failures
    if golden > max(1.0, ODD * asked) or (too_many and golden > settings.failures * asked):
        return f"{golden:.0f} devices compute something else than the golden vectors of the bundle say"
    if too_many:
        limit = f"at most {100 * settings.failures:g} % may"
        return f"{failed:.0f} of {asked:.0f} devices failed or stayed silent, {limit}"
    if samples and samples >= settings.judged:
        before, after = counts.get("before", 0) / samples, counts.get("after", 0) / samples
        if before - after > settings.margin:
            fell = f"accuracy on the devices' own held-out samples fell from {100 * before:.1f} to {100 * after:.1f} %"
            return f"{fell}, {100 * settings.margin:g} points are borne"
    return ""
