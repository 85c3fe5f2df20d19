"""Ten training steps of a bundle on a device beside torch's own, from the same parameters, on the same batches.

Torch's module runs in training mode, as its user would train it: batch normalisation as the compilation has it, and
dropout with the zeros and ones that the device draws. Each side goes its own way: from the second step on, its gradient
is that at its own parameters. What is compared is where ten steps of plain gradient descent have led: the movement of
theta, against torch's in float64. Torch's own movement in float32 says what rounding alone does.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
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
WALKS = 3
"""Of one walk, the input of a ReLU within rounding of 0 may decide, on either side."""
FACTOR, LIMIT = 20, 1e-4
"""A movement is wrong that is further from torch's float64 than LIMIT and than FACTOR times torch's own in float32."""


@dataclass(frozen=True)
class Walk:
    """Where ten steps lead.

    Attributes:
        moved: what they have added to theta (n,). first: the gradient of the first step (n,). loss: of the last one.
        output: what the module then predicts, in evaluation, for the last batch.
    """

    moved: np.ndarray
    first: np.ndarray
    loss: float
    output: np.ndarray


def compare_steps(model: Model, truth: Truth, net: nn.Module) -> dict[str, Any]:
    """Relative L2 errors of bundle and of torch in float32: the median of WALKS, and the worst movement of the bundle.

    They are those of the first gradient ("step_1"), of ten steps ("steps"), and of what is predicted then ("after").

    Args:
        model: the bundle. truth: draws the inputs and masks. net: a module that no compiler has seen.
    """
    walks = [compare_walk(model, truth, net, STEPS * at) for at in range(WALKS)]
    told: dict[str, Any] = {name: median(w[name] for w in walks) for name in walks[0]}
    limits = {k: max(LIMIT, FACTOR * told[f"{k}_torch"]) for k in ("step_1", "steps", "after")}
    told["wrong"] = [k for k, limit in limits.items() if not told[f"{k}_device"] <= limit]
    return told | {"steps_worst": max(w["steps_device"] for w in walks)}


def compare_walk(model: Model, truth: Truth, net: nn.Module, seed: int) -> dict[str, float]:
    """The errors of one walk."""
    drawn = [draw_batch(model, truth, seed + step) for step in range(STEPS)]
    want = walk_torch(net, truth, drawn, torch.float64)
    found = {"device": walk_device(model, drawn), "torch": walk_torch(net, truth, drawn, torch.float32)}
    told = {"moved": float(np.linalg.norm(want.moved)), "last_loss": want.loss}
    for side, walk in found.items():
        told[f"step_1_{side}"] = differ(walk.first, want.first)
        told[f"steps_{side}"] = differ(walk.moved, want.moved)
        told[f"after_{side}"] = differ(walk.output, want.output)
    return told


def differ(a: np.ndarray, b: np.ndarray) -> float:
    """Relative L2 error of a vector (n,) against one that is right."""
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


def draw_batch(model: Model, truth: Truth, step: int) -> dict[str, torch.Tensor]:
    """One batch of ordinary inputs, targets and masks."""
    shape = (-model.classes,) if model.classes else model.output_shape
    data = truth.draw(Case("steps", 900 + step, BATCH), tuple(shape))
    return {k: v.float() if v.is_floating_point() else v for k, v in data.items()}


def walk_device(model: Model, drawn: list[dict[str, torch.Tensor]]) -> Walk:
    """Ten steps of the bundle, with running statistics that follow where it has them."""
    theta, buffers = model.theta0.copy(), model.buffers0
    start, first, loss = theta.astype(np.float64), np.zeros(0), 0.0
    for data in drawn:
        feeds = {"theta": theta, **{k: v.numpy() for k, v in data.items()}}
        made = model.run("loss_grad", feeds, buffers)
        loss, gradient = float(made[0]), np.asarray(made[1], np.float64)
        buffers = made[2] if len(made) > 2 else buffers
        first = first if first.size else gradient
        theta = (theta - np.float32(RATE) * gradient.astype(np.float32)).astype(np.float32)
    output = model.run("predict", {"theta": theta, **{k: v.numpy() for k, v in drawn[-1].items()}}, buffers)[0]
    return Walk(theta.astype(np.float64) - start, first, loss, np.asarray(output, np.float64))


def walk_torch(net: nn.Module, truth: Truth, drawn: list[dict[str, torch.Tensor]], dtype: torch.dtype) -> Walk:
    """Ten steps of torch's module in training mode with torch's optimiser."""
    net = copy.deepcopy(net).to(dtype)
    set_training(net, truth.train, truth.drops is not None)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimiser, start, first, loss = torch.optim.SGD(trained, lr=RATE), flat(trained), np.zeros(0), torch.zeros(1)
    for data in drawn:
        given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in data.items()}
        made = run_torch(net, truth, given)
        losses = compute_losses(truth.loss, truth.smoothing, pick_result(made, truth.output), given["y"])
        loss = (given["weights"] * losses).sum()
        optimiser.zero_grad()
        loss.backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        first = first if first.size else flat(gradients)
        optimiser.step()
    with torch.no_grad():
        output = pick_result(run_torch(net.eval(), truth, given), truth.output)
    return Walk(flat(trained) - start, first, float(loss), output.double().numpy())


def run_torch(net: nn.Module, truth: Truth, given: Mapping[str, torch.Tensor]) -> Any:
    """What a module returns for a batch; while it trains, it draws what the masks say."""
    x = {i.argument: given[i.name].clone() for i in truth.inputs}
    with fix_draws(truth.drops.draws, given[MASKS]) if truth.drops and net.training else truth.rest():
        return net(*x.values()) if "" in x else net(**x)


def pick_result(made: Any, name: str) -> torch.Tensor:
    """The result of a module that counts: its only tensor, or the one that is named."""
    if isinstance(made, torch.Tensor):
        return made
    values: dict[str, Any] = dict(made.items()) if hasattr(made, "items") else {str(i): v for i, v in enumerate(made)}
    found: torch.Tensor = values[name] if name else next(v for v in values.values() if isinstance(v, torch.Tensor))
    return found


def flat(tensors: list[Any]) -> np.ndarray:
    """The numbers of tensors, one after the other, as float64 (n,)."""
    return np.concatenate([t.detach().double().reshape(-1).numpy() for t in tensors])
