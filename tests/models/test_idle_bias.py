"""A bias in front of a norm that takes the mean of its channel away: it moves nothing, and costs digits."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.foreign_rounding import measure_draw
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.ir.specification.spec import Spec

SMALL = Case("inputs times 1e-3", 102, 8, 1e-3)


def make_net(layer, norm, features):
    torch.manual_seed(3)
    net = nn.Sequential(layer, norm, nn.Tanh(), nn.Flatten(), nn.Linear(features, 3))
    with torch.no_grad():
        net[0].bias.fill_(3.0)
    return net.eval()


CHANNELS = {
    "a convolution": lambda: (nn.Conv1d(2, 8, 3, padding=1), nn.InstanceNorm1d(8, affine=True), 8 * 64, (2, 64)),
    "a transposed one": lambda: (nn.ConvTranspose2d(2, 4, 2, 2), nn.InstanceNorm2d(4), 4 * 64, (2, 4, 4)),
    "a group for each channel": lambda: (nn.Conv2d(2, 4, 3), nn.GroupNorm(4, 4), 4 * 36, (2, 8, 8)),
}
BATCHES = {
    "a convolution": lambda: (nn.Conv1d(2, 8, 3), nn.BatchNorm1d(8), 8 * 62, (2, 64)),
    "a linear layer": lambda: (nn.Linear(16, 8), nn.BatchNorm1d(8), 8, (16,)),
}


def compile_to_model(tmp_path, net, **settings):
    made = compile_module(net, Spec("m", **settings))
    made.save(tmp_path / "m.bundle")
    return made, Model(tmp_path / "m.bundle")


def find_bias(model):
    return next(s for s in model.layout.slots if s.name == "0.bias")


@pytest.mark.parametrize("name", CHANNELS)
def test_small_values_over_a_large_bias_keep_their_digits(tmp_path, name):
    layer, norm, features, shape = CHANNELS[name]()
    made, model = compile_to_model(tmp_path, make_net(layer, norm, features), input=shape)
    ours, theirs = measure_draw(model, made.truth, SMALL, (-3,))
    assert ours < 3e-6 < theirs


@pytest.mark.parametrize("norm", ["batch", "running"])
@pytest.mark.parametrize("name", BATCHES)
def test_so_they_do_where_the_batch_has_the_statistics(tmp_path, name, norm):
    layer, normal, features, shape = BATCHES[name]()
    made, model = compile_to_model(tmp_path, make_net(layer, normal, features), input=shape, norm=norm)
    ours, theirs = measure_draw(model, made.truth, SMALL, (-3,))
    assert ours < 3e-6 < theirs


def test_corrections_towards_running_statistics_count_the_bias():
    """The gate refuses a bundle without it: the bias is three deviations of the running statistics."""
    net = make_net(nn.Conv1d(2, 8, 3), nn.BatchNorm1d(8), 8 * 14)
    assert compile_module(net, Spec("m", (2, 16), norm="renorm")).errors["float64"] < 1e-8


@pytest.mark.parametrize("name", CHANNELS)
def test_the_bias_has_no_gradient_at_all(tmp_path, name):
    layer, norm, features, shape = CHANNELS[name]()
    _, model = compile_to_model(tmp_path, make_net(layer, norm, features), input=shape)
    x = np.random.default_rng(0).standard_normal((4, *shape)).astype(np.float32)
    _, grad = model.grad_fn(x, np.arange(4) % 3)(model.theta0)
    assert np.all(grad[find_bias(model).span] == 0)
    assert np.abs(grad).max() > 0


class Twice(nn.Module):
    """The values before a norm are read beside it, too."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(2, 8, 3, padding=1), nn.InstanceNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.conv(x)
        return self.head((torch.tanh(self.norm(h)) + h).mean(2))


def test_a_bias_that_something_else_reads_stays(tmp_path):
    torch.manual_seed(5)
    _, model = compile_to_model(tmp_path, Twice().eval(), input=(2, 16))
    x = np.random.default_rng(0).standard_normal((4, 2, 16)).astype(np.float32)
    _, grad = model.grad_fn(x, np.arange(4) % 3)(model.theta0)
    slot = next(s for s in model.layout.slots if s.name == "conv.bias")
    assert np.abs(grad[slot.span]).min() > 0


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 8), nn.BatchNorm1d(8)], ids=["few groups", "fixed statistics"])
def test_a_bias_that_moves_something_stays(tmp_path, norm):
    net = make_net(nn.Conv1d(2, 8, 3, padding=1), norm, 8 * 16)
    with torch.no_grad():
        net[0].bias.copy_(torch.arange(8) / 8)
    _, model = compile_to_model(tmp_path, net, input=(2, 16))
    x = np.random.default_rng(0).standard_normal((4, 2, 16)).astype(np.float32)
    _, grad = model.grad_fn(x, np.arange(4) % 3)(model.theta0)
    assert np.abs(grad[find_bias(model).span]).min() > 0


def test_features_before_the_norm_have_the_bias(tmp_path):
    net = make_net(nn.Conv1d(2, 8, 3, padding=1), nn.InstanceNorm1d(8), 8 * 16)
    _, model = compile_to_model(tmp_path, net, input=(2, 16), features="0")
    x = np.random.default_rng(0).standard_normal((4, 2, 16)).astype(np.float32)
    with torch.no_grad():
        want = net[0](torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(model.features(model.theta0, x), want, rtol=1e-5, atol=1e-5)
