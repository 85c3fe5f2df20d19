"""Axes that hold the batch more than once: heads behind each other, and samples that must not depend on each other."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.tracing.batch_sizes import find_constant
from edge_sdk.models.ir.errors import BatchSpecialised, ParityError, UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.rules import shaping
from tests.models.module_check import Net, export_net, measure_exported
from tests.models.rule_check import check, make_node


class Heads(nn.Module):
    """Attention whose heads lie behind each other along the batch, as in ATCNet."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.head = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(30, 3)

    def forward(self, x):
        q, k = (torch.cat(f(x).split(2, dim=-1), 0) for f in (self.q, self.k))
        made = (q @ k.transpose(1, 2)).softmax(-1) @ q
        return self.head(torch.cat(made.split(x.shape[0], dim=0), -1).flatten(1))


def heads():
    torch.manual_seed(0)
    return export_net(Heads(), (5, 4))


def test_heads_along_the_batch():
    assert measure_exported(*heads()) <= 1e-9


def test_a_wrong_order_of_the_parts_is_caught(monkeypatch):
    ready, original = heads(), shaping.split_batch
    monkeypatch.setattr(shaping, "split_batch", lambda *given: original(*given)[::-1])
    with pytest.raises(ParityError, match="float64"):
        measure_exported(*ready)


@pytest.mark.parametrize("batch", [1, 3])
def test_parts_of_other_sizes(batch):
    nodes = [make_node("Concat", ["x", "x"], ["t"], axis=0), make_node("Concat", ["t", "x"], axis=0)]
    check(nodes, {"x": ("B", 2)}, batch=batch)


class Token(nn.Module):
    """A trained token that is repeated for every sample and step, as channel tokens of BIOT are."""

    def __init__(self):
        super().__init__()
        self.token, self.head = nn.Parameter(torch.randn(4)), nn.Linear(20, 3)

    def forward(self, x):
        return self.head((x + self.token.reshape(1, 1, 4).repeat(x.shape[0], 5, 1)).flatten(1))


def test_a_token_that_is_repeated_for_every_sample():
    assert measure_exported(*export_net(Token(), (5, 4))) <= 1e-9


def test_a_sum_over_too_few_copies_is_caught(monkeypatch):
    ready, original = export_net(Token(), (5, 4)), OnnxGraph.sum

    def without_last(g, x, axes, keep=False):
        axes = list(axes)
        return original(g, x, axes, keep) if len(axes) < 3 else original(g, g.slice(x, 2, 0, 4), axes, keep)

    monkeypatch.setattr(OnnxGraph, "sum", without_last)
    with pytest.raises(ParityError, match="float64"):
        measure_exported(*ready)


@pytest.mark.parametrize("batch", [1, 3])
def test_tiles(batch):
    check([make_node("Tile", ["x", "r"])], {"x": ("B", 2, 3)}, {"r": np.array([1, 3, 2], np.int64)}, batch=batch)


class Inner(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, h):
        return self.f(h)


def test_a_number_of_pieces_that_depends_on_the_batch_names_the_layer():
    with pytest.raises(BatchSpecialised, match="extra: works for one batch size only"):
        export_net(Net(None, extra=Inner(lambda h: h.split(5, dim=0)[0])), (8,))


def test_samples_that_depend_on_each_other_are_refused():
    """Rows of two samples, put behind each other, become one row: a device that splits a batch would have others."""
    net = Net(None, extra=Inner(lambda h: torch.cat([h[:, :3], h[:, 3:]], 0).reshape(h.shape[0], 6)))
    with pytest.raises(UnsupportedPattern, match="with the other samples of its batch"):
        compile_module(net.eval(), Spec("m", (8,)))


def test_only_numbers_that_are_the_same_for_every_batch_are_constant():
    found = []

    class Counting(nn.Module):
        def forward(self, x):
            b = x.shape[0]
            found.extend(find_constant(v) for v in ((3 * b - 1) // b, (b + 9) // 10, b, (5 * b + 2) // b))
            return x

    dims = {0: torch.export.Dim("B", min=2, max=65536)}
    torch.export.export(Counting(), (torch.ones(37, 2),), dynamic_shapes=(dims,), strict=False)
    assert found[:4] == [2, None, None, None]
