"""Networks that forecast the next values of a signal from the last ones.

Both begin with the last value of each channel and learn what comes on top of it by a linear map along time, which one
set of weights does for all channels: A. Zeng et al., "Are transformers effective for time series forecasting?", AAAI
2023 (their NLinear). On short windows of sensors that is hard to beat; the second network adds convolutions to it.
"""

from __future__ import annotations

import torch
from torch import nn


class LinearForecaster(nn.Module):
    """Linear map from the differences to a channel's last value to the next ones: 1,040 parameters for 64 -> 16."""

    def __init__(self, input: tuple[int, ...] = (3, 64), classes: int = 16) -> None:
        super().__init__()
        self.ahead = nn.Linear(input[-1], classes)
        nn.init.zeros_(self.ahead.weight)  # the last value again: what each forecast must beat
        nn.init.zeros_(self.ahead.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = x[..., -1:]
        output: torch.Tensor = last + self.ahead(x - last)
        return output


class ConvForecaster(nn.Module):
    """Linear forecast with what convolutions add to it: 53,184 parameters for (3, 64) -> (3, 16)."""

    def __init__(self, input: tuple[int, ...] = (3, 64), classes: int = 16, width: int = 16) -> None:
        super().__init__()
        channels, samples = input
        self.shape, self.straight = (channels, classes), LinearForecaster(input, classes)
        self.convolutions = nn.Sequential(
            nn.Conv1d(channels, width, 7, padding=3), nn.ReLU(), nn.AvgPool1d(2),
            nn.Conv1d(width, 2 * width, 5, padding=2), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(2 * width * (samples // 2), channels * classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bent = self.head(self.convolutions(x - x[..., -1:])).unflatten(1, self.shape)
        output: torch.Tensor = self.straight(x) + bent
        return output
