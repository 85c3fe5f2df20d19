"""A module that forecasts the end of a window, and is kept from seeing it: whatever it does, it cannot copy it."""

from __future__ import annotations

import torch
from torch import nn

from edge_sdk.model.tasks.task import Forecast, OutputTask


class Ahead(nn.Module):
    """Module of whole windows (N, ..., T), around one that is given them without their last values.

    Args:
        net: (N, ..., T - horizon) -> (N, ..., horizon).
        horizon: how many values are cut off, along the last axis.
    """

    def __init__(self, net: nn.Module, horizon: int) -> None:
        super().__init__()
        self.net, self.horizon = net, horizon
        self.train(net.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.net(x[..., : -self.horizon])
        return output


def kept_from_the_end(net: nn.Module, task: OutputTask | None) -> nn.Module:
    """The module itself, or one of whole windows around it if it forecasts their ends."""
    return Ahead(net, task.horizon) if isinstance(task, Forecast) else net
