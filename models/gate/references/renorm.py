"""Batch renormalisation in torch, which has none: what the gate compares compiled graphs with."""

from __future__ import annotations

from types import MethodType

import torch
from torch import nn

from edge_sdk.models.passes.convolutions.batch_norm import D_MAX, R_MAX

BatchNorm = nn.modules.batchnorm._BatchNorm


def renormalise(net: nn.Module) -> None:
    """Let all batch normalisations of a module, in training mode, do as S. Ioffe's algorithm 1 says."""
    for layer in net.modules():
        if isinstance(layer, BatchNorm):
            layer.forward = MethodType(forward, layer)  # type: ignore[method-assign]


def forward(layer: BatchNorm, x: torch.Tensor) -> torch.Tensor:
    """scale (r (x - mean) / std + d) + shift; the gradient takes r and d for constants."""
    if not layer.training:
        return type(layer).forward(layer, x)
    assert layer.running_mean is not None and layer.running_var is not None and layer.momentum is not None
    axes, shape = [0, *range(2, x.dim())], (1, -1, *(1 for _ in x.shape[2:]))
    known_mean, known_std = layer.running_mean.clone(), (layer.running_var + layer.eps).sqrt()
    mean, variance = x.mean(axes), x.var(axes, correction=0)
    std = (variance + layer.eps).sqrt()
    r = (std / known_std).clamp(1 / R_MAX, R_MAX).detach()
    d = ((mean - known_mean) / known_std).clamp(-D_MAX, D_MAX).detach()
    y = (x - mean.view(shape)) / std.view(shape) * r.view(shape) + d.view(shape)
    count = x.numel() // x.shape[1]
    with torch.no_grad():
        layer.running_mean.lerp_(mean, layer.momentum)
        layer.running_var.lerp_(variance * count / max(count - 1, 1), layer.momentum)
    return y if layer.weight is None else y * layer.weight.view(shape) + layer.bias.view(shape)
