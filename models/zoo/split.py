"""Split models of two data holders: a hospital and its devices see different features of the same samples."""

from __future__ import annotations

import torch
from torch import nn

from edge_sdk.models.bundle.split import SplitNet, SplitSpec

PARTIES = {"hospital": ("head", "hospital"), "device": ("device",)}


class LastHidden(nn.Module):
    """One LSTM layer; the hidden state of the last step."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTM(features, hidden, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.cell(x)[0][:, -1]
        return output


class Power(nn.Module):
    """The log of the mean power behind each filter, for (steps, 1) signals, after R. T. Schirrmeister et al., 2017."""

    def __init__(self, filters: int, width: int) -> None:
        super().__init__()
        self.filters = nn.Conv1d(1, filters, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.filters(x.transpose(1, 2))
        return torch.log((y * y).mean(2) + 0.01)


class Planes(nn.Module):
    """Two convolutions and a linear layer: one part of a one-channel image -> embedding."""

    def __init__(self, height: int, width: int, embedding: int) -> None:
        super().__init__()
        first = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        self.layers = nn.Sequential(*first, *second, nn.Linear(16 * (height // 4) * (width // 4), embedding))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(x)
        return output


def tables(name: str, features: int) -> tuple[SplitNet, SplitSpec]:
    """A model for a patient's measurements, `features` at the hospital and as many at devices; 2 classes."""
    towers = {k: nn.Sequential(nn.Linear(features, 8), nn.Tanh()) for k in PARTIES}
    head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    return SplitNet(towers, head), SplitSpec(name, dict.fromkeys(PARTIES, (features,)), PARTIES, 2)


def breast_cancer() -> tuple[SplitNet, SplitSpec]:
    """The model for 30 measures of cell nuclei."""
    return tables("split-breast-cancer", 15)


def tabular() -> tuple[SplitNet, SplitSpec]:
    """The model for the generated table of 76 features, as many as MIMIC-III has."""
    return tables("split-tabular", 38)


def eeg() -> tuple[SplitNet, SplitSpec]:
    """The model for 1 s of EEG: the first 89 of 178 samples at the hospital, the others at devices; 5 classes."""
    net = SplitNet({"hospital": LastHidden(1, 32), "device": LastHidden(1, 32)}, nn.Linear(64, 5))
    return net, SplitSpec("split-eeg", {"hospital": (89, 1), "device": (89, 1)}, PARTIES, 5)


def esr() -> tuple[SplitNet, SplitSpec]:
    """The model for the same EEG by filters: small, and trained in hundreds of steps."""
    net = SplitNet({"hospital": Power(16, 15), "device": Power(16, 15)}, nn.Linear(32, 5))
    return net, SplitSpec("split-esr", {"hospital": (89, 1), "device": (89, 1)}, PARTIES, 5)


def vitals() -> tuple[SplitNet, SplitSpec]:
    """The model for 48 hours of 76 vital signs, 38 at the hospital and 38 at devices; in-hospital mortality."""
    net = SplitNet({"hospital": LastHidden(38, 32), "device": LastHidden(38, 32)}, nn.Linear(64, 2))
    return net, SplitSpec("split-vitals", {"hospital": (48, 38), "device": (48, 38)}, PARTIES, 2)


def images() -> tuple[SplitNet, SplitSpec]:
    """The model for 28 x 28 images: 484 pixels (22 x 22) at the hospital, 300 (15 x 20) at devices; 11 classes."""
    head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 11))
    net = SplitNet({"hospital": Planes(22, 22, 32), "device": Planes(15, 20, 32)}, head)
    return net, SplitSpec("split-images", {"hospital": (1, 22, 22), "device": (1, 15, 20)}, PARTIES, 11)


SPLIT_ZOO = {
    "split-breast-cancer": breast_cancer,
    "split-tabular": tabular,
    "split-eeg": eeg,
    "split-esr": esr,
    "split-vitals": vitals,
    "split-images": images,
}
