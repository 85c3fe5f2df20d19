"""Networks over time series of vital signs: (steps, features)."""

from __future__ import annotations

import torch
from torch import nn


class Recurrent(nn.Module):
    """GRU or LSTM, the last step into a linear layer."""

    def __init__(
        self, input: tuple[int, ...] = (32, 12), classes: int = 5, cell: str = "GRU", hidden: int = 32, layers: int = 1
    ) -> None:
        super().__init__()
        self.body = getattr(nn, cell)(input[1], hidden, num_layers=layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(x)[0][:, -1])
        return output


class Transformer(nn.Module):
    """A small encoder with learned positions, averaged over time."""

    def __init__(self, input: tuple[int, ...] = (32, 12), classes: int = 5, size: int = 64, layers: int = 2) -> None:
        super().__init__()
        steps, features = input
        self.embed = nn.Linear(features, size)
        self.position = nn.Parameter(0.02 * torch.randn(1, steps, size))
        layer = nn.TransformerEncoderLayer(size, 4, 2 * size, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(size, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(self.embed(x) + self.position).mean(1))
        return output
