"""Networks that are loops of 64 steps, for benchmarks/compile_costs.py: what a compiler writes out step by step."""

from __future__ import annotations

import torch
from torch import nn


class Cells(nn.Module):
    """Loop of GRU cells over windows (N, 3, T)."""

    def __init__(self, width: int = 14) -> None:
        super().__init__()
        self.width, self.cell, self.head = width, nn.GRUCell(3, width), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], self.width)
        for step in range(x.shape[2]):
            h = self.cell(x[:, :, step], h)
        output: torch.Tensor = self.head(h)
        return output


class Scan(nn.Module):
    """Selective state space over windows (N, 3, T), as in A. Gu and T. Dao, "Mamba" (2023), without its convolution."""

    def __init__(self, width: int = 16, states: int = 8) -> None:
        super().__init__()
        self.enter, self.pace = nn.Linear(3, width), nn.Linear(width, width)
        self.write, self.read = nn.Linear(width, states), nn.Linear(width, states)
        self.decay = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(width, 1))
        self.pass_by, self.head = nn.Parameter(torch.ones(width)), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.enter(x.transpose(1, 2))
        pace, write, read = nn.functional.softplus(self.pace(u)), self.write(u), self.read(u)
        h, steps = x.new_zeros(x.shape[0], u.shape[2], write.shape[2]), []
        for t in range(x.shape[2]):
            kept = torch.exp(-pace[:, t, :, None] * torch.exp(self.decay))
            h = kept * h + (pace[:, t] * u[:, t])[:, :, None] * write[:, t, None, :]
            steps.append((h * read[:, t, None, :]).sum(-1) + self.pass_by * u[:, t])
        output: torch.Tensor = self.head(torch.stack(steps, 1).mean(1))
        return output
