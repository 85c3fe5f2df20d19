"""Norms that would train with other statistics than in torch are refused by name."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import ParityError, UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


class Held(nn.Sequential):
    """A network that keeps its first batch normalisation in evaluation, as is usual in fine-tuning."""

    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self


def make(kind, norm):
    torch.manual_seed(1)
    return kind(
        nn.Conv1d(3, 6, 3), norm, nn.ReLU(), nn.Conv1d(6, 4, 1), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(56, 3)
    )


@pytest.mark.parametrize("norm", ["batch", "running", "renorm"])
@pytest.mark.parametrize(
    ("kind", "layer", "told"),
    [
        (Held, nn.BatchNorm1d(6), "1: BatchNorm that stays in evaluation as the module trains"),
        (nn.Sequential, nn.InstanceNorm1d(6, track_running_stats=True), "1: InstanceNorm with running statistics"),
    ],
)
def test_statistics_that_are_others_in_torch_are_refused(kind, layer, told, norm):
    with pytest.raises(UnsupportedPattern, match=told):
        compile_module(make(kind, layer).eval(), Spec("net", (3, 16), norm=norm), search=0)


@pytest.mark.parametrize(
    ("kind", "layer", "norm"),
    [
        (Held, nn.BatchNorm1d(6), "frozen"),
        (nn.Sequential, nn.InstanceNorm1d(6, track_running_stats=True), "frozen"),
        (nn.Sequential, nn.InstanceNorm1d(6), "batch"),
    ],
)
def test_the_same_statistics_compile(kind, layer, norm):
    compile_module(make(kind, layer).eval(), Spec("net", (3, 16), norm=norm), search=0)


class Reading(nn.Module):
    """Takes the running mean away once more."""

    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.norm(self.body(x)) - self.norm.running_mean)


@pytest.mark.parametrize("norm", ["batch", "running"])
def test_a_running_mean_that_forward_reads_is_named(norm):
    words = rf"part reads part\.norm\.running_mean in forward, which --norm {norm} moves .* compile with --norm frozen"
    net = nn.Sequential()
    net.add_module("part", Reading())
    with pytest.raises(ParityError, match=words):
        compile_module(net.eval(), Spec("net", (6,), norm=norm), search=0)
