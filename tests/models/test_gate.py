"""The gate notices broken rules: each mutation of the compiler must end in a ParityError, and the unbroken one
must not.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.gate.graphs import gate
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.losses import LOSSES
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.convolutions import batch_norm
from edge_sdk.models.passes.products import attention, rewrite
from edge_sdk.models.passes.scheduling import open_lstm
from edge_sdk.models.rules import RULES, normalise
from edge_sdk.models.rules.windows import pooling, recurrent, weight_gradient
from tests.models.module_check import Last, Net, export_net, measure_exported


def conv_net():
    return nn.Sequential(
        nn.Conv1d(2, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(32, 3)
    )


def image_net():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 4, 2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def windows_net():
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))


def recurrent_net(cell):
    return nn.Sequential(cell(4, 5, batch_first=True), Last(), nn.Linear(5, 3))


def attention_net():
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(20, 3))


NETS = {
    "conv": (conv_net, (2, 8)),
    "image": (image_net, (1, 6, 6)),
    "windows": (windows_net, (1, 4, 4)),
    "mlp": (lambda: Net(torch.tanh), (8,)),
    "softmax": (lambda: Net(lambda h: torch.softmax(h, 1) * h), (8,)),
    "mean": (lambda: Net(lambda h: h - h.mean(1, keepdim=True)), (8,)),
    "gru": (lambda: recurrent_net(nn.GRU), (6, 4)),
    "lstm": (lambda: recurrent_net(nn.LSTM), (6, 4)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3)), (8,)),
    "attention": (attention_net, (5, 4)),
}


def scaled(factor: float, which: int = 0):
    """A rule with one of its results off by a factor."""

    def change(rule):
        def broken(g, *given):
            out = list(rule(g, *given))
            if which < len(out) and out[which]:
                out[which] = g.scale(out[which], factor)
            return out

        return broken

    return change


def relu_at_zero(g, n, outs, want):
    y = n.outputs[0]
    return (g.mul(outs[0], g.compare("GreaterOrEqual", y, g.scalar(0))),)


def softmax_without_mean(g, n, outs, want):
    return (g.mul(outs[0], n.outputs[0]),)


def no_slopes(original):
    return lambda g, gy, xhat, slopes, scale, rstd: original(g, gy, xhat, g.scale(slopes, 0), scale, rstd)


def no_softmax_slopes(original):
    return lambda g, gy, a: [g.scale(s, 0) for s in original(g, gy, a)]


def to_the_losers(original):
    return lambda g, values, most, gy: original(g, values, most, gy)[::-1]


def group_norm_rstd(original):
    def broken(g, gy, xhat, rstd, scale, groups):
        return original(g, gy, xhat, g.add(rstd, g.scalar(1e-4)), scale, groups)

    return broken


def first_tap_twice(original):
    def broken(g, x, window, out):
        cols = original(g, x, window, out)
        taps = g.shape(cols)[2]
        return g.concat([g.slice(cols, 2, 0, 1), g.slice(cols, 2, 0, taps - 1)], 2)

    return broken


def pair_to_the_other(original):
    return lambda g, a, b, gy: original(g, b, a, gy)[::-1][:1] * 2


def late_previous(original):
    return lambda g, h, h0, backwards: h


def label_shift(original):
    def broken(g, output):
        loss, seed = original(g, output)
        return loss, g.scale(seed, 1.0001)

    return broken


Patch = Callable[[pytest.MonkeyPatch], None]


def rule(op: str, change) -> Patch:
    return lambda m: m.setitem(RULES, op, change(RULES[op]))


def function(module, name: str, change) -> Patch:
    return lambda m: m.setattr(module, name, change(getattr(module, name)))


MUTATIONS: dict[str, tuple[str, Patch]] = {
    "relu passes at zero": ("image", rule("Relu", lambda _: relu_at_zero)),
    "linear bias times 1.001": ("mlp", rule("Gemm", scaled(1.001, 2))),
    "linear weight times 1.00001": ("mlp", rule("Gemm", scaled(1.00001, 1))),
    "tanh slope off by 1e-5": ("mlp", rule("Tanh", scaled(1 + 1e-5))),
    "softmax without its mean": ("softmax", rule("Softmax", lambda _: softmax_without_mean)),
    "mean without 1/n": ("mean", rule("ReduceMean", scaled(6.0))),
    "conv bias times 0.999": ("conv", rule("Conv", scaled(0.999, 2))),
    "a convolution tap taken twice": ("conv", function(weight_gradient, "write_sliced_columns", first_tap_twice)),
    "the pair's loser gets the gradient": ("conv", function(pooling, "give_to_larger", pair_to_the_other)),
    "the window's losers get the gradient": ("windows", function(pooling, "give_to_first", to_the_losers)),
    "max pool times 0.999": ("image", rule("MaxPool", scaled(0.999))),
    "1/std off by 1e-4": ("conv", function(rewrite, "write_group_norm_adjoints", group_norm_rstd)),
    "layer norm without the slope": ("layer norm", function(normalise, "write_layer_norm_adjoint", no_slopes)),
    "attention without the softmax's mean": (
        "attention",
        function(attention, "write_softmax_slopes", no_softmax_slopes),
    ),
    "gru: state after the step for the one before": ("gru", function(recurrent, "list_previous", late_previous)),
    "lstm: state after the step for the one before": ("lstm", function(open_lstm, "list_previous", late_previous)),
    "gru input weights times 1.0001": ("gru", rule("GRU", scaled(1.0001, 1))),
    "lstm hidden weights times 1.0001": ("lstm", function(open_lstm, "differentiate_loop", scaled(1.0001, 1))),
    "sums of adjoints keep the first": (
        "mean",
        lambda m: m.setattr("edge_sdk.models.derive.reverse.add_adjoints", lambda g, a: a[0]),
    ),
    "loss gradient times 1.0001": (
        "mlp",
        lambda m: m.setitem(LOSSES, "cross_entropy", label_shift(LOSSES["cross_entropy"])),
    ),
}


@cache
def forward_of(name: str):
    make, shape = NETS[name]
    torch.manual_seed(4)
    return export_net(make(), shape)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_caught(monkeypatch, name):
    net, patch = MUTATIONS[name]
    ready = forward_of(net)
    patch(monkeypatch)
    with pytest.raises(ParityError, match="float64"):
        measure_exported(*ready)


@pytest.mark.parametrize("name", NETS)
def test_the_unbroken_rules_pass(name):
    """The exporter rounds some constants of attention to float32."""
    assert measure_exported(*forward_of(name)) <= (1e-6 if name == "attention" else 1e-9)


def test_broken_running_statistics_are_caught(monkeypatch):
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(24, 3))
    monkeypatch.setattr(batch_norm, "correct_bias", lambda g, count: g.scalar(1.0))
    with pytest.raises(ParityError, match="running statistics"):
        compile_module(net.eval(), Spec("m", (2, 8), norm="batch"))


def test_no_file_is_left_by_a_failed_gate(monkeypatch, tmp_path, capsys):
    from edge_sdk.models.cli import main

    monkeypatch.setitem(RULES, "Gemm", scaled(1.01, 2)(RULES["Gemm"]))
    out = tmp_path / "m.bundle"
    assert main(["compile", "mlp", "-o", str(out)]) == 2
    assert "ParityError" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@cache
def shaken():
    """A network whose gradient keeps six digits in float64, and none in float32."""
    torch.manual_seed(0)
    return export_net(Net(lambda h: h + torch.sin(3e10 * h) / 3e10), (8,))


class Rounded:
    """Stands for a module whose float32 gradient is off by so much at each seed, in torch."""

    inputs = ()

    def __init__(self, torch_errors):
        self.torch_errors = torch_errors

    def draw(self, case, y_shape):
        return {"x": torch.tensor(float(case.seed), dtype=torch.float64)}

    def loss_grad(self, data, dtype=torch.float64):
        off = 0.0 if dtype == torch.float64 else self.torch_errors.get(int(data["x"]), 1e-6)
        return None, 0.0, np.array([1.0 + off, 0.0])


@pytest.mark.parametrize(("torch_errors", "passes"), [({210: 0.012}, True), ({210: 0.004}, False), ({}, False)])
def test_a_tie_that_torch_has_in_other_seeds_is_no_fault(torch_errors, passes):
    """One seed of three is 2 % off here: too much, unless torch is as far off in a seed that was not drawn at first."""
    kind = replace(gate.FLOAT32_KINDS[2], batch=3)

    def run(data):
        return np.array([1.02 if int(data["x"]) == 200 else 1.0, 0.0])

    if passes:
        assert gate.check_kind(run, Rounded(torch_errors), None, kind) < 1e-4
    else:
        with pytest.raises(ParityError, match="worst seed"):
            gate.check_kind(run, Rounded(torch_errors), None, kind)


def test_what_float64_cannot_hold_is_no_fault():
    assert measure_exported(*shaken()) == 1e-6


def test_a_broken_rule_is_caught_where_float64_holds_six_digits(monkeypatch):
    monkeypatch.setitem(RULES, "Sin", scaled(1.001)(RULES["Sin"]))
    with pytest.raises(ParityError, match="float64"):
        measure_exported(*shaken())
