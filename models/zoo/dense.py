"""Networks of linear layers."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import torch
from torch import nn


class MLP(nn.Module):
    """Input -> hidden layers with ReLU -> classes."""

    def __init__(self, input: tuple[int, ...] = (561,), classes: int = 6, hidden: tuple[int, ...] = (64,)) -> None:
        super().__init__()
        sizes = [prod(input), *hidden]
        layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
        self.body = nn.Sequential(nn.Flatten(), *layers)
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(x))
        return output
