"""Meta-learning on a device: a loss at the end of one adaptation step, its gradient, and the adaptation itself.

    F_i(theta) = L_i(phi_i(theta); query),   phi_i(theta) = theta - alpha grad L_i(theta; support)
    grad F_i   = (I - alpha Hess L_i(theta; support)) grad L_i(phi_i; query)

C. Finn, P. Abbeel, S. Levine: "Model-Agnostic Meta-Learning", ICML 2017. The product with the Hessian is a central
difference of gradients, so nothing is differentiated twice: 4 gradients in all, of full support and query sets.

What AugFL and Per-FedAvg share. A device's own samples fall into a support and a query set, once and for the whole run.
Some devices of each hospital may be kept out of training: they adapt the model that the others have made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.children.choice import pick
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation.draw import round_half_up
from edge_sdk.methods.shared.evaluation.reports import UNSEEN
from edge_sdk.methods.shared.training.local import Gradient, above_zero, one_of, zero_or_more

SPLIT, KEPT_OUT = 21, 22  # purposes of randomness

Rows = npt.NDArray[np.intp]
HessianProduct = Callable[[Vector, Vector], Vector]
"""(theta, r) -> Hess L_i(theta; support) r, exactly."""


@dataclass(frozen=True, kw_only=True)
class Meta:
    """Settings of adaptation.

    Attributes:
        alpha: step of the adaptation inside the loss; 0: there is none, and the loss is that of the query set.
        support: share of a device's samples that it adapts to; the others are its query set.
        hvp: Hessian-vector product: "central" difference, "exact" (a device must be given it), or "none" (first order).
        delta_power: p of delta_t = (10 (t + 1) + 100)^-p, the step of the difference in round t from 0 on. 1 is the
            schedule of AugFL's experiments; its theorem wants a summable one, which any p above 1 gives.
        delta_scale: a factor of delta_t.
        unit_direction: the difference is taken along r / ||r|| and scaled back: float32 loses less where r is small.
        adapt_steps: steps that make a device's personal model out of the global one, for evaluation.
        adapt_rate: their size; 0: alpha.
        unseen: share of each hospital's devices that never train.
    """

    alpha: float = 0.03
    support: float = 0.5
    hvp: str = "central"
    delta_power: float = 1.0
    delta_scale: float = 1.0
    unit_direction: bool = False
    adapt_steps: int = 1
    adapt_rate: float = 0.0
    unseen: float = 0.0

    def check_meta(self) -> None:
        """Raises UsageError."""
        zero_or_more(self, "alpha", "delta_power", "adapt_steps", "adapt_rate", "unseen")
        above_zero(self, "delta_scale")
        one_of(self, ("central", "exact", "none"), "hvp")
        if not 0 < self.support < 1:
            raise UsageError(f"support = {self.support}: a share of a device's samples, above 0 and below 1")
        if self.unseen >= 1:
            raise UsageError(f"unseen = {self.unseen}: a share of the devices, below 1")

    def delta(self, round: int) -> float:
        """delta_t, with t from 0."""
        return float(self.delta_scale * (10 * (round + 1) + 100) ** -self.delta_power)

    @property
    def rate(self) -> float:
        return self.adapt_rate or self.alpha


# Equations ------------------------------------------------------------------------------------------------------
def meta_gradient(
    grad_fn: Gradient,
    s: Meta,
    theta: Vector,
    support: Rows,
    query: Rows,
    round: int,
    exact: HessianProduct | None = None,
) -> tuple[float, Vector]:
    """F_i(theta), and its gradient r - alpha * Hess r: AugFL's eqs. (7) and (10).

    Raises:
        UsageError: an exact product is asked for, and there is none.
    """
    if s.alpha == 0:
        return grad_fn(theta, query)
    phi = theta - s.alpha * grad_fn(theta, support)[1]
    loss, r = grad_fn(phi, query)
    if s.hvp == "none":
        return loss, r
    if s.hvp == "central":
        return loss, r - s.alpha * central_difference(grad_fn, theta, r, support, s.delta(round), s.unit_direction)
    if exact is None:
        raise UsageError("hvp = 'exact': this device was given no Hessian-vector product")
    return loss, r - s.alpha * exact(theta, r)


def central_difference(
    grad_fn: Gradient, theta: Vector, r: Vector, rows: Rows, delta: float, unit: bool = False
) -> Vector:
    """(grad L(theta + delta r) - grad L(theta - delta r)) / (2 delta), about Hess L(theta) r.

    Off by at most delta zeta ||r||^2 / 2 where the Hessian is zeta-Lipschitz; exact for cubic losses.
    """
    length = float(np.linalg.norm(r)) if unit else 1.0
    if length == 0:
        return np.zeros_like(r)
    step = delta / length
    ahead, behind = grad_fn(theta + step * r, rows)[1], grad_fn(theta - step * r, rows)[1]
    difference: Vector = (ahead - behind) / (2 * step)
    return difference


def adapted(grad_fn: Gradient, s: Meta, theta: Vector, support: Rows) -> Vector:
    """phi_i: so many steps of gradient descent on the support set."""
    for _ in range(s.adapt_steps):
        theta = theta - s.rate * grad_fn(theta, support)[1]
    return theta


# Who holds what -------------------------------------------------------------------------------------------------
def support_and_query(env: NodeEnv, share: float) -> tuple[Rows, Rows]:
    """A device's samples in two disjoint parts, the same in every round; both empty with fewer than 2 samples."""
    if env.samples < 2:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    order = env.random(0, SPLIT).permutation(env.samples)
    cut = min(max(1, int(share * env.samples)), env.samples - 1)
    return np.sort(order[:cut]), np.sort(order[cut:])


def kept_out(devices: int, share: float) -> int:
    """Number of a hospital's devices that never train; at least one trains."""
    return min(round_half_up(share * devices), max(0, devices - 1))


def training_sizes(env: NodeEnv, share: float) -> dict[str, int]:
    """Aggregator: hospital -> how many of its devices train."""
    return {h: size - kept_out(size, share) for h, size in env.sizes.items()}


def training_devices(env: NodeEnv, share: float) -> tuple[str, ...]:
    """Hospital: those of its devices that train, here or not. Who is kept out is drawn once for the run."""
    out = pick(tuple(env.sizes), kept_out(len(env.sizes), share), env.seed, KEPT_OUT, crc32(env.me.encode()))
    return tuple(d for d in sorted(env.sizes) if d not in out)


ADAPTED = (
    "each device's copy of the global model after some steps on its own samples (the setting adapt_steps), made for "
    "the evaluation only"
)
"""`Method.personal` of methods whose models are `evaluated_models`."""


def evaluated_models(env: NodeEnv, s: Meta, theta: Vector, seen: bool) -> dict[str, Vector]:
    """The models that a device judges: theta, and adapted to its support set. Of those that never trained, once more
    by a name of its own, so that a report tells how well theta suits strangers."""
    support, _ = support_and_query(env, s.support)
    if env.grad_fn is None or not len(support):
        return {"global": theta}
    personal = adapted(env.grad_fn, s, theta, support)
    return {"global": theta, "personal": personal} | ({} if seen else {UNSEEN: personal})
