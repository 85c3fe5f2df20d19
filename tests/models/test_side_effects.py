"""What a module does beside its result: buffers that change in evaluation, and backward passes of its own."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


class Counting(nn.Module):
    def __init__(self, only_training: bool):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.only_training = only_training

    def forward(self, x):
        if self.training or not self.only_training:
            self.calls += 1
        return x * (1 + self.calls)


class Straight(torch.autograd.Function):
    """Passes gradients on as if the sign were the identity."""

    @staticmethod
    def forward(ctx, x):
        return torch.sign(x)

    @staticmethod
    def backward(ctx, g):
        return g


class Saving(torch.autograd.Function):
    """A swish with its own derivative, to keep less in memory."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return g * s * (1 + x * (1 - s))


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.body, self.head, self.function = nn.Linear(6, 6), nn.Linear(6, 3), function

    def forward(self, x):
        return self.head(self.function.apply(self.body(x)))


def test_a_buffer_that_changes_in_evaluation_is_refused_and_left_as_it_was():
    net = nn.Sequential(nn.Linear(6, 3), Counting(only_training=False)).eval()
    with pytest.raises(UnsupportedPattern, match=r"1: buffer calls changes in evaluation; .* no result depends"):
        compile_module(net, Spec("net", (6,)))


@pytest.mark.parametrize("dropout", ["", "off"])
def test_one_that_changes_in_training_only_is_refused_where_the_result_depends_on_it(dropout):
    net = nn.Sequential(nn.Linear(6, 3), Counting(only_training=True)).eval()
    with pytest.raises(UnsupportedPattern, match=r"^1: buffer calls changes in training, and results"):
        compile_module(net, Spec("net", (6,), dropout=dropout), search=0)
    assert net[1].calls == 0


@pytest.mark.parametrize("function", [Saving, Straight])
def test_a_backward_pass_compiles_whether_or_not_it_is_the_derivative(function):
    assert compile_module(Applied(function).eval(), Spec("net", (6,)), search=0).errors["float64"] < 1e-9


def test_random_numbers_of_processor_and_gpu_go_on_as_without_a_compilation(monkeypatch):
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)).eval()
    begun, before = [], torch.get_rng_state()
    monkeypatch.setattr(torch.cuda, "manual_seed_all", begun.append)
    compile_module(net, Spec("net", (6,), dropout="keep"), search=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert begun == []
