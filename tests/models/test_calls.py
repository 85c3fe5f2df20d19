"""The gate compares every torch call on its own: mutants that differ at ties, zeros and bounds only are caught."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import reverse
from edge_sdk.models.frontend.tracing import export, forward
from edge_sdk.models.gate.operators.calls import check_calls
from edge_sdk.models.ir.errors import ParityError, UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.rules import RULES
from edge_sdk.models.zoo import ZOO
from tests.models.module_check import Net, export_net, measure_exported


class ConvNet(nn.Module):
    """A convolution and a function of its channels."""

    def __init__(self, f):
        super().__init__()
        self.conv, self.f = nn.Conv1d(2, 4, 3, padding=1), f

    def forward(self, x):
        return self.f(self.conv(x)).flatten(1)


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(50, 4, padding_idx=3), nn.Linear(20, 3)

    def forward(self, x):
        return self.head(self.table(x).flatten(1))


BY_NAME = {
    "relu6": F.relu6,
    "hardtanh": lambda h: F.hardtanh(h, -0.3, 0.7),
    "clamp at an integer": lambda h: h.clamp(min=0),
    "max with its index": lambda h: h.max(2)[0],
    "norm of order 3": lambda h: h.norm(p=3, dim=2),
}
SPELLED_OUT = {
    "std": lambda h: h.std(2),
    "adaptive max pool": lambda h: F.adaptive_max_pool1d(h, 1),
    "log of a sigmoid": F.logsigmoid,
    "logaddexp": lambda h: torch.logaddexp(h, 0 * h),
}


def attend_near(h):
    """Attention with a table of distances that is cast to the type of what it is added to: its value is named `to`."""
    steps = torch.arange(4)
    distances = (steps[None] - steps[:, None]).abs() * torch.tensor([0.5])
    return F.scaled_dot_product_attention(h, h, h, attn_mask=(-distances).to(h.dtype))


def checked(f):
    return check_calls(export_net(ConvNet(f), (2, 8))[2])


def test_a_value_with_the_name_of_a_method():
    assert checked(attend_near) >= 1


@pytest.mark.parametrize("name", [*BY_NAME, *SPELLED_OUT])
def test_right_gradients_pass(name):
    assert checked((BY_NAME | SPELLED_OUT)[name]) >= 1


@pytest.mark.parametrize("name", BY_NAME)
def test_a_rule_that_does_not_ask_which_function_it_was_is_caught(monkeypatch, name):
    monkeypatch.setattr(forward, "read_call", lambda node: None)
    with pytest.raises(ParityError, match=r"aten\."):
        checked(BY_NAME[name])


@pytest.mark.parametrize("name", SPELLED_OUT)
def test_the_exporters_own_spelling_is_caught(monkeypatch, name):
    monkeypatch.setattr(export, "spell_out", lambda program: program)
    with pytest.raises(ParityError, match=r"aten\."):
        checked(SPELLED_OUT[name])


def test_a_trained_padding_row_is_caught_in_a_table_of_which_random_indices_miss_it(monkeypatch):
    ready = export_net(Lookup(), (5,), below=50)
    assert check_calls(ready[2]) >= 1
    monkeypatch.setattr(forward, "read_call", lambda node: None)
    with pytest.raises(ParityError, match="embedding"):
        check_calls(ready[2])


def test_functions_that_the_exporter_merges_are_refused():
    with pytest.raises(UnsupportedPattern, match="of the same value; use one of them"):
        checked(lambda h: F.hardtanh(h) + 2 * h.clamp(-1.0, 1.0))


def change_relu(g, n, outs, want):
    return (g.mul(outs[0], g.compare("GreaterOrEqual", n.outputs[0], g.scalar(0))),)


def change_abs(g, n, outs, want):
    positive = g.compare("GreaterOrEqual", n.inputs[0], g.scalar(0))
    return (g.mul(outs[0], g.sub(g.scale(positive, 2.0), g.scalar(1))),)


def change_clip(g, n, outs, want):
    return (g.mul(outs[0], g.compare("Equal", n.inputs[0], n.outputs[0])),)


MUTANTS = {"Relu": (F.relu, change_relu), "Abs": (torch.abs, change_abs)}


@pytest.mark.parametrize("op", MUTANTS)
def test_a_rule_that_is_wrong_at_0_only_is_caught(monkeypatch, op):
    f, rule = MUTANTS[op]
    monkeypatch.setitem(RULES, op, rule)
    with pytest.raises(ParityError, match=r"aten\."):
        checked(f)


def test_a_bundle_is_not_written(monkeypatch):
    monkeypatch.setattr(forward, "read_call", lambda node: None)
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU6(), nn.Linear(6, 3))
    with pytest.raises(ParityError, match=r"1: aten\.hardtanh"):
        compile_module(net.eval(), Spec("m", (8,)))


def test_no_gradient_at_all_is_caught(monkeypatch):
    ready = export_net(ConvNet(F.gelu), (2, 8))
    original = reverse.write_gradient
    monkeypatch.setattr(
        "edge_sdk.models.gate.operators.calls.write_gradient", lambda g, s, v: dict.fromkeys(original(g, s, v))
    )
    with pytest.raises(ParityError, match="gelu"):
        check_calls(ready[2])


def test_a_call_that_torch_cannot_differentiate_alone_is_refused(monkeypatch):
    *_, forward = export_net(Net(torch.relu), (8,))
    assert check_calls(forward) == 1

    def fail(*args, **kwargs):
        raise NotImplementedError("no derivative")

    monkeypatch.setattr(torch.autograd, "grad", fail)
    with pytest.raises(
        UnsupportedPattern, match=r"aten\.relu\.default.*does not differentiate alone \(no derivative\)"
    ):
        check_calls(forward)


WRITING = {
    "relu_": (lambda h: F.relu(h, inplace=True), "Relu", change_relu),
    "add_ of an absolute value": (lambda h: (h + 1).add_(torch.abs(h)), "Abs", change_abs),
    "hardtanh_": (lambda h: F.hardtanh_(h, -0.3, 0.7), "Clip", change_clip),
}


@pytest.mark.parametrize("name", WRITING)
def test_functions_that_write_into_their_argument_are_compared(monkeypatch, name):
    f, op, rule = WRITING[name]
    ready = export_net(ConvNet(f), (2, 8))
    assert check_calls(ready[2]) >= 1
    monkeypatch.setitem(RULES, op, rule)
    with pytest.raises(ParityError, match=r"aten\."):
        check_calls(ready[2])


def test_a_result_without_a_derivative_has_the_gradient_0(monkeypatch):
    """Where a truth value is written as a number, torch says that nothing depends on the input; so must the graph."""
    ready = export_net(ConvNet(lambda h: h * (h > 0).to(h.dtype)), (2, 8))
    assert check_calls(ready[2]) >= 1
    assert measure_exported(*ready) <= 1e-9


def test_a_call_without_parameters_is_checked_like_the_others():
    """What a depthwise-separable network has between its layers reads nothing but the batch."""
    torch.manual_seed(0)
    net = ZOO["separable"].build((3, 64), 14).eval()
    assert check_calls(export_net(net, (3, 64))[2]) >= 1
