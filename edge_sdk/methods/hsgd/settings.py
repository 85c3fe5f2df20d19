"""What HSGD's nodes are given: hyper-parameters, the sizes of a model in parts, kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_sdk.algebra.secure_aggregation.rounding import FEWEST, MOST
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.kernels import WHOLE, Rows, Split
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.round import Policy, barriers
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd.compression import Floats, PackedMatrix
from edge_sdk.methods.shared.training.local import above_zero, one_of, zero_or_more

STRATEGIES = ("relation", "size", "rate")


@dataclass(frozen=True)
class Plan:
    """P, Q and eta of one global round; the last before halving."""

    P: int
    Q: int
    eta: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyper-parameters.

    Attributes:
        P: iterations between global averages.
        Q: iterations between local averages and exchanges; P is a multiple of it.
        eta: step size, one for all three blocks.
        halve_every: iterations after which the step size is halved (T_0); 0: never.
        alpha: share of a group's devices that takes part in an interval.
        batch: samples of each such device in the mini-batch of an interval; 0: all of them.
        mu: r = mu / 2 ||.||^2, of theta_1 and theta_2.
        copies: "group", or "pair": JFL.
        keep: share of the entries of theta_0, zeta_1 and zeta_2 that travels (7 / 32 in C-HSGD); 1: all.
        columns: keep whole columns of embeddings, by the last gradient of env.bias; the first exchange is then in full.
        levels: of a uniform quantiser in place of `keep`, 2 to 256; 0: there is none.
        bits: of a number between a hospital and its devices, 2 to 16, rounded at random (row_integers.py); 0: floats.
        strategies: some of "relation" (S1), "size" (S2) and "rate" (S3), applied at global rounds.
        pretraining: global rounds, the first ones, that only estimate f0, rho and delta; theta then starts anew.
        pretraining_eta: their step size.
        f0, rho, delta: where they are known, in place of estimates.
        target: S1: of the bound.
        printed: S2 with eta squared, as the paper prints it.
        iterations: T: the run ends with the global average at or after it; 0: with the run's rounds.
    """

    P: int = 1
    Q: int = 1
    eta: float = 0.01
    halve_every: int = 0
    alpha: float = 1.0
    batch: int = 0
    mu: float = 0.0
    copies: str = "group"
    keep: float = 1.0
    columns: bool = False
    levels: int = 0
    bits: int = 0
    strategies: tuple[str, ...] = ()
    pretraining: int = 0
    pretraining_eta: float = 0.001
    f0: float | None = None
    rho: float | None = None
    delta: float | None = None
    target: float = 1.0
    printed: bool = False
    iterations: int = 0

    def __post_init__(self) -> None:
        if self.Q < 1 or self.P < 1 or self.P % self.Q:
            raise UsageError(f"P = {self.P}, Q = {self.Q}: P is a multiple of Q, and both are at least 1")
        zero_or_more(self, "eta", "halve_every", "batch", "mu", "pretraining", "iterations")
        above_zero(self, "alpha", "keep", "pretraining_eta", "target")
        for key in ("alpha", "keep"):
            if getattr(self, key) > 1:
                raise UsageError(f"{key} = {getattr(self, key)}: a share, above 0 and at most 1")
        one_of(self, ("group", "pair"), "copies")
        self.check_compression()
        self.check_strategies()

    def check_compression(self) -> None:
        if self.levels and not 2 <= self.levels <= compression.MOST_LEVELS:
            raise UsageError(f"levels = {self.levels}: 0, or 2 to {compression.MOST_LEVELS}")
        if self.levels and self.keep < 1:
            raise UsageError(f"levels = {self.levels} with keep = {self.keep}: one of them")
        if self.columns and self.keep == 1:
            raise UsageError("columns = true with keep = 1: all columns are kept, give a share below 1")
        if self.bits and not FEWEST <= self.bits <= MOST:
            raise UsageError(f"bits = {self.bits}: 0, or {FEWEST} to {MOST}")
        if self.bits and (self.levels or self.keep < 1):
            raise UsageError(f"bits = {self.bits} with levels = {self.levels} and keep = {self.keep}: one of them")
        if self.bits and self.copies == "pair":
            raise UsageError(f"bits = {self.bits} with copies = 'pair': there devices keep theta_2, and are shown none")

    def check_strategies(self) -> None:
        known = (self.f0, self.rho, self.delta)
        for key in ("f0", "rho", "delta"):
            if getattr(self, key) is not None:
                zero_or_more(self, key)
        if bad := [s for s in self.strategies if s not in STRATEGIES]:
            raise UsageError(f"strategies = {bad[0]!r}: some of {', '.join(STRATEGIES)}")
        if {"relation", "size"} <= {*self.strategies}:
            raise UsageError("strategies: relation chooses Q for a given P, size makes them equal: one of them")
        if self.strategies and not self.pretraining and None in known:
            raise UsageError("strategies need f0, rho and delta, or some rounds of pretraining")
        if self.strategies and self.pretraining == 1 and self.rho is None:
            raise UsageError("pretraining = 1: an estimate of rho needs two rounds or more; or give rho")
        if "size" in self.strategies and not self.iterations:
            raise UsageError("strategies = size chooses how many iterations a round has: give their number, iterations")
        if "rate" in self.strategies and self.halve_every:
            raise UsageError("halve_every with the strategy rate: one of them sets the step size")

    @property
    def plan(self) -> Plan:
        return Plan(self.P, self.Q, self.eta)

    def eta_at(self, plan: Plan, t: int) -> float:
        """The step size of an iteration."""
        return plan.eta * 0.5 ** (t // self.halve_every) if self.halve_every else plan.eta

    def rounds_at(self, round: int) -> bool:
        """Numbers travel as integers in that round; those of the pretraining do not, from which constants follow."""
        return self.bits > 0 and round >= self.pretraining

    def packed(self, x: Floats, columns: Floats | None = None, first: bool = False) -> PackedMatrix:
        """The rows of an embedding, for the wire, where they are no integers."""
        return compression.pack(x, 1.0 if first else self.keep, self.levels, columns)


def policies(
    s: Settings, sizes: Mapping[str, int], deadline: float, hospital_deadline: float, evaluate_every: int = 0
) -> dict[str, Policy]:
    """Barriers, where a hospital's deadline is for a global round: the two questions of each interval share it."""
    intervals = s.P if "relation" in s.strategies else s.P // s.Q
    barrier = barriers(s, sizes, deadline, hospital_deadline, evaluate_every)
    return {**barrier, "hospital": Policy(deadline=hospital_deadline / (2 * intervals))}


SEARCH: SearchSpace = {
    "eta": Range(1e-3, 1.0),
    "Q": OneOf((1, 2)),
    "P": OneOf((2, 4, 8)),
    "batch": OneOf((16, 64, 0)),
}


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        split: of the model.
        h2: device: (theta_2, samples) -> zeta_2 (samples, d2).
        grad_device: device: (theta_0, zeta_1, theta_2, samples) -> (mean loss, its gradient in theta_2).
        rows: hospital: device -> rows of the hospital's data that are its samples, in its order. It also says K_m.
        h1: hospital: (theta_1, rows) -> zeta_1 (rows, d1).
        grad_hospital: hospital: (theta_0, theta_1, zeta_2, rows) -> (mean loss, its gradients in theta_0 and theta_1).
        bias: device, hospital: where the bias of its last layer lies in its block, for the setting `columns`.
        h1_judged: hospital: (theta_1, device, whether the test part is judged too) -> zeta_1 of the samples that the
            device is judged on: of its validation part, then of its test part; of that alone where it has no other.
        judged: device: number of samples in these parts, (validation, test) or (test,).
        score_part: device: (part, theta_0, zeta_1, theta_2) -> sums over that part, as NodeEnv.score has them.
    """

    settings: Settings = field(default_factory=Settings)
    split: Split = WHOLE
    h2: Callable[[Vector, Rows], Floats] | None = None
    grad_device: Callable[[Vector, Floats, Vector, Rows], tuple[float, Vector]] | None = None
    rows: Mapping[str, Rows] = field(default_factory=dict)
    h1: Callable[[Vector, Rows], Floats] | None = None
    grad_hospital: Callable[[Vector, Vector, Floats, Rows], tuple[float, Vector, Vector]] | None = None
    bias: slice | None = None
    h1_judged: Callable[[Vector, str, bool], Floats] | None = None
    judged: tuple[int, ...] = ()
    score_part: Callable[[int, Vector, Floats, Vector], Mapping[str, float]] | None = None


def require(kernel: Any, env: Env, name: str) -> Any:
    if kernel is None:
        raise UsageError(f"{env.me} was given no {name}, so it cannot train")
    return kernel
