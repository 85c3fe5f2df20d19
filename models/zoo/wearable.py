"""1-D convolutional networks for wearable sensors: (channels, samples) windows."""

from __future__ import annotations

import torch
from torch import nn


def conv_stage(inputs: int, outputs: int, kernel: int = 5, pool: int = 2) -> list[nn.Module]:
    """The layers of one stage: a convolution that keeps the length, GroupNorm, ReLU, pooling."""
    convolution = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
    return [convolution, nn.GroupNorm(4, outputs), nn.ReLU(), nn.MaxPool1d(pool)]


class Wrist(nn.Module):
    """Network for activities from a 3-axis wrist accelerometer, 2 s at 32 Hz: 77,518 parameters."""

    def __init__(self, input: tuple[int, ...] = (3, 64), classes: int = 14) -> None:
        super().__init__()
        channels, samples = input
        self.body = nn.Sequential(*conv_stage(channels, 32), *conv_stage(32, 64), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(64 * (samples // 4), 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(x))
        return output


class Signal(nn.Module):
    """Network for one-channel ECG or EEG segments; 178 samples are 1 s of the Bonn recordings."""

    def __init__(self, input: tuple[int, ...] = (1, 178), classes: int = 5) -> None:
        super().__init__()
        stages = conv_stage(input[0], 16, 7), conv_stage(16, 32), conv_stage(32, 64)
        self.body = nn.Sequential(*(m for s in stages for m in s), nn.Flatten())
        self.head = nn.Linear(64 * (input[1] // 8), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(x))
        return output


def separable(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    """The layers of a depthwise convolution along time and a pointwise one across channels."""
    depthwise = nn.Conv1d(inputs, inputs, 7, stride, 3, groups=inputs, bias=False)
    pointwise = nn.Conv1d(inputs, outputs, 1, bias=False)
    return [depthwise, pointwise, nn.GroupNorm(8, outputs), nn.ReLU()]


class Separable(nn.Module):
    """Depthwise-separable network for 12-lead ECG: few parameters, long windows."""

    def __init__(self, input: tuple[int, ...] = (12, 256), classes: int = 5) -> None:
        super().__init__()
        stem = [nn.Conv1d(input[0], 32, 7, 2, 3, bias=False), nn.GroupNorm(8, 32), nn.ReLU()]
        blocks = [*separable(32, 64, 2), *separable(64, 64, 1), *separable(64, 128, 2)]
        self.body = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.head = nn.Linear(128, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(x))
        return output
