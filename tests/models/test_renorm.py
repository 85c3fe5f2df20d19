"""Batch renormalisation: what it computes, by hand, and that it lies between batch and running statistics."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.convolutions import batch_norm


def make_net(mean: float, variance: float) -> nn.Sequential:
    torch.manual_seed(3)
    layers = nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), nn.Tanh(), nn.Flatten(), nn.Linear(32, 3)
    layers[1].running_mean.fill_(mean)
    layers[1].running_var.fill_(variance)
    nn.init.uniform_(layers[1].weight)
    return nn.Sequential(*layers)


def compiled(net: nn.Module, norm: str) -> Model:
    return Model(parse(compile_module(net.eval(), Spec("m", (2, 8), norm=norm)).data))


def gradient_of(net: nn.Module, value: torch.Tensor) -> np.ndarray:
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, list(net.parameters()))]).numpy()


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(0)
    return torch.from_numpy(random.standard_normal((3, 2, 8)).astype(np.float32)), torch.tensor([0, 2, 1])


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {norm: compiled(make_net(0.2, 0.5), norm) for norm in ("renorm", "running")}


def test_within_its_bounds_a_batch_gives_what_evaluation_gives(models, batch):
    """r and d undo the batch's statistics, so the loss is that of evaluation, whatever the batch."""
    net, (x, y) = make_net(0.2, 0.5).eval(), batch
    model, running = models["renorm"], models["running"]
    want = float(F.cross_entropy(net(x), y).detach())
    assert model.loss_grad(model.theta0, x.numpy(), y.numpy())[0] == pytest.approx(want, rel=1e-5)
    assert abs(running.loss_grad(running.theta0, x.numpy(), y.numpy())[0] - want) > 1e-3


def test_beyond_its_bounds_it_is_the_batch_scaled_and_moved_by_them(batch):
    """Running statistics far away: r = 1/3 and d = -5 for every channel, which autograd takes for constants."""
    net, (x, y) = make_net(1000.0, 100.0), batch
    model = compiled(net, "renorm")
    norm = net[1]
    h = net[0](x)
    known = (h - h.mean((0, 2), keepdim=True)) / (h.var((0, 2), correction=0, keepdim=True) + norm.eps).sqrt()
    z = net[2:]((known / 3 - 5) * norm.weight[None, :, None] + norm.bias[None, :, None])
    want = F.cross_entropy(z, y)
    loss, grad = model.loss_grad(model.theta0, x.numpy(), y.numpy())
    assert loss == pytest.approx(float(want.detach()), rel=1e-5)
    trained = np.concatenate([grad[s.span] for s in model.layout.slots if "running" not in s.name])
    np.testing.assert_allclose(trained, gradient_of(net, want), atol=2e-6)


def test_statistics_move_as_in_the_mode_running(models, batch):
    x, y = batch
    pulls = []
    for model in models.values():
        grad = model.loss_grad(model.theta0, x.numpy(), y.numpy())[1]
        pulls.append(np.concatenate([grad[s.span] for s in model.layout.slots if "running" in s.name]))
    np.testing.assert_allclose(pulls[0], pulls[1], rtol=1e-5)
    assert np.abs(pulls[0]).min() > 0


@pytest.mark.parametrize("name", ["R_MAX", "D_MAX"])
def test_a_wrong_bound_is_caught(monkeypatch, name):
    monkeypatch.setattr(batch_norm, name, 1.5)
    with pytest.raises(ParityError):
        compile_module(make_net(50.0, 20.0).eval(), Spec("m", (2, 8), norm="renorm"))
