"""Training code of an application in the place of the bundle's gradients, in the idiom of Flower's NumPyClient.

Parameters are a list of float32 arrays, in the order and of the shapes of the bundle's layout. Only methods whose
devices send a model that was trained from the one they got can be served so (`fit` in the method's own env): FedAvg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.assembly import method_of, settings_of

Arrays = list[npt.NDArray[Any]]
OWN_STEPS = ("proximal", "momentum", "draw_epochs", "fine_tune_epochs")
"""Settings of what `client_update` does in its steps; code of an application does not know them."""


class TrainingCode(Protocol):
    """What an application brings."""

    def fit(self, parameters: Arrays, config: dict[str, Any]) -> tuple[Arrays, int, Mapping[str, Any]]:
        """Trains from these parameters. `config`: round, eta_l, local_epochs, batch, weight_decay.

        Returns:
            The parameters afterwards, the number of samples, and metrics, of which "loss" is reported.
        """

    def evaluate(self, parameters: Arrays, config: dict[str, Any]) -> tuple[float, int, Mapping[str, Any]]:
        """Judges parameters. Returns the mean loss, the number of samples, and metrics, of which "accuracy" is
        reported."""


def fields_of(run: Run, code: TrainingCode, layout: Layout, whose: str) -> dict[str, Any]:
    """Fields of the method's env.

    Raises:
        UsageError: the run's method, or one of its settings, needs gradients of the bundle.
    """
    method, settings = method_of(run), settings_of(run)
    if run.settle or run.augment or "fit" not in vars(method.env).get("__annotations__", {}):
        what = "settling" if run.settle else "augmentation" if run.augment else f"method {run.method}"
        raise UsageError(
            f"{whose} has its own training code, and {what} asks for gradients; such code goes with fedavg"
        )
    for name in OWN_STEPS:
        if getattr(settings, name):
            raise UsageError(f"{whose} has its own training code, which knows nothing of {name}; leave that at 0")
    if settings.local_penalty != "none":
        raise UsageError(f"{whose} has its own training code, which knows nothing of local_penalty")
    return {"fit": make_fit(code, layout, whose), "score": make_score(code, layout)}


def make_fit(
    code: TrainingCode, layout: Layout, whose: str
) -> Callable[[Vector, Mapping[str, Any]], tuple[Vector, int, float | None]]:
    def fit(theta: Vector, asked: Mapping[str, Any]) -> tuple[Vector, int, float | None]:
        found, samples, metrics = code.fit(split_vector(layout, theta), dict(asked))
        if type(samples) is not int or samples < 0:
            raise UsageError(f"{whose}: fit() returned {samples!r} samples, expected a number of 0 or more")
        loss = metrics.get("loss")
        return join_arrays(layout, found, whose), samples, None if loss is None else float(loss)

    return fit


def make_score(code: TrainingCode, layout: Layout) -> Callable[[Vector], Mapping[str, float]]:
    def score(theta: Vector) -> Mapping[str, float]:
        loss, samples, metrics = code.evaluate(split_vector(layout, theta), {})
        found = {"loss": float(loss) * samples, "samples": float(samples)}
        return found | ({"correct": float(round(metrics["accuracy"] * samples))} if "accuracy" in metrics else {})

    return score


def split_vector(layout: Layout, theta: Vector) -> Arrays:
    """The parameters of theta (n,), each a copy of its shape."""
    return [np.array(theta[s.offset : s.offset + s.size], np.float32).reshape(s.shape) for s in layout.slots]


def join_arrays(layout: Layout, arrays: Arrays, whose: str) -> Vector:
    """theta (n,) of parameters.

    Raises:
        UsageError: they are not of the layout's shapes, or not finite.
    """
    shapes, wanted = [np.shape(a) for a in arrays], [s.shape for s in layout.slots]
    if shapes != wanted:
        at = next((i for i, (a, b) in enumerate(zip(shapes, wanted, strict=False)) if a != b), len(wanted) - 1)
        what = f"{len(shapes)} arrays for {len(wanted)} parameters; array {at}, {layout.slots[at].name}"
        raise UsageError(f"{whose}: fit() returned {what}, is not of shape {wanted[at]}")
    theta = np.concatenate([np.zeros(0, np.float32), *(np.asarray(a, np.float32).ravel() for a in arrays)])
    if not np.isfinite(theta).all():
        raise UsageError(f"{whose}: fit() returned parameters that are not finite")
    return theta
