"""A network that tells the class or values of each step of a window, by dilated convolutions along time.

Source of dilated convolutions, each of which adds to what went before: A. van den Oord et al., "WaveNet: a generative
model for raw audio", 2016. Stages of sleep from a wrist's movement and heart rate: O. Walch et al., "Sleep stage
prediction with raw acceleration and photoplethysmography heart rate data derived from a consumer wearable device",
Sleep 2019.
"""

from __future__ import annotations

import torch
from torch import nn

DILATIONS = (1, 2, 4, 8)
"""Steps between the three that a layer looks at: 31 steps in all."""


class StepNetwork(nn.Module):
    """Logits (K, S) of K classes, or K values, at S steps of a window (channels, samples), whose samples S divides.

    Of each step the first layers make `width` numbers: means and mean squares, over its samples, of what small filters
    find, for how much moves counts as well as where it is. The others see what lies around.
    """

    def __init__(
        self, input: tuple[int, ...] = (2, 192), classes: int = 4, steps: int = 32, width: int = 32, filters: int = 16
    ) -> None:
        super().__init__()
        channels, samples = input
        if samples % steps:
            raise ValueError(f"a window of {samples} samples has no {steps} steps of equal length")
        self.fine = nn.Sequential(nn.Conv1d(channels, filters, 5, padding=2), nn.ReLU())
        self.pool = nn.AvgPool1d(samples // steps)
        self.widen = nn.Conv1d(2 * (filters + channels), width, 1)
        self.around = nn.ModuleList(nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in DILATIONS)
        self.head = nn.Conv1d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.cat([x, self.fine(x)], 1)
        h = torch.relu(self.widen(torch.cat([self.pool(found), self.pool(found * found)], 1)))
        for layer in self.around:
            h = h + torch.relu(layer(h))
        output: torch.Tensor = self.head(h)
        return output
