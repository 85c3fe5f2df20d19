"""Image networks of the papers. Normalisation is GroupNorm or BatchNorm, by argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import nn

Norm = Callable[[int], nn.Module]


def group_norm(groups: int) -> Norm:
    """GroupNorm with at most `groups` groups."""
    return lambda channels: nn.GroupNorm(min(groups, channels), channels)


NORMS: dict[str, Norm] = {"group": group_norm(8), "two_groups": group_norm(2), "batch": nn.BatchNorm2d}


class LeNet(nn.Module):
    """LeNet-5 on 28 x 28 images."""

    def __init__(self, input: tuple[int, ...] = (1, 28, 28), classes: int = 10) -> None:
        super().__init__()
        first = [nn.Conv2d(input[0], 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        self.body = nn.Sequential(*first, *second)
        side = (input[1] // 2 - 4) // 2
        dense = [nn.Linear(16 * side * side, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)]
        self.head = nn.Sequential(*dense)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(x))
        return output


class Plain(nn.Module):
    """3x3 convolutions, each of which halves the image by its stride or by pooling, and one linear layer."""

    def __init__(
        self,
        input: tuple[int, ...] = (3, 32, 32),
        classes: int = 10,
        widths: Sequence[int] = (8, 16, 32),
        pool: bool = False,
    ) -> None:
        super().__init__()
        layers, (channels, *sides) = list[nn.Module](), input
        for width in widths:
            layers += [nn.Conv2d(channels, width, 3, 1 if pool else 2, 1), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if pool else []
            channels, sides = width, [side // 2 if pool else (side + 1) // 2 for side in sides]
        self.body = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(channels * prod(sides), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(x))
        return output


class ResidualBlock(nn.Module):
    """Basic residual block; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), norm(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        output: torch.Tensor = F.relu(y + self.shortcut(x))
        return output


class ResNet(nn.Module):
    """CIFAR-shaped residual network.

    Args:
        stem: channels of the first convolution. widths, blocks: channels and residual blocks of each stage.
        norm: a key of NORMS. bias: True if the last linear layer has one.
    """

    def __init__(
        self,
        input: tuple[int, ...] = (3, 32, 32),
        classes: int = 10,
        stem: int = 16,
        widths: Sequence[int] = (16, 32, 64),
        blocks: Sequence[int] = (3, 3, 3),
        norm: str = "group",
        bias: bool = True,
    ) -> None:
        super().__init__()
        make, channels = NORMS[norm], stem
        self.stem = nn.Sequential(nn.Conv2d(input[0], stem, 3, 1, 1, bias=False), make(stem), nn.ReLU())
        layers = []
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            for i in range(count):
                layers.append(ResidualBlock(channels, width, 2 if stage and i == 0 else 1, make))
                channels = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(F.adaptive_avg_pool2d(self.body(self.stem(x)), 1).flatten(1))
        return output


class WideBlock(nn.Module):
    """Pre-activation block of Wide ResNets."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(inputs), nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2, self.conv2 = norm(outputs), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.relu(self.norm1(x))
        y = self.conv2(F.relu(self.norm2(self.conv1(a))))
        output: torch.Tensor = y + (x if self.shortcut is None else self.shortcut(a))
        return output


class WideResNet(nn.Module):
    """WRN-depth-width: depth = 6 n + 4, n blocks per stage."""

    def __init__(
        self,
        input: tuple[int, ...] = (3, 32, 32),
        classes: int = 10,
        depth: int = 10,
        width: int = 1,
        norm: str = "group",
    ) -> None:
        super().__init__()
        make, channels, layers = NORMS[norm], 16, []
        for stage, outputs in enumerate((16 * width, 32 * width, 64 * width)):
            for i in range((depth - 4) // 6):
                layers.append(WideBlock(channels, outputs, 2 if stage and i == 0 else 1, make))
                channels = outputs
        self.stem = nn.Conv2d(input[0], 16, 3, 1, 1, bias=False)
        self.body = nn.Sequential(*layers, make(channels), nn.ReLU())
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(F.adaptive_avg_pool2d(self.body(self.stem(x)), 1).flatten(1))
        return output
