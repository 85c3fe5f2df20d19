"""Attention head by head: the same gradients, and only where nothing else looks inside."""

import pytest
import torch
from torch import nn

from edge_sdk.models.derive import targets
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from tests.models.module_check import export_net, measure_exported


class Own(nn.Module):
    """Attention of a sequence on itself."""

    def __init__(self, heads=2, mask=None, batch_first=True):
        super().__init__()
        self.attend = nn.MultiheadAttention(4 * heads, heads, batch_first=batch_first)
        self.head, self.mask = nn.Linear(4 * heads, 3), mask

    def forward(self, x):
        return self.head(self.attend(x, x, x, need_weights=False, attn_mask=self.mask)[0].mean(1))


class Other(nn.Module):
    """Three learned queries look at a sequence."""

    def __init__(self):
        super().__init__()
        self.queries, self.attend = nn.Linear(5, 3), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        few = self.queries(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.attend(few, x, x, need_weights=False)[0].flatten(1)[:, :8])


class Plain(nn.Module):
    """Written by hand, with the softmax as a layer."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 6) for _ in range(3))
        self.weights, self.head = nn.Softmax(-1), nn.Linear(6, 3)

    def forward(self, x):
        q, k, v = (f(x).reshape(-1, 5, 2, 3).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = self.weights(q @ k.transpose(2, 3)) @ v
        return self.head(y.transpose(1, 2).reshape(-1, 5, 6).mean(1))


def source(net, shape):
    net, _, forward = export_net(net, shape)
    return targets.Source(forward, {"theta": lay_out_parameters(net)})


def ranks(g):
    """The number of axes of the attention weights: 3 head by head, 4 for all heads together."""
    return {g.rank(n.outputs[0]) for n in g.nodes if n.op == "Softmax"}


CASES = {
    "own": (Own, (5, 8), 3),
    "other": (Other, (5, 8), 3),
    "plain": (Plain, (5, 4), 3),
    "masked": (lambda: Own(mask=torch.full((5, 5), -1e9).triu(1)), (5, 8), 4),
    "many heads": (lambda: Own(17), (3, 68), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    torch.manual_seed(3)
    make, shape, rank = CASES[name]
    net, inputs, forward = export_net(make(), shape)
    assert ranks(targets.Source(forward, {"theta": lay_out_parameters(net)}).copy_graph()) == {rank}
    assert measure_exported(net, inputs, forward) <= 1e-6


def test_what_somebody_else_reads_stays():
    made = source(Plain(), (5, 4))
    other, value = made.keep_layer("weights")
    assert other.copy_graph().rank(value) == 4
    assert ranks(other.copy_graph()) == {4}
    assert ranks(made.copy_graph()) == {3}
