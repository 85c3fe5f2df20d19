"""Noise that a module adds in training, as the samples of a variational autoencoder: devices draw it, as masks."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.dropout import NOISE, DropSite, draw_masks, list_normal_numbers
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.modules.randomness import Draw, fix_draws
from edge_sdk.models.ir.errors import TrainModeExport
from edge_sdk.models.ir.specification.spec import Spec

DRAWN = {
    "randn_like": torch.randn_like,
    "randn": lambda m: torch.randn(m.shape, dtype=m.dtype),
    "normal_": lambda m: torch.empty_like(m).normal_(0, 2),
}


class Sampling(nn.Module):
    """A code that is a sample in training, and its mean in evaluation."""

    def __init__(self, drawn):
        super().__init__()
        self.body, self.drop, self.drawn = nn.Linear(8, 6), nn.Dropout(0.25), drawn
        self.mean, self.spread, self.head = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = self.drop(torch.tanh(self.body(x)))
        code = self.mean(h)
        if self.training:
            code = code + self.drawn(code) * torch.exp(self.spread(h) / 2)
        return self.head(code)


@pytest.mark.parametrize("name", DRAWN)
def test_a_device_trains_as_torch_with_the_same_noise(name):
    torch.manual_seed(1)
    net = Sampling(DRAWN[name])
    model = Model(parse(compile_module(net.eval(), Spec("net", (8,), dropout="keep"), search=2).data))
    x, y, theta = torch.randn(6, 8), torch.arange(6) % 3, model.theta0.copy()
    first, second = model.drop_sites
    assert (first.columns, second.columns, second.probability) == (6, 4, NOISE)
    draws = [Draw("drop", "Dropout", 0.75, (None, 6)), Draw("", "Sampling", None, (None, 4))]
    for step in range(4):
        masks = torch.from_numpy(draw_masks(model.drop_sites, 6, np.random.default_rng(step)))
        theta -= 0.3 * model.loss_grad(theta, x.numpy(), y.numpy(), random=np.random.default_rng(step))[1]
        net.train().zero_grad()
        with fix_draws(draws, masks):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.3 * p.grad
    want = np.concatenate([p.detach().numpy().ravel() for p in net.parameters()])
    assert np.abs(theta - want).max() < 1e-5
    assert np.abs(model.predict(theta, x.numpy()) - net.eval()(x).detach().numpy()).max() < 1e-5


def test_noise_is_normal_and_the_same_for_the_same_step():
    sites = [DropSite("a", 3, 0.5, 2.0, 1.0), DropSite("b", 50, NOISE, 1.0, 0.0)]
    one, two = (draw_masks(sites, 2000, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(one, two) and set(np.unique(one[:, :3])) == {0, 2}
    for numbers, most in ((one[:, 3:], 0.15), (list_normal_numbers(), 1e-3)):
        moments = [(numbers.astype(np.float64) ** k).mean() for k in (1, 2, 3, 4)]
        assert np.allclose(moments, [0, 1, 0, 3], atol=most)


def test_noise_in_evaluation_is_left_out_of_predictions():
    class Jittered(nn.Sequential):
        def forward(self, x):
            return super().forward(x + torch.randn_like(x))

    torch.manual_seed(1)
    net = Jittered(nn.Linear(8, 3)).eval()
    model = Model(parse(compile_module(net, Spec("net", (8,), dropout="keep"), search=0).data))
    x = torch.randn(4, 8)
    assert np.allclose(model.predict(model.theta0, x.numpy()), net[0](x).detach().numpy(), atol=1e-6)


def test_noise_needs_a_decision_and_values_for_each_sample():
    net = Sampling(torch.randn_like)
    net.drop = nn.Identity()
    with pytest.raises(TrainModeExport, match=r"the module: Sampling, noise, .*--dropout keep"):
        compile_module(net.eval(), Spec("net", (8,)), search=0)
    shared = Sampling(lambda m: torch.randn(4))
    with pytest.raises(TrainModeExport, match="each sample must have values of its own"):
        compile_module(shared.eval(), Spec("net", (8,), dropout="keep"), search=0)


def test_another_mean_in_training_is_another_result():
    with pytest.raises(TrainModeExport, match="head: does something else in training"):
        compile_module(Sampling(lambda m: torch.randn_like(m) + 1).eval(), Spec("net", (8,), dropout="keep"), search=0)
