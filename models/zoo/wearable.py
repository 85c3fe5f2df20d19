"""1-D convolutional networks for wearable sensors: (channels, samples) windows."""

from __future__ import annotations

import torch
from torch import nn


def conv_stage(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv1d(inputs, outputs, 5, padding=2), nn.GroupNorm(4, outputs), nn.ReLU(), nn.MaxPool1d(2)]


class Wrist(nn.Module):
    """Activity from a 3-axis wrist accelerometer, 2 s at 32 Hz: two convolutions and two linear layers, 77,518
    parameters.
    """

    def __init__(self, input: tuple[int, ...] = (3, 64), classes: int = 14) -> None:
        super().__init__()
        channels, samples = input
        self.body = nn.Sequential(*conv_stage(channels, 32), *conv_stage(32, 64), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(64 * (samples // 4), 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))
