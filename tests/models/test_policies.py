"""Losses, batch statistics, features and groups, from a torch module to what a device computes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec


def compiled(net, **spec):
    return Model(parse(compile_module(net.eval(), Spec("m", **spec)).data))


def batch_of(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "mean_squared_error", "huber"])
def test_losses_on_numbers(loss):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    model = compiled(net, input=(6,), loss=loss)
    x, y, w = (
        batch_of((7, 6)),
        np.random.default_rng(1).uniform(0, 1, (7, 3)).astype(np.float32),
        np.full(7, 0.3, np.float32),
    )
    of = {"binary_cross_entropy": F.binary_cross_entropy_with_logits, "huber": F.huber_loss}.get(loss, F.mse_loss)
    y = y * 6 if loss == "huber" else y  # some beyond its bend
    each = of(net(torch.from_numpy(x)), torch.from_numpy(y), reduction="none").mean(1)
    want = (torch.from_numpy(w) * each).sum()
    flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(want, list(net.parameters()))]).numpy()
    got, grad = model.loss_grad(model.theta0, x, y, w)
    assert got == pytest.approx(float(want.detach()), rel=1e-5) and model.classes == 0
    np.testing.assert_allclose(grad, flat, atol=1e-6)
    sums = model.score(x, y)(model.theta0)
    assert sums["loss"] == pytest.approx(float(each.detach().sum()), rel=1e-5) and "correct" not in sums
    with pytest.raises(UsageError, match=r"y: expected float \(7, 3\)"):
        model.loss_grad(model.theta0, x, y[:, :2])


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)], ids=str)
def test_probabilities_of_each_position(shape):
    torch.manual_seed(0)
    count = 3 * int(np.prod(shape))
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, count), nn.Unflatten(1, (3, *shape)))
    model = compiled(net, input=(6,), loss="soft_cross_entropy")
    x, w = batch_of((7, 6)), np.random.default_rng(2).uniform(0, 1, 7).astype(np.float32)
    y = np.random.default_rng(1).dirichlet([0.5] * 3, (7, *shape)).astype(np.float32)
    y = np.ascontiguousarray(np.moveaxis(y, -1, 1))
    if shape:
        y[:2, :, 0] = 0  # positions that do not count
    each = F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y), reduction="none").reshape(7, -1).mean(1)
    want = (torch.from_numpy(w) * each).sum()
    flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(want, list(net.parameters()))]).numpy()
    got, grad = model.loss_grad(model.theta0, x, y, w)
    assert got == pytest.approx(float(want.detach()), rel=1e-5) and model.classes == 0
    np.testing.assert_allclose(grad, flat, atol=1e-6)
    assert model.score(x, y)(model.theta0)["loss"] == pytest.approx(float(each.detach().sum()), rel=1e-5)
    for wrong in (-y, 2 * y):
        with pytest.raises(UsageError, match=r"y: .* expected probabilities"):
            model.loss_grad(model.theta0, x, wrong, w)


def bn_net():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4, momentum=0.3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
    )


def bn_of_rows():
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, momentum=0.3), nn.ReLU(), nn.Linear(4, 3))


def bn_of_images():
    layers = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, eps=1e-3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, 3)
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("make", "shape", "mean"),
    [(bn_net, (2, 8), 0), (bn_of_rows, (5,), 0), (bn_of_images, (2, 5, 5), 0), (bn_net, (2, 8), 50)],
)
def test_statistics_of_the_batch_are_torchs(make, shape, mean):
    torch.manual_seed(3)
    net = make().eval()
    model = compiled(net, input=shape, norm="batch")
    x, y = batch_of((6, *shape)) + np.float32(mean), np.arange(6) % 3
    loss, grad, buffers = model.loss_grad_buffers(model.theta0, x, y)
    net.train()
    want = F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
    flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(want, list(net.parameters()))]).numpy()
    assert loss == pytest.approx(float(want.detach()), rel=1e-5)
    np.testing.assert_allclose(grad, flat, atol=1e-5)
    kept = torch.cat([net[1].running_mean, net[1].running_var]).numpy()
    np.testing.assert_allclose(buffers, kept, rtol=1e-5, atol=1e-6)
    net.eval()
    np.testing.assert_allclose(model.predict(model.theta0, x, buffers), net(torch.from_numpy(x)).detach(), atol=1e-5)


def test_frozen_statistics_stay_as_they_are():
    net = bn_net()
    net[1].running_mean.copy_(torch.tensor([0.1, -0.2, 0.3, 0.0]))
    model = compiled(net, input=(2, 8))
    x, y = batch_of((6, 2, 8)), np.arange(6) % 3
    want = F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
    flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(want, list(net.parameters()))]).numpy()
    np.testing.assert_allclose(model.loss_grad(model.theta0, x, y)[1], flat, atol=1e-5)
    with pytest.raises(UsageError, match="frozen"):
        model.loss_grad_buffers(model.theta0, x, y)
    assert model.layout.size == sum(p.numel() for p in net.parameters()) and model.buffers0.size == 8


def test_features_of_a_named_layer():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.Sequential(nn.Linear(5, 4), nn.Tanh()), nn.Linear(4, 3))
    model = compiled(net, input=(6,), features="1")
    x = batch_of((9, 6))
    np.testing.assert_allclose(model.features(model.theta0, x), net[:2](torch.from_numpy(x)).detach(), atol=1e-6)
    cotangent = batch_of((9, 4))
    out, grad = model.features_vjp(model.theta0, x, cotangent)
    (net[:2](torch.from_numpy(x)) * torch.from_numpy(cotangent)).sum().backward()
    expected = np.concatenate([np.zeros(p.numel()) if p.grad is None else p.grad.ravel() for p in net.parameters()])
    np.testing.assert_allclose(out, model.features(model.theta0, x), atol=1e-6)
    np.testing.assert_allclose(grad, expected, atol=1e-5)
    assert model.features_shape == (4,)
    with pytest.raises(UsageError, match="offers no features"):
        _ = compiled(net, input=(6,)).features_shape


def test_groups_by_prefix_and_their_gradients():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    model = compiled(net, input=(6,), groups={"shared": "0,2", "own": "4"})
    assert sorted(model.groups) == ["own", "shared"]
    x, y = batch_of((5, 6)), np.arange(5) % 3
    whole = model.loss_grad(model.theta0, x, y)[1]
    np.testing.assert_array_equal(model.loss_grad(model.theta0, x, y, group="own")[1], whole[-15:])
    np.testing.assert_array_equal(model.loss_grad(model.theta0, x, y, group="shared")[1], whole[:-15])


def test_integers_for_an_embedding():
    torch.manual_seed(0)
    model = compiled(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3)), input=(5,), below=9)
    x = np.random.default_rng(0).integers(0, 9, (4, 5))
    assert model.loss_grad(model.theta0, x, np.zeros(4, np.int64))[1].shape == (model.layout.size,)
    with pytest.raises(UsageError, match="x: 9 is out of range, expected 0 to 8"):
        model.predict(model.theta0, x + 1 - x.min() + (8 - x.max() + x.min()))
