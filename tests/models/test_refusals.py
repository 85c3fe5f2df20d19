"""Modules that cannot be compiled are refused by name, with the place in the module and advice."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import (
    BatchSpecialised,
    CompileError,
    DataDependentControlFlow,
    DetachedGradient,
    TrainModeExport,
    UnsupportedOperator,
    UnsupportedPattern,
)
from edge_sdk.models.ir.spec import Spec
from tests.models.module_check import Net, measure_error


def under_no_grad(h):
    with torch.no_grad():
        scale = torch.sigmoid(h)
    return h * scale


class Straight(torch.autograd.Function):
    """Rounds forward, passes backward."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


def inner(f):
    """A function inside a submodule, so that refusals can name it."""

    class Inner(nn.Module):
        def forward(self, h):
            return f(h)

    return Net(None, extra=Inner())


FUNCTIONS = {
    "detach": (lambda h: h * torch.sigmoid(h.detach()), DetachedGradient, "extra: detach"),
    "no_grad": (under_no_grad, DetachedGradient, "extra: no_grad"),
    "data": (lambda h: h * h.data, DetachedGradient, "lifted_tensor|data"),
    "log of gamma": (lambda h: torch.lgamma(h.abs() + 1), UnsupportedOperator, "extra: operator lgamma"),
    "einsum that sums": (
        lambda h: torch.einsum("bi,bj->bi", h, h),
        UnsupportedPattern,
        "no matrix product; use matmul",
    ),
    "mean of the batch": (lambda h: h - h.mean(0), UnsupportedPattern, "batch axis; samples of a batch"),
    "first sample": (lambda h: h * h[0:1], UnsupportedPattern, "batch axis"),
    "branch on data": (lambda h: h if h.sum() > 0 else -h, DataDependentControlFlow, "torch.where"),
    "shape from data": (lambda h: h[:, : int(h.sum())], DataDependentControlFlow, "values"),
    "complex numbers": (
        lambda h: torch.log(h * 1j),
        UnsupportedPattern,
        "extra: log of complex numbers; write real",
    ),
    "fixed batch": (lambda h: h.reshape(37, -1), BatchSpecialised, r"extra: works for one batch size"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    f, error, words = FUNCTIONS[name]
    with pytest.raises(error, match=words):
        measure_error(inner(f), (8,))


def test_a_straight_through_function_is_refused():
    with pytest.raises(CompileError):
        measure_error(Net(lambda h: Straight.apply(h) + h), (8,))


MODULES = {
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.5)), TrainModeExport, r"1: Dropout\(p=0.5\)"),
    "attention dropout": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 8, 0.1, batch_first=True)),
        TrainModeExport,
        "self_attn: MultiheadAttention.* --dropout off",
    ),
    "gru dropout": (lambda: nn.Sequential(nn.GRU(8, 3, 2, dropout=0.1)), TrainModeExport, r"0: GRU\(p=0.1\)"),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, error, words = MODULES[name]
    with pytest.raises(error, match=words):
        measure_error(make(), (8,))


def test_a_module_in_training_mode():
    with pytest.raises(TrainModeExport, match=r"call eval\(\)"):
        compile_module(nn.Sequential(nn.Linear(8, 3)).train(), Spec("m", (8,)))


def test_dropout_by_the_function_in_training_mode_is_refused_by_the_gate_or_before():
    with pytest.raises(CompileError):
        measure_error(inner(lambda h: F.dropout(h, 0.5, training=True)), (8,))


def test_classes_that_the_module_does_not_return():
    with pytest.raises(CompileError, match="classes = 4, but the module returns 3"):
        compile_module(Net(lambda h: h).eval(), Spec("m", (8,), classes=4))


def test_cross_entropy_of_images():
    net = nn.Sequential(nn.Conv1d(2, 4, 3))
    with pytest.raises(CompileError, match="cross entropy needs an output of"):
        compile_module(net.eval(), Spec("m", (2, 9)))


@pytest.mark.parametrize(
    ("change", "words"), [({"loss": "hinge"}, "loss 'hinge'"), ({"input": ()}, "shape of one sample")]
)
def test_specs_that_make_no_sense(change, words):
    with pytest.raises(CompileError, match=words):
        Spec(**{"name": "m", "input": (8,), **change})


def test_features_of_a_layer_that_is_not_there():
    with pytest.raises(CompileError, match="no layer 'neck' in the graph; there are a"):
        compile_module(Net(torch.relu).eval(), Spec("m", (8,), features="neck"))
