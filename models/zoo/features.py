"""Networks on features of sensor windows: as many as a wrist network has layers, and trained in a tenth of its time.

No parameter lies before the features, so the compiler cuts them off as a front that a device computes once for each
window (see models/README.md). They are standardised by statistics of the fleet, which are parameters that no step
changes: the run fills them in (edge_sdk/methods/statistics).
"""

from __future__ import annotations

import torch
from torch import nn

from edge_sdk.algebra import window_features as definition
from edge_sdk.models.zoo.wearable import conv_stage

LIMIT = 8.0
"""Standardised features are clipped here: what a device has once in its life must not decide alone."""


class WindowFeatures(nn.Module):
    """Features of windows (B, channels, samples), as edge_sdk/algebra/window_features.py defines them; no parameter."""

    def __init__(self, channels: int, samples: int) -> None:
        super().__init__()
        self.channels, self.samples = channels, samples
        self.size = len(definition.feature_names(channels, samples))
        cos, sin = definition.fourier_weights(samples)
        self.quantiles = torch.tensor(definition.quantile_weights(samples), dtype=torch.float32)
        self.cos, self.sin = torch.tensor(cos, dtype=torch.float32), torch.tensor(sin, dtype=torch.float32)
        self.bands = torch.tensor(definition.band_weights(samples), dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.cat([x, *self.magnitudes(x)], 1)
        mean = z.mean(2)
        centred = z - mean.unsqueeze(2)
        std = centred.square().mean(2).sqrt()
        step = z[:, :, 1:] - z[:, :, :-1]
        step_std = (step - step.mean(2, keepdim=True)).square().mean(2).sqrt()
        amplitude = ((centred @ self.like(self.cos, x)).square() + (centred @ self.like(self.sin, x)).square()).sqrt()
        levels = torch.stack([mean, std, z.amin(2), z.amax(2)], 1)
        ordered = z.sort(2).values @ self.like(self.quantiles, x)
        steps = torch.stack([step.abs().mean(2), step_std, amplitude.argmax(2).to(x.dtype) / (self.samples // 2)], 1)
        parts = [levels, ordered.transpose(1, 2), steps, (amplitude @ self.like(self.bands, x)).transpose(1, 2)]
        return torch.cat([*(p.flatten(1) for p in parts), *self.correlations(centred, std)], 1)

    def magnitudes(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Lengths of the vectors of each three channels, (B, 1, samples) each."""
        return [x[:, 3 * k : 3 * k + 3].square().sum(1, keepdim=True).sqrt() for k in range(self.channels // 3)]

    def correlations(self, centred: torch.Tensor, std: torch.Tensor) -> list[torch.Tensor]:
        """Correlations of each two channels, (B, 1) each."""
        unit = centred / (std.unsqueeze(2) + definition.EPSILON)
        return [(unit[:, i] * unit[:, j]).mean(1, keepdim=True) for i, j in definition.pairs(self.channels)]

    @staticmethod
    def like(constant: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return constant.to(x.dtype)


class Standardise(nn.Module):
    """(x - mean) / scale, clipped: by statistics of the fleet, which lie in theta and which no training step changes.

    `log_scale` and not the scale: whatever is added to it, the scale stays above zero.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(size))
        self.log_scale = nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x - self.mean) * torch.exp(-self.log_scale)).clamp(-LIMIT, LIMIT)


class FeatureNetwork(nn.Module):
    """Network on features: a linear layer, and beside it one hidden layer of `width` units.

    With the hidden layer's output at zero it is a linear model of the features.
    """

    def __init__(self, input: tuple[int, ...] = (3, 64), classes: int = 14, width: int = 64) -> None:
        super().__init__()
        self.front = WindowFeatures(*input)
        self.standardise = Standardise(self.front.size)
        self.hidden = nn.Linear(self.front.size, width)
        self.output = nn.Linear(width, classes, bias=False)
        self.linear = nn.Linear(self.front.size, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = self.standardise(self.front(x))
        output: torch.Tensor = self.linear(f) + self.output(torch.relu(self.hidden(f)))
        return output


class FeatureBranches(nn.Module):
    """Network on features with a convolutional branch beside it: what the features leave out, convolutions can learn.

    The branch has two stages of convolutions over the raw window, the mean and the maximum over time of each of its
    channels, and joins at the hidden layer. With its output at zero this is `FeatureNetwork`.
    """

    def __init__(
        self, input: tuple[int, ...] = (3, 64), classes: int = 14, width: int = 64, channels: tuple[int, int] = (16, 32)
    ) -> None:
        super().__init__()
        self.features = FeatureNetwork(input, classes, width)
        first, second = channels
        self.branch = nn.Sequential(*conv_stage(input[0], first), *conv_stage(first, second))
        self.joined = nn.Linear(2 * second, classes, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.branch(x)
        output: torch.Tensor = self.features(x) + self.joined(torch.cat([z.mean(2), z.amax(2)], 1))
        return output
