"""Constants that are nearly 0 or nearly 1 stay in a bundle: the exporter's rewriter takes them for nothing."""

import contextlib

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.tracing import export
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.spec import Spec


class Shares(nn.Module):
    """Features as shares of their sum, which is 0 where nothing is active."""

    def __init__(self, eps: float):
        super().__init__()
        self.body, self.head, self.eps = nn.Conv1d(2, 4, 3, bias=False), nn.Linear(4, 3), eps

    def forward(self, x):
        z = F.relu(self.body(x)).mean(-1)
        return self.head(z / (z.sum(1, keepdim=True) + self.eps))


class Entropy(nn.Module):
    """p log p behind a norm, whose probabilities become 0 in float32 with large parameters only."""

    def __init__(self, eps: float):
        super().__init__()
        self.norm, self.body, self.head, self.eps = nn.LayerNorm(16), nn.Linear(16, 8), nn.Linear(8, 3), eps

    def forward(self, x):
        p = self.body(self.norm(x.mean(1))).softmax(-1)
        return self.head(p * torch.log(p + self.eps))


class Nearly(nn.Module):
    """A factor of nearly 1, and a summand of nearly 0."""

    def __init__(self, eps: float):
        super().__init__()
        self.head, self.eps = nn.Linear(16, 3), eps

    def forward(self, x):
        return self.head(x.mean(1)) * (1 + self.eps) - self.eps


@pytest.mark.parametrize("eps", [1e-8, 1e-10, 1e-12, 5e-6])
@pytest.mark.parametrize("kind", [Shares, Entropy, Nearly])
def test_gradients_are_torchs_where_they_count(kind, eps):
    torch.manual_seed(1)
    net = kind(eps).eval()
    model = Model(parse(compile_module(net, Spec("net", (2, 16)), search=0).data))
    whole, y = net.double(), np.arange(3)
    for scale, parameters in ((1.0, 1.0), (0.0, 1.0), (1.0, 300.0)):
        x = (scale * np.random.default_rng(0).standard_normal((3, 2, 16))).astype(np.float32)
        theta = (parameters * model.theta0).astype(np.float32)
        state = {
            s.name: torch.from_numpy(theta[s.span].reshape(s.shape)).double().requires_grad_()
            for s in model.layout.slots
        }
        loss = F.cross_entropy(
            torch.func.functional_call(whole, state, torch.from_numpy(x).double()), torch.from_numpy(y)
        )
        want = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(state.values()))]).numpy()
        found = model.loss_grad(theta, x, y)[1]
        assert np.isfinite(found).all()
        assert np.abs(found - want).max() <= 2e-5 * max(np.abs(want).max(), 1e-6)


@pytest.mark.parametrize(("eps", "operators"), [(0.0, []), (5e-6, ["Mul", "Sub"])])
def test_only_what_does_nothing_is_left_out(eps, operators):
    made = parse(compile_module(Nearly(eps).eval(), Spec("net", (2, 16)), search=0).data)
    graph = onnx.load_from_string(bytes(made.parts["predict.onnx"])).graph
    assert [n.op_type for n in graph.node if n.op_type in ("Add", "Sub", "Mul")] == operators


@pytest.mark.parametrize("eps", [1e-8, 1e-12])
def test_the_gate_looks_where_such_a_constant_counts(monkeypatch, eps):
    monkeypatch.setattr(export, "keep_small_constants", contextlib.nullcontext)
    torch.manual_seed(1)
    with pytest.raises(ParityError, match="parameters times"):
        compile_module(Entropy(eps).eval(), Spec("net", (2, 16)))
