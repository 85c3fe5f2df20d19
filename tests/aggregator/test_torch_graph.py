"""A bundle's forward graph in torch against onnxruntime: outputs and gradients."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from aggregator.private_model.torch_graph import OPERATORS, TorchGraph
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo import ZOO

F = nn.functional


class Odd(nn.Module):
    """Operators that the zoo has not."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(3, 4, 3, padding=1, stride=2), nn.Conv1d(2, 4, 2, groups=2, dilation=2)
        self.norm, self.head = nn.InstanceNorm1d(4, affine=True), nn.Linear(4, 3)

    def forward(self, x):
        y = F.avg_pool1d(F.gelu(self.a(x)), 2)
        z = F.leaky_relu(self.b(y[:, 1:3]), 0.1)
        z = F.silu(z) + F.hardswish(z) * (1 + torch.tanh(z).abs()).sqrt() - F.elu(z) / (1 + torch.exp(-z))
        z = torch.cat([z, F.softplus(z).clamp(0.1, 2.0)], 2).transpose(1, 2)
        return self.head((z * torch.softmax(z, 1)).sum(1))


class Stopping(nn.Linear):
    def forward(self, x):
        return super().forward(x) + (F.linear(x, self.weight) ** 2).detach()


def test_a_network_that_stops_gradients_is_refused():
    with pytest.raises(UsageError, match="m stops gradients, or brings its own"):
        TorchGraph(parse(compile_module(Stopping(6, 3).eval(), Spec("m", (6,)), search=0).data))


def compiled(module, shape, classes):
    torch.manual_seed(0)
    return parse(compile_module(module().eval(), Spec("net", input=shape, classes=classes, partial=()), search=0).data)


@pytest.mark.parametrize("name", ["lenet", "wrist", "transformer", "resnet8", "odd"])
def test_agrees_with_onnxruntime(name):
    if name == "odd":
        bundle = compiled(Odd, (3, 24), 3)
    elif name == "resnet8":
        options = {"input": (3, 8, 8), "stem": 4, "widths": (4, 8), "blocks": (1, 1)}
        bundle = compiled(lambda: ZOO["resnet20"].make(**options), (3, 8, 8), 10)
    else:
        bundle = compiled(ZOO[name].build, ZOO[name].input, ZOO[name].classes)
    model, graph, rng = Model(bundle, check=False), TorchGraph(bundle), np.random.default_rng(0)
    x = rng.normal(size=(5, *model.input_shape)).astype(np.float32)
    cotangent = rng.normal(size=(5, model.classes)).astype(np.float32)
    start = model.theta0 + 0.01 * rng.normal(size=model.layout.size).astype(np.float32)
    theta = torch.tensor(start, requires_grad=True)
    features, out = graph(theta, torch.tensor(x))
    (slope,) = torch.autograd.grad((out * torch.tensor(cotangent)).sum(), theta)
    wanted, pulled = model.vjp(start, x, cotangent)
    assert features.shape[0] == 5 and features.ndim == 2
    assert np.abs(out.detach().numpy() - wanted).max() < 1e-5 * max(1, np.abs(wanted).max())
    assert np.abs(slope.numpy() - pulled).max() < 2e-5 * np.abs(pulled).max()


def test_features_are_what_goes_into_the_last_linear_layer():
    bundle = compiled(ZOO["mlp"].build, (561,), 6)
    graph, layout = TorchGraph(bundle, dtype=torch.float64), bundle.layout
    theta, x = torch.tensor(bundle.theta0, dtype=torch.float64), torch.randn(7, 561, dtype=torch.float64)
    features, out = graph(theta, x)
    slots = {s.name: theta[s.span].reshape(s.shape) for s in layout.slots}
    assert features.shape == (7, 64)
    assert torch.allclose(features @ slots["head.weight"].T + slots["head.bias"], out)


def test_running_statistics_stay_as_they_are():
    net = lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6, 2))  # noqa: E731
    bundle = compiled(net, (3, 8), 2)
    model, graph = Model(bundle, check=False), TorchGraph(bundle)
    x = np.random.default_rng(1).normal(size=(4, 3, 8)).astype(np.float32)
    out = graph(torch.tensor(model.theta0), torch.tensor(x))[1].numpy()
    assert np.abs(out - model.predict(model.theta0, x)).max() < 1e-5


def test_what_it_cannot_do_is_said_by_name(monkeypatch):
    bundle = compiled(ZOO["mlp"].build, (561,), 6)
    monkeypatch.delitem(OPERATORS, "Gemm")
    with pytest.raises(UsageError, match="cannot differentiate Gemm"):
        TorchGraph(bundle)


def test_it_is_checked_against_the_golden_vectors(monkeypatch):
    bundle = compiled(ZOO["mlp"].build, (561,), 6)
    monkeypatch.setitem(OPERATORS, "Relu", lambda v, a: v[0].abs())
    with pytest.raises(UsageError, match="golden vectors fail on torch"):
        TorchGraph(bundle)
