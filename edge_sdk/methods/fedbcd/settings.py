"""Settings of FedBCD and FedBCD-I, and what their nodes are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from edge_sdk.algebra import prox
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation.draw import round_half_up
from edge_sdk.methods.shared.aggregation.server import PENALTIES, Svt
from edge_sdk.methods.shared.consensus import mixing
from edge_sdk.methods.shared.training.local import above_zero, one_of, zero_or_more

SYNC, FIRST_B, RIGOROUS = CLOUDS = ("sync", "first-b", "rigorous")


ETA_MODES = ("relative", "raw", "mean")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyper-parameters of FedBCD; the defaults are the paper's experiments, but for the mode of eta_z.

    Attributes:
        gamma: penalty weight of each device.
        gammas: device -> its penalty weight, where that is another one.
        eta_x: step of the devices.
        zeta: weight of their momentum.
        local_steps: K_x: a device makes up to so many local iterations in a round.
        draw_steps: K uniform on 1..K_x, anew for each device and round; otherwise K = K_x.
        unit: what K counts: a "step" on one mini-batch, or an "epoch".
        batch: R, samples per step; 0, or as many as there are: the exact gradient.
        feasible: the set X: "box" (each parameter within +-bound), "ball" (Euclidean, of that radius) or "free".
        bound: see there.
        participation: of each hospital's devices, up to 1 the share that takes part in a round, above 1 their number.
        selection: "drawn" by the hospital, or the "fastest" of all to answer.
        cloud: "sync": one z. "first-b": each hospital has its z_n, the first B that are ready mix theirs and step.
            "rigorous": and all others step alone, so that nobody skips a round, as the theorem has it.
        ready: B of the asynchronous modes.
        graph: who mixes with whom among these: "complete" (their mean, as the paper's protocols have it), "identity",
            "ring", or edges "a~b, b~c" with Metropolis weights. All hospitals, each round: first-b with B = all.
        eta_z: step of the cloud.
        eta_mode: "raw": eta_z as it is; "relative": as a share of A4's limit, 1 / (max gamma_i * count);
            "mean": divided by the count only. The count is that of the devices in the sum of one step: sync all of
            them, otherwise the largest hospital's; in FedBCD-I those that answered, or take part, in a round.
        cloud_steps: K_z, repetitions of mixing and step per round.
        lam, server_penalty: sync only: a term of the aggregator's own, lam times "nuclear" or "l1" norms of the layers.
        lipschitz: of the devices' gradients, where it is known; only for `warnings`.
    """

    gamma: float = 1.0
    gammas: Mapping[str, float] = field(default_factory=dict)
    eta_x: float = 0.005
    zeta: float = 0.9
    local_steps: int = 5
    draw_steps: bool = True
    unit: str = "epoch"
    batch: int = 32
    feasible: str = "box"
    bound: float = 2.0
    participation: float = 1.0
    selection: str = "drawn"
    cloud: str = SYNC
    ready: int = 2
    graph: str = "complete"
    eta_z: float = 0.5
    eta_mode: str = "relative"
    cloud_steps: int = 1
    lam: float = 0.0
    server_penalty: str = "none"
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        above_zero(self, "eta_x", "bound", "participation", "local_steps", "ready", "cloud_steps")
        zero_or_more(self, "zeta", "batch", "eta_z", "lam")
        one_of(self, ("step", "epoch"), "unit")
        one_of(self, ("box", "ball", "free"), "feasible")
        one_of(self, ("drawn", "fastest"), "selection")
        one_of(self, CLOUDS, "cloud")
        one_of(self, ETA_MODES, "eta_mode")
        one_of(self, PENALTIES, "server_penalty")
        if self.lipschitz is not None:
            above_zero(self, "lipschitz")
        self.check_weights()
        self.check_combinations()

    def check_weights(self) -> None:
        for name, gamma in {"gamma": self.gamma, **{f"gammas.{d}": g for d, g in self.gammas.items()}}.items():
            if not (isfinite(gamma) and gamma > 0):
                raise UsageError(f"{name} = {gamma}: a number above 0")

    def check_combinations(self) -> None:
        if not self.zeta <= 1:
            raise UsageError(f"zeta = {self.zeta}: the weight of the momentum lies between 0 and 1")
        if self.participation > 1 and self.participation != int(self.participation):
            raise UsageError(f"participation = {self.participation}: a share up to 1, or a whole number of devices")
        if self.graph not in mixing.GRAPHS:
            mixing.parse_edges(self.graph)
        if self.cloud != SYNC and self.server_penalty != "none":
            raise UsageError(f"server_penalty = {self.server_penalty!r} needs cloud = 'sync', where there is one z")

    def weight(self, device: str) -> float:
        """gamma_i."""
        return self.gammas.get(device, self.gamma)

    def weights(self, devices: int) -> float:
        """The sum of gamma_i over all devices of the run, so many, of which only those in `gammas` need be known."""
        return sum(self.gammas.values()) + self.gamma * max(0, devices - len(self.gammas))

    def largest(self, devices: int) -> float:
        """max gamma_i over all devices of the run."""
        return max([*self.gammas.values(), *[self.gamma] * (devices > len(self.gammas))])

    def taking_part(self, devices: int) -> int:
        """|Q_n^(t)| of a hospital with so many devices."""
        share = self.participation * devices if self.participation <= 1 else self.participation
        return min(devices, max(1, round_half_up(share)))


