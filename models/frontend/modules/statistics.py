"""Batch normalisation without running statistics (track_running_stats=False)."""

from __future__ import annotations

import copy

import torch
from torch import nn

from edge_sdk.models.ir.errors import UnsupportedPattern

NORM = nn.modules.batchnorm._BatchNorm


def settle_statistics(net: nn.Module, norm: str) -> nn.Module:
    """The module, whose predictions do not depend on who else is in the batch.

    Such a layer normalises with the batch in predictions, too. In training it is like any other with --norm batch; for
    predictions it is given running statistics here, which that training keeps. The module itself is not changed.

    Raises:
        UnsupportedPattern: statistics are frozen, and a layer has none.
    """
    paths = [path for path, m in net.named_modules() if isinstance(m, NORM) and m.running_mean is None]
    if paths and norm == "frozen":
        what = "BatchNorm without running statistics (track_running_stats=False)"
        advice = "compile with --norm batch or running, which gives it running statistics, or use GroupNorm"
        raise UnsupportedPattern(what, paths[0], advice)
    net = copy.deepcopy(net) if paths else net
    for layer in [m for m in net.modules() if isinstance(m, NORM) and m.running_mean is None]:
        layer.track_running_stats = True
        layer.running_mean, layer.running_var = torch.zeros(layer.num_features), torch.ones(layer.num_features)
        layer.num_batches_tracked = torch.tensor(0)
    return net
