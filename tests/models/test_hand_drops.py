"""Dropout that modules write by hand: uniform numbers that are compared with one number, and zeros and ones."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.dropout import draw_masks
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.modules.randomness import find_draws, fix_draws
from edge_sdk.models.ir.errors import TrainModeExport
from edge_sdk.models.ir.specification.spec import Spec


class Net(nn.Module):
    """A function between two layers, in training only or always."""

    def __init__(self, drop, always=False):
        super().__init__()
        self.body, self.head, self.drop, self.always = nn.Linear(8, 6), nn.Linear(6, 3), drop, always

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return self.head(self.drop(h) if self.training or self.always else h)


def divide(h, mask):
    return h * mask / mask.mean(1, keepdim=True)


def uniform(h, *shape):
    return torch.rand((h.shape[0], *shape), dtype=h.dtype)


DROPS = {
    "truths times values": lambda h: h * (torch.rand(h.shape) < 0.75) / 0.75,
    "as S4 writes it": lambda h: h * (torch.rand(h.shape[0], 1) < 0.75) * (1.0 / 0.75),
    "numbers": lambda h: h / 0.75 * (torch.rand_like(h) >= 0.25).float(),
    "another type": lambda h: h * (torch.rand(h.shape[0], 1) < 0.75).to(h.dtype).div(0.75),
    "stochastic depth": lambda h: h.div(0.75) * (0.75 + uniform(h, 1)).floor_(),
    "stochastic depth, not in place": lambda h: h.div(0.75) * torch.floor(0.75 + uniform(h, 1)),
    "a choice": lambda h: torch.where(torch.rand_like(h) > 0.25, h / 0.75, 0.0),
    "a choice of two values": lambda h: torch.where((torch.rand_like(h) < 0.75)[:, None][:, 0], 2 * h, -2 * h),
    "what is hidden": lambda h: h.masked_fill(torch.rand_like(h) < 0.25, 0.0) / 0.75,
    "what is not hidden": lambda h: h.masked_fill(~(torch.empty_like(h).uniform_() < 0.75), 0.0) / 0.75,
    "zeros and ones": lambda h: h * torch.bernoulli(torch.full_like(h, 0.75)) / 0.75,
    "zeros and ones in place": lambda h: h * torch.empty_like(h).bernoulli_(0.75) / 0.75,
    "a mean over what is kept": lambda h: (lambda m: h * m / m.mean(1, keepdim=True))(
        torch.empty_like(h).bernoulli_(0.75)
    ),
}


@pytest.mark.parametrize("name", DROPS)
def test_a_device_trains_as_torch_with_the_same_masks(name):
    torch.manual_seed(1)
    net = Net(DROPS[name])
    x, y = torch.randn(6, 8), torch.arange(6) % 3
    model = Model(parse(compile_module(net.eval(), Spec("net", (8,), dropout="keep"), search=2).data))
    (site,), draws, theta = model.drop_sites, find_draws(net, [x]), model.theta0.copy()
    assert site.probability in (0.75, 0.25) and site.columns in (1, 6)
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


def use_twice(h):
    numbers = torch.rand_like(h)
    return h * (numbers < 0.9) * (numbers > 0.1) / 0.8


def repeat_a_mask(h):
    state = torch.get_rng_state()
    h = F.dropout(h, 0.25)
    torch.set_rng_state(state)
    return F.dropout(h, 0.25)


def keep_a_seed(h):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return F.dropout(h, 0.25)


REFUSED = {
    "numbers as they are": (
        lambda h: h + torch.rand_like(h) - 0.5,
        "uniform ones, which are not compared with one number",
    ),
    "compared with values": (lambda h: h * (torch.rand_like(h) < h), "uniform ones"),
    "compared twice": (use_twice, "uniform ones, .* once"),
    "one for all": (lambda h: h * (torch.rand(()) < 0.75) / 0.75, "each sample must have values of its own"),
    "a count": (
        lambda h: h + 0 * (torch.rand_like(h) < 0.75).sum(1, keepdim=True),
        "sum of what is drawn cannot be kept",
    ),
    "the same mask twice": (repeat_a_mask, "the same ones again and again, of a generator that it sets"),
    "a seed of its own": (keep_a_seed, "the same ones again and again, of a generator that it sets"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_devices_cannot_draw_is_refused(name):
    drop, told = REFUSED[name]
    with pytest.raises(TrainModeExport, match=told):
        compile_module(Net(drop).eval(), Spec("net", (8,), dropout="keep"), search=0)


@pytest.mark.parametrize("dropout", ["keep", "off"])
def test_zeros_and_ones_in_evaluation_are_refused_in_words(dropout):
    with pytest.raises(TrainModeExport, match=r"draws random numbers \(rand_like\) in evaluation, too"):
        compile_module(Net(DROPS["numbers"], True).eval(), Spec("net", (8,), dropout=dropout), search=0)


@pytest.mark.parametrize("dropout", ["off", "keep"])
def test_rrelu_is_in_evaluation_what_torch_makes_of_it(dropout):
    net = nn.Sequential(nn.Linear(8, 6), nn.RReLU(0.1, 0.5), nn.Dropout(0.25), nn.Linear(6, 3)).eval()
    if dropout == "keep":
        with pytest.raises(TrainModeExport, match="1: RReLU draws random numbers"):
            compile_module(net, Spec("net", (8,), dropout=dropout), search=0)
        return
    model = Model(parse(compile_module(net, Spec("net", (8,), dropout=dropout), search=2).data))
    x = torch.randn(4, 8)
    assert np.abs(model.predict(model.theta0, x.numpy()) - net(x).detach().numpy()).max() < 1e-6
