"""Settings of FedSLR, and what its nodes are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_sdk.algebra import prox
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.methods.shared.aggregation.server import PENALTIES, Svt
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, Training, above_zero, one_of, zero_or_more

PHASE_I, PHASE_II = 1, 2  # purposes of randomness: w and gamma must not depend on phase II


@dataclass(frozen=True, kw_only=True)
class Settings(Training):
    """Hyper-parameters; the defaults are the paper's.

    Attributes:
        eta_g: global step size; 1 / (2 eta_g) weighs the pull to the global model.
        lam: weight of the global penalty (lambda).
        mu: weight of the personal penalty.
        personal_epochs: passes of phase II per round.
        settle_epochs: passes of phase II on the final w, before a device hands its personal model over. Problem (3) is
            stated at the final w; the paper's algorithm (0) ends with a p_i that was fitted to the w before it.
        personal_weight_decay: whether phase II decays p with weight_decay (the authors' code does).
        global_penalty: of the layers of w: "nuclear", "l1" or "none".
        personal_penalty: of p: "l1" or "nuclear" (an SVD per layer at every step).
        p_init: "zero", or "copy_w0" as the authors' code has it (norms excepted; the first mixed model is then 2 w_0).
        lipschitz: of the devices' gradients, where it is known; only for `warnings`.
    """

    eta_g: float = 10.0
    lam: float = 1e-4
    mu: float = 1e-3
    personal_epochs: int = 1
    settle_epochs: int = 0
    personal_weight_decay: bool = True
    global_penalty: str = "nuclear"
    personal_penalty: str = "l1"
    p_init: str = "zero"
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "eta_g")
        zero_or_more(self, "lam", "mu", "personal_epochs", "settle_epochs")
        one_of(self, PENALTIES, "global_penalty")
        one_of(self, ("l1", "nuclear"), "personal_penalty")
        one_of(self, ("zero", "copy_w0"), "p_init")
        if self.lipschitz is not None:
            above_zero(self, "lipschitz")


RECOMMENDED: Mapping[str, Any] = {"eta_l": 0.05, "local_epochs": 5}
SEARCH: SearchSpace = {
    **TRAINING_SEARCH,
    "eta_g": Range(3.0, 100.0),
    "lam": Range(1e-5, 3e-3),
    "mu": Range(1e-5, 1e-2),
    "personal_epochs": OneOf((0, 1, 2, 5)),
    "global_penalty": OneOf(("nuclear", "none")),
}


def warnings(settings: Settings) -> list[str]:
    """Step sizes that the theorems do not cover. Runs converge well beyond them, so they are never refused."""
    found, smooth = [], settings.lipschitz
    if smooth is not None and settings.eta_l >= 2 / (smooth + 1):
        found.append(f"eta_l = {settings.eta_l}: Theorem 3 asks for less than 2 / (L + 1) = {2 / (smooth + 1):.3g}")
    if smooth is not None and settings.eta_g >= 1 / (2 * smooth):
        found.append(f"eta_g = {settings.eta_g}: Theorem 1 asks for less than 1 / (2 L) = {1 / (2 * smooth):.3g}")
    return found


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        local_solver: device: (w, gamma) -> the exact minimiser of eq. (4), in place of SGD.
        svt: aggregator: prox.svt or its twin on a GPU.
        smooth_grad: aggregator: gradient of a further smooth term of the objective (theta -> (n,)).
    """

    settings: Settings = field(default_factory=Settings)
    local_solver: Callable[[Vector, Vector], Vector] | None = None
    svt: Svt = prox.svt
    smooth_grad: Callable[[Vector], Vector] | None = None
