"""Autoencoders: what they return has the shape of what they are given, by way of a few numbers.

They are trained on what is usual, and their error on a window says how unusual it is. Source: G. E. Hinton and
R. R. Salakhutdinov, "Reducing the dimensionality of data with neural networks", Science 2006; of windows of sensors as
anomaly scores: P. Malhotra et al., "LSTM-based encoder-decoder for multi-sensor anomaly detection", 2016.
"""

from __future__ import annotations

from math import prod

import torch
from torch import nn

LATENT = 16


class WindowAutoencoder(nn.Module):
    """Network that passes a window (channels, samples) on as `latent` numbers: 23,491 parameters for (3, 64).

    Beside the convolutional layers, linear ones go the same way, as principal components would: steps of stochastic
    gradient descent then find at once what these find, and layers that bend add to it. No layer normalises within a
    window: how large its values are is to be in these numbers, too.
    """

    def __init__(self, input: tuple[int, ...] = (3, 64), classes: int = 1, latent: int = LATENT) -> None:
        super().__init__()
        channels, samples = input
        half, fourth = max(1, samples // 2), max(1, samples // 4)
        self.input, self.coarse = (channels, samples), (16, fourth)
        self.straight_in, self.straight_out = (
            nn.Linear(prod(self.input), latent),
            nn.Linear(latent, prod(self.input)),
        )
        self.encoder = nn.Sequential(
            nn.Conv1d(channels, 16, 7, padding=3), nn.ReLU(), nn.AvgPool1d(2),
            nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.AvgPool1d(2),
            nn.Flatten(), nn.Linear(32 * (samples // 2 // 2), latent),
        )  # fmt: skip
        self.widen = nn.Sequential(nn.Linear(latent, prod(self.coarse)), nn.ReLU())
        self.decoder = nn.Sequential(
            nn.Upsample(size=half), nn.Conv1d(16, 16, 5, padding=2), nn.ReLU(),
            nn.Upsample(size=samples), nn.Conv1d(16, channels, 7, padding=3),
        )  # fmt: skip
        begin(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed = self.encoder(x) + self.straight_in(x.flatten(1))
        bent = self.decoder(self.widen(passed).unflatten(1, self.coarse))
        output: torch.Tensor = bent + self.straight_out(passed).unflatten(1, self.input)
        return output


def begin(net: nn.Module) -> None:
    """Weights with which signals and gradients keep their size: orthogonal ones, and He's before rectifiers."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
        elif isinstance(layer, nn.Conv1d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")


class DenseAutoencoder(nn.Module):
    """Network that passes any sample on as `latent` numbers, by way of `width`: 20,816 parameters for (64,)."""

    def __init__(
        self, input: tuple[int, ...] = (64,), classes: int = 1, latent: int = LATENT, width: int = 128
    ) -> None:
        super().__init__()
        size, self.shape = prod(input), tuple(input)
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, size))
        begin(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.decoder(self.encoder(x)).unflatten(1, self.shape)
        return output