@dataclass(frozen=True, kw_only=True)
class OfflineSettings(Settings):
    """Hyper-parameters of FedBCD-I, where gamma_i is also the step of the pull.

    Attributes:
        offline_every: seconds after which a device that nobody has called trains by itself; inf: never.
        offline_share: how likely it is then able to (the paper's |Q~_n| of a hospital's devices).
        offline_limit: trainings without contact after which it waits.
        after_pull: "keep" the last two iterates of the pull as the momentum's memory, or "reset" it.
    """

    gamma: float = 0.2
    offline_every: float = inf
    offline_share: float = 1.0
    offline_limit: int = 4
    after_pull: str = "keep"

    def __post_init__(self) -> None:
        super().__post_init__()
        zero_or_more(self, "offline_limit")
        one_of(self, ("keep", "reset"), "after_pull")
        if not 0 <= self.offline_share <= 1:
            raise UsageError(f"offline_share = {self.offline_share}: a probability")
        if not self.offline_every > 0:
            raise UsageError(f"offline_every = {self.offline_every}: seconds, above 0")
        for gamma in (self.gamma, *self.gammas.values()):
            if gamma > 1:
                raise UsageError(f"gamma = {gamma}: in FedBCD-I it is the step of the pull, at most 1")


SEARCH: SearchSpace = {
    "gamma": Range(0.1, 10.0),
    "eta_x": Range(5e-4, 0.1),
    "zeta": OneOf((0.0, 0.5, 0.9)),
    "local_steps": OneOf((1, 2, 5, 10)),
    "batch": OneOf((16, 32, 64, 0)),
    "eta_z": Range(0.1, 1.0, log=False),
}
OFFLINE_SEARCH: SearchSpace = {**SEARCH, "gamma": Range(0.02, 1.0), "after_pull": OneOf(("keep", "reset"))}


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        svt: aggregator: prox.svt or its twin on a GPU.
        smooth_grad: aggregator, sync: gradient of a smooth term of its own (theta -> (n,)).
    """

    settings: Settings = field(default_factory=Settings)
    svt: Svt = prox.svt
    smooth_grad: Callable[[Vector], Vector] | None = None


@dataclass(frozen=True, kw_only=True)
class OfflineEnv(Env):
    """What a node of FedBCD-I is given: as for FedBCD, with settings of its own."""

    settings: OfflineSettings = field(default_factory=OfflineSettings)
