"""Ten training steps of a bundle on a device, and torch's own gradient in training mode at each of them.

Torch's module runs as its user would train it: in training mode, batch normalisation as the compilation has it, and
dropout with the zeros and ones that the device draws. The device goes ten steps of plain gradient descent, each with a
batch of its own; at each of them torch is given the device's parameters, and both gradients are compared. At the end
the device's predictions, with the running statistics that it has by then, are compared with those of torch's module in
evaluation, which has kept its own. Two walks that each go their own way would not do: once the input of a ReLU within
rounding of 0 falls on the other side, they part, and both are right.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from edge_sdk.model.dropout import MASKS
from edge_sdk.model.model import Model
from edge_sdk.models.frontend.modules.randomness import fix_draws, set_training
from edge_sdk.models.gate.graphs.gate import Truth
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.gate.references.losses import compute_losses

STEPS, BATCH, RATE = 10, 8, 0.01
LONGEST = 10.0
"""Length of a gradient from which on steps get no longer: without normalisation a fresh network may run away."""
WALKS = 3
FACTOR, LIMIT = 20, 1e-4
"""Wrong is what is further from torch's float64 than LIMIT and than FACTOR times torch's own float32: of gradients the
median of all steps, of predictions that of the walks. A single one may lie at a kink."""

Data = Mapping[str, torch.Tensor]


@dataclass
class Errors:
    """Relative L2 errors against torch in float64: of each step's gradient, and of what is predicted after each walk.

    Attributes:
        device, torch: of gradients, of the bundle and of torch in float32. after: of the bundle's predictions.
        after_torch: of torch's in float32.
    """

    device: list[float] = field(default_factory=list)
    torch: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    after_torch: list[float] = field(default_factory=list)


def compare_steps(model: Model, truth: Truth, net: nn.Module) -> dict[str, Any]:
    """What WALKS of ten steps have found.

    Args:
        model: the bundle. truth: draws the inputs and masks. net: a module that no compiler has seen.
    """
    errors = Errors()
    for at in range(WALKS):
        walk(model, truth, net, STEPS * at, errors)
    told = {"steps_device": median(errors.device), "steps_torch": median(errors.torch)}
    told |= {"after_device": median(errors.after), "after_torch": median(errors.after_torch)}
    wrong = [k for k in ("steps", "after") if not told[f"{k}_device"] <= max(LIMIT, FACTOR * told[f"{k}_torch"])]
    return {**told, "steps_worst": max(errors.device), "wrong": wrong}


def walk(model: Model, truth: Truth, net: nn.Module, seed: int, errors: Errors) -> None:
    """Ten steps of the bundle; what torch says of them is noted in `errors`."""
    sides = {dtype: copy.deepcopy(net).to(dtype) for dtype in (torch.float64, torch.float32)}
    theta, buffers, data = model.theta0.copy(), model.buffers0, {}
    for step in range(STEPS):
        data = draw_batch(model, truth, seed + step)
        made = model.run("loss_grad", {"theta": theta, **{k: v.numpy() for k, v in data.items()}}, buffers)
        gradient, buffers = np.asarray(made[1], np.float32), made[2] if len(made) > 2 else buffers
        want, single = (find_gradient(side, truth, data, theta, dtype) for dtype, side in sides.items())
        errors.device.append(differ(gradient, want))
        errors.torch.append(differ(single, want))
        theta = theta - np.float32(RATE / max(1.0, float(np.linalg.norm(gradient)) / LONGEST)) * gradient
    output = model.run("predict", {"theta": theta, **{k: v.numpy() for k, v in data.items()}}, buffers)[0]
    want, single = (predict(side, truth, data, theta, dtype) for dtype, side in sides.items())
    errors.after.append(differ(output, want))
    errors.after_torch.append(differ(single, want))


def draw_batch(model: Model, truth: Truth, step: int) -> Data:
    """One batch of ordinary inputs, targets and masks, floats in float32."""
    shape = (-model.classes,) if model.classes else model.output_shape
    data = truth.draw(Case("steps", 900 + step, BATCH), tuple(shape))
    return {k: v.float() if v.is_floating_point() else v for k, v in data.items()}


def find_gradient(net: nn.Module, truth: Truth, data: Data, theta: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Torch's gradient (n,) at theta in training mode; running statistics of the module move as torch moves them."""
    set_training(net, truth.train, truth.drops is not None)
    trained, given = place(net, theta), cast(data, dtype)
    losses = compute_losses(truth.loss, truth.smoothing, run(net, truth, given), given["y"])
    grads = torch.autograd.grad((given["weights"] * losses).sum(), trained, allow_unused=True, materialize_grads=True)
    return np.concatenate([g.double().reshape(-1).numpy() for g in grads])


def predict(net: nn.Module, truth: Truth, data: Data, theta: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """What torch's module returns in evaluation at theta."""
    place(net.eval(), theta)
    with torch.no_grad():
        made: np.ndarray = run(net, truth, cast(data, dtype)).double().numpy()
    return made


def place(net: nn.Module, theta: np.ndarray) -> list[nn.Parameter]:
    """The trained parameters of a module, which now have the numbers of theta (n,)."""
    trained = [p for p in net.parameters() if p.requires_grad]
    with torch.no_grad():
        for p, part in zip(trained, torch.from_numpy(theta).split([p.numel() for p in trained]), strict=True):
            p.copy_(part.reshape(p.shape))
    return trained


def run(net: nn.Module, truth: Truth, given: Data) -> torch.Tensor:
    """The result of a module that counts; while it trains, it draws what the masks say."""
    with fix_draws(truth.drops.draws, given[MASKS]) if truth.drops and net.training else truth.rest():
        made = truth.run(net, given, given["weights"].dtype)
    if isinstance(made, torch.Tensor):
        return made
    values: dict[str, Any] = dict(made.items()) if hasattr(made, "items") else {str(i): v for i, v in enumerate(made)}
    found: torch.Tensor = values[truth.output] if truth.output else next(iter(values.values()))
    return found


def cast(data: Data, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Floats of a batch in another precision."""
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in data.items()}


def differ(a: np.ndarray, b: np.ndarray) -> float:
    """Relative L2 error of a vector against one that is right."""
    return float(np.linalg.norm(np.asarray(a, np.float64) - b) / max(np.linalg.norm(b), 1e-30))
