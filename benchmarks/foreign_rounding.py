"""The rounding of a finished bundle beside torch's own: both float32 gradients against torch's in float64.

The gate asks whether a bundle is right. This asks how good it is, on the gate's inputs: ties, constants, tiny and huge
scales, single samples, first and last indices. It is measured on what a device runs, and is no condition: a ReLU input
within rounding of 0 may fall on either side of it in float32, for torch as well as here, but for other inputs. For one
draw of inputs the two errors are two accidents, and their quotient says little. So each kind is drawn several times,
and the medians are compared.

Three draws are enough where errors of one kind of inputs are alike. Where batch normalisation has two to four values to
normalise, layer after layer, they are not: torch's own go from 1e-3 to 1, and medians of three such errors differ by a
factor of ten for no reason. So a kind for which torch once keeps fewer than three digits is drawn MANY times. Torch's
errors alone decide that, whatever the bundle's are: drawing again where a quotient is large would choose the quotient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from edge_sdk.model.dropout import MASKS
from edge_sdk.model.model import Model
from edge_sdk.models.gate.graphs.gate import Truth, list_cases
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.gate.references.measure import relative_error

FLOOR = 2.0**-24
"""Rounding of the result alone: an error cannot be expected to be smaller."""
DRAWS = 3
COARSE = 1e-3
"""Torch's own error from which on a kind of inputs is drawn MANY times; an accident at a kink is smaller."""
MANY = 60
"""Draws there: common logarithms of such errors spread by 0.5 to 0.8, so that of the quotient of two medians of 60 of
them by 0.16, and three times the true one is three deviations away."""
STEP = 1000
"""What is added to the gate's own seed of a kind of inputs from draw to draw."""


@dataclass(frozen=True)
class RoundingErrors:
    """Relative L2 errors of two float32 gradients for one kind of inputs.

    Attributes:
        case: the kind of inputs.
        device, torch: errors of the bundle on this machine, and of torch's own float32, one for each draw.
    """

    case: str
    device: tuple[float, ...]
    torch: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The bundle's median error in multiples of torch's."""
        return median(self.device) / max(median(self.torch), FLOOR)

    @property
    def worst(self) -> float:
        """Largest quotient of the two errors in a single draw."""
        return max(d / max(t, FLOOR) for d, t in zip(self.device, self.torch, strict=True))


def measure_rounding(model: Model, truth: Truth, draws: int = DRAWS) -> list[RoundingErrors]:
    """The errors for each kind of inputs that the gate has, but those for which the true gradient is 0.

    Args:
        model: the finished bundle. truth: the module that it was made of.
        draws: of each kind, at least; MANY where torch's own errors are COARSE.
    """
    y_shape = (-model.classes,) if model.classes else model.output_shape
    cases = [c for c in list_cases(truth) if not c.whole]
    measured = (measure_kind(c, lambda case: measure_draw(model, truth, case, y_shape), draws) for c in cases)
    return [kind for kind in measured if kind is not None]


def measure_kind(
    case: Case, measure: Callable[[Case], tuple[float, float] | None], draws: int = DRAWS
) -> RoundingErrors | None:
    """The errors of one kind of inputs; None: it has none in any draw.

    Args:
        measure: the errors of bundle and torch for one draw, as of `measure_draw`. draws: at least.
    """
    pairs: list[tuple[float, float]] = []
    for at in range(max(draws, MANY)):
        if at == draws and (not pairs or max(torchs for _, torchs in pairs) < COARSE):
            break
        found = measure(replace(case, seed=case.seed + STEP * at))
        if found is not None:
            pairs.append(found)
    return RoundingErrors(case.name, *map(tuple, zip(*pairs, strict=True))) if pairs else None


def measure_draw(model: Model, truth: Truth, case: Case, y_shape: Sequence[int]) -> tuple[float, float] | None:
    """The errors of bundle and torch for one draw of inputs; None: the true gradient is 0, or torch's no number."""
    data = truth.draw(case, tuple(y_shape))
    if case.at_rest:
        data.pop(MASKS)
    want = truth.loss_grad(data)[2]
    if not np.linalg.norm(want) > 0:
        return None
    single = truth.loss_grad(data, torch.float32)[2]
    if not np.isfinite(single).all():
        return None
    return relative_error(run_bundle(model, data), want), relative_error(single, want)


def run_bundle(model: Model, data: Mapping[str, torch.Tensor]) -> np.ndarray:
    """The gradient (n,) that a device computes, without a limit of samples in a step."""
    feeds = {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in data.items()}
    gradient: np.ndarray = model.run("loss_grad", {"theta": model.theta0, **feeds}, None)[1]
    return gradient
