"""Settings of AugFL, and what its nodes are given.

lambda and the pretrained model are not among the settings: settings go to every node of a run, and these two stay on
the aggregator, which is given them as `Env.regulariser`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from edge_sdk.algebra import prox
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation.draw import SELECTIONS
from edge_sdk.methods.shared.aggregation.server import PENALTIES, Svt
from edge_sdk.methods.shared.training.local import above_zero, one_of, zero_or_more
from edge_sdk.methods.shared.training.meta import HessianProduct, Meta

BOTH, U, Y = UPLOADS = ("theta_y", "u", "y")


SAMPLES, NONE = "samples", "none"
WEIGHTINGS = (SAMPLES, "uniform", NONE)


ZERO, PLAIN = Y_INITS = ("zero", "plain")


@dataclass(frozen=True, kw_only=True)
class Settings(Meta):
    """Hyper-parameters; the defaults are the paper's.

    Attributes:
        rho: penalty of each device. The step of the global model is 1 over their sum, so it shrinks with each device.
        rhos: device -> its penalty, where that is another one.
        weighting: w_i by number of "samples", "uniform", or "none": devices count nothing, which leaves distillation.
        upload: "theta_y": theta_i and y_i, as in the paper. "u": y_i + rho_i theta_i, half of that, and a plain sum.
            "y": y_i alone. The iterates are the same within rounding.
        y_init: y_i^-1, which only the first step depends on. "zero" makes that step twice as long, "plain" does not.
        dual: with duals. Without, the step is one of Per-FedAvg.
        participation: up to 1 the share of the training devices that are asked per round, above 1 their number. Who
            is not asked, or does not answer, counts with what was last heard: more than the theorem covers.
        selection: "fixed": exactly so many; "bernoulli": each one with that probability.
        penalty, penalty_weight: a term of the aggregator's own: "nuclear" or "l1" norms of the layers, or "none".
        stop: the run ends early where ||S^t||, the residual of stationarity, is no more; 0: it does not.
        smoothness, gradient_bound, hessian_lipschitz: mu, beta, zeta of the devices' losses, where they are known;
            only for `warnings`.
    """

    rho: float = 0.7
    rhos: Mapping[str, float] = field(default_factory=dict)
    weighting: str = SAMPLES
    upload: str = BOTH
    y_init: str = ZERO
    dual: bool = True
    participation: float = 1.0
    selection: str = "fixed"
    penalty: str = "none"
    penalty_weight: float = 0.0
    stop: float = 0.0
    smoothness: float | None = None
    gradient_bound: float = 0.0
    hessian_lipschitz: float = 0.0

    def __post_init__(self) -> None:
        self.check_meta()
        above_zero(self, "participation")
        zero_or_more(self, "penalty_weight", "stop", "gradient_bound", "hessian_lipschitz")
        one_of(self, WEIGHTINGS, "weighting")
        one_of(self, UPLOADS, "upload")
        one_of(self, Y_INITS, "y_init")
        one_of(self, SELECTIONS, "selection")
        one_of(self, PENALTIES, "penalty")
        self.check_combinations()

    def check_combinations(self) -> None:
        for name, rho in {"rho": self.rho, **{f"rhos.{d}": r for d, r in self.rhos.items()}}.items():
            if not (isfinite(rho) and rho > 0):
                raise UsageError(f"{name} = {rho}: a number above 0")
        if self.smoothness is not None:
            above_zero(self, "smoothness")
        if self.participation > 1 and self.participation != int(self.participation):
            raise UsageError(f"participation = {self.participation}: a share up to 1, or a whole number of devices")
        if self.upload == Y and not self.dual:
            raise UsageError("upload = 'y' with dual = false: there would be nothing to send")

    def penalty_of(self, device: str) -> float:
        """rho_i."""
        return self.rhos.get(device, self.rho)


SEARCH: SearchSpace = {
    "rho": Range(0.1, 30.0),
    "alpha": Range(3e-3, 0.3),
    "weighting": OneOf((SAMPLES, "uniform")),
    "dual": OneOf((True, False)),
    "adapt_steps": OneOf((1, 5, 20)),
}


@dataclass(frozen=True)
class Pull:
    """What the aggregator's regulariser says of one model.

    Attributes:
        gradient: (n,), lambda grad R_h.
        value: lambda R_h.
        memory: what it wants to be given next time (trained heads, a bank of features).
    """

    gradient: Vector
    value: float
    memory: Vector


Regulariser = Callable[[Vector, int, Vector], Pull]
"""(theta, round, memory) -> its pull. The same for the same arguments."""


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        hessian: device: the exact product, where settings ask for it.
        y_init: device: y_i^-1, in place of what settings say; only with upload = "theta_y".
        regulariser: aggregator: lambda R_h; None: lambda is 0, and there is no pretrained model.
        memory: aggregator: what the regulariser is given first.
        svt: aggregator: prox.svt or its twin on a GPU.
    """

    settings: Settings = field(default_factory=Settings)
    hessian: HessianProduct | None = None
    y_init: Vector | None = None
    regulariser: Regulariser | None = None
    memory: Vector = field(default_factory=lambda: np.zeros(0, np.float32))
    svt: Svt = prox.svt
