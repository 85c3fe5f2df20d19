"""Torch twin of edge_sdk.methods.fedal.discriminator: the same names, arguments and numbers, by autograd."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import torch

from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.fedal.discriminator import DiscriminatorKernels, Mask, Widths, among, among_all
from edge_sdk.methods.fedal.distillation import Floats, Labels


def payoffs(
    w: torch.Tensor, widths: Widths, f: torch.Tensor, who: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """U of each row, and log softmax(h) over the devices, all of which are there."""
    z, at = torch.softmax(f / temperature, 1), 0
    for i, (a, b) in enumerate(pairwise(widths)):
        weights, bias = w[at : at + a * b].view(b, a), w[at + a * b : at + (a + 1) * b]
        z, at = torch.nn.functional.linear(z, weights, bias), at + (a + 1) * b
        z = torch.relu(z) if i + 2 < len(widths) else z
    logs = torch.log_softmax(z, 1)
    return logs.gather(1, who[:, None])[:, 0], logs


def tensors(device: str, w: Vector, f: Floats, who: Labels) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The arrays as tensors on the device "cpu" or "cuda"; floats have the element type of w."""
    of_w, of_f = torch.tensor(w, device=device), torch.tensor(f.astype(w.dtype), device=device)
    return of_w, of_f, torch.tensor(who.astype(np.int64), device=device)


def ascent(device: str, w: Vector, widths: Widths, f: Floats, who: Labels, there: Mask, temperature: float) -> Vector:
    """Gradient in w of the mean payoff over all rows."""
    own, few, whose = among(w, widths, who, there)
    of_w, of_f, of_who = tensors(device, own, f, whose)
    of_w.requires_grad_()
    payoff, _ = payoffs(of_w, few, of_f, of_who, temperature)
    (gradient,) = torch.autograd.grad(payoff.mean(), of_w)
    return among_all(np.asarray(gradient.cpu().numpy()), widths, there)


def feedback(
    device: str, w: Vector, widths: Widths, f: Floats, who: Labels, there: Mask, temperature: float
) -> tuple[Floats, Floats, Mask]:
    """U of each row, its derivative in the row's own logits, and whether the discriminator is right."""
    own, few, whose = among(w, widths, who, there)
    of_w, of_f, of_who = tensors(device, own, f, whose)
    of_f.requires_grad_()
    payoff, logs = payoffs(of_w, few, of_f, of_who, temperature)
    (g,) = torch.autograd.grad(payoff.sum(), of_f)  # U of a row depends on no other row
    right = logs.argmax(1) == of_who
    return payoff.detach().cpu().numpy(), g.cpu().numpy(), right.cpu().numpy()


def kernels(device: str) -> DiscriminatorKernels:
    """The discriminator's kernels on the device "cpu" or "cuda"."""
    return DiscriminatorKernels(partial(ascent, device), partial(feedback, device))
