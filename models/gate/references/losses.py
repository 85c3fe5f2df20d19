"""Torch's loss of each sample, against which the compiled ones are measured."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from edge_sdk.model.inputs import KNOWN_BELOW


def filled(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Targets, and where they are not known the outputs, which are never wrong there."""
    return torch.where(y < KNOWN_BELOW, y, z)


TORCH_LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross_entropy": lambda z, y: F.cross_entropy(z, y, reduction="none"),
    "soft_cross_entropy": lambda z, y: F.cross_entropy(z, y, reduction="none").reshape(len(z), -1).mean(1),
    "binary_cross_entropy": lambda z, y: F.binary_cross_entropy_with_logits(z, y, reduction="none").flatten(1).mean(1),
    "mean_squared_error": lambda z, y: F.mse_loss(z, y, reduction="none").flatten(1).mean(1),
    "huber": lambda z, y: F.huber_loss(z, y, reduction="none").flatten(1).mean(1),
    "masked_squared_error": lambda z, y: F.mse_loss(z, filled(z, y), reduction="none").flatten(1).mean(1),
    "masked_huber": lambda z, y: F.huber_loss(z, filled(z, y), reduction="none").flatten(1).mean(1),
}


def compute_losses(kind: str, smoothing: float, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Torch's loss of each sample (B,)."""
    if smoothing:
        return F.cross_entropy(z, y, reduction="none", label_smoothing=smoothing)
    return TORCH_LOSSES[kind](z, y)
