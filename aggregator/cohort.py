"""Training of many clients at once, on torch: each has a model, data and step size of its own, all have one network.

A simulation asks for this where one processor does better with few large operations than with many small ones, as a
GPU does. `torch.func.vmap` makes of a client's gradient that of all of them. Its results are within rounding of what
the clients come to one by one, not the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from aggregator.kernels import processor
from aggregator.private_model.torch_graph import TorchGraph
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.inputs import KNOWN_BELOW

Array = npt.NDArray[Any]
Tensor = torch.Tensor
EachLoss = Callable[[Tensor, Tensor], Tensor]
"""(outputs (B, ...), targets) -> the loss of each sample (B,), as edge_sdk/models/ir/specification/losses.py has it."""


def labelled(output: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    return F.cross_entropy(output, y, reduction="none", label_smoothing=smoothing)


def soft(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none").reshape(len(output), -1).mean(1)


def binary(output: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output, y, reduction="none").flatten(1).mean(1)


def squared(output: Tensor, y: Tensor) -> Tensor:
    return (output - y).square().flatten(1).mean(1)


def huber(output: Tensor, y: Tensor) -> Tensor:
    return F.huber_loss(output, y, reduction="none").flatten(1).mean(1)


def masked(loss: EachLoss) -> EachLoss:
    """A loss that leaves out targets of which nobody knows what they are."""
    return lambda output, y: loss(output, torch.where(y < KNOWN_BELOW, y, output))


def loss_in(manifest: Mapping[str, Any]) -> EachLoss:
    """The loss of a bundle. Raises UsageError for one that is not here."""
    smoothed = partial(labelled, smoothing=float(manifest.get("smoothing", 0.0)))
    known: dict[str, EachLoss] = {
        "cross_entropy": smoothed,
        "soft_cross_entropy": soft,
        "binary_cross_entropy": binary,
        "mean_squared_error": squared,
        "huber": huber,
        "masked_squared_error": masked(squared),
        "masked_huber": masked(huber),
    }
    if manifest["loss"] not in known:
        raise UsageError(f"{manifest['name']}: its loss is {manifest['loss']}, here are {', '.join(known)}")
    return known[manifest["loss"]]


class CohortSteps:
    """Steps of SGD for many clients of one network.

    Args:
        bundle: of all of them; with one input, without dropout and statistics that training changes.
        device: "cpu", "cuda", or "auto": a GPU where there is one.

    Attributes:
        device: the processor that it runs on.

    Raises:
        UsageError: the bundle has an operator or a loss that is not here, or there is no such processor.
    """

    def __init__(self, bundle: Bundle, device: str = "auto") -> None:
        self.device = processor(device)
        if len(inputs := bundle.manifest["inputs"]) != 1:
            names = ", ".join(one["name"] for one in inputs)
            raise UsageError(f"{bundle.manifest['name']} has the inputs {names}; clients train together with one")
        self.graph, self.losses = TorchGraph(bundle, self.device), loss_in(bundle.manifest)
        self.gradients = torch.func.vmap(torch.func.grad_and_value(self.loss))

    def loss(self, theta: Tensor, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """One client's loss in one step: the weighted sum over its samples."""
        return (self.losses(self.graph(theta, x)[1], y) * weights).sum()

    def __call__(
        self,
        start: Array,
        x: Array,
        y: Array,
        weights: Array,
        eta: Array,
        keep: Array,
        base: Array | None = None,
        push: Array | None = None,
    ) -> tuple[Array, Array]:
        """v <- keep v - eta grad(base + v; batch) + push, for S steps of C clients.

        Args:
            start: v (C, n) float32.
            x: (C, S, B, ...) and y (C, S, B, ...): the samples of each step.
            weights: (C, S, B) of each sample; a step in which all are 0 is none.
            eta, keep: (C,). base, push: (C, n); None: zero.

        Returns:
            v (C, n) after the steps, and the losses (C, S) before each.
        """
        v, xs, ys, ws, etas, keeps = map(self.tensor, (start, x, y, weights, eta, keep))
        bases, pushes = (None if a is None else self.tensor(a) for a in (base, push))
        losses, going = [], (ws != 0).any(-1)
        for k in range(xs.shape[1]):
            gradient, loss = self.gradients(v if bases is None else bases + v, xs[:, k], ys[:, k], ws[:, k])
            after = keeps[:, None] * v - etas[:, None] * gradient
            after = after if pushes is None else after + pushes
            v = torch.where(going[:, k, None], after, v)
            losses.append(loss)
        return v.cpu().numpy(), torch.stack(losses, 1).cpu().numpy()

    def tensor(self, values: Array) -> Tensor:
        found = torch.from_numpy(np.ascontiguousarray(values)).to(self.device)
        return found.to(self.graph.dtype) if found.is_floating_point() else found
