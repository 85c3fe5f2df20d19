"""Values that a module sets by a mask or by places of its own for each sample, as in `z[z < 0] = 0`."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec


class Net(nn.Module):
    """A layer, something set in its output (batch, 6, 8), and a head."""

    def __init__(self, change):
        super().__init__()
        self.body, self.value, self.head = nn.Linear(5, 8), nn.Parameter(torch.linspace(-1, 1, 8)), nn.Linear(8, 3)
        self.change = change

    def forward(self, x):
        z = self.body(x).clone()
        return self.head(self.change(z, self.value).tanh().mean(1))


def rows_of(z, axes=1):
    return torch.arange(z.shape[0]).reshape(-1, *[1] * axes)


def below_zero(z, value):
    z[z < 0] = 0
    return z


def positions(z, value):
    z[z.mean(-1) > 0] = value
    return z


def samples(z, value):
    z[z.mean((1, 2)) > 0] = value[0]
    return z


def columns(z, value):
    z[:, torch.tensor([True, False, True, False, False, True])] = value
    return z


def seen_through_a_view(z, value):
    part = z[:, :3]
    part[part > 0.2] = 0.2
    return z


def added(z, value):
    return z.index_put((z > 0,), value[1], accumulate=True)


def places(z, value):
    top = z.mean(-1).topk(2)[1]
    z[rows_of(z), top] = torch.tanh(z[rows_of(z), top]) + value
    return z


def one_value_in_places(z, value):
    z[rows_of(z), z.mean(-1).topk(2)[1] - 6] = value  # negative places count from the end
    return z


def added_in_places(z, value):
    top = z.mean(-1).topk(2)[1]
    return z.index_put((rows_of(z), torch.cat([top, top], -1)), value, accumulate=True)


def by_heads(z, value):
    heads = z.reshape(z.shape[0], 6, 2, 4).transpose(1, 2)
    top, of = heads.norm(dim=-1).topk(3)[1], torch.arange(2)[None, :, None]
    found = heads[rows_of(z, 2), of, top].softmax(-1)
    mean = heads.mean(2, keepdim=True).expand(-1, -1, 6, -1).clone()
    mean[rows_of(z, 2), of, top] = found
    return mean.transpose(1, 2).reshape(z.shape[0], 6, 8)


def a_place_that_is_known(z, value):
    z[torch.arange(z.shape[0]), 2] = value
    return z


CHANGES = [
    below_zero, positions, samples, columns, seen_through_a_view, added,
    places, one_value_in_places, added_in_places, by_heads, a_place_that_is_known,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_the_gradient_of_a_device_is_torchs(change):
    torch.manual_seed(1)
    net = Net(change).eval()
    model = Model(parse(compile_module(net, Spec("net", (6, 5)), search=4).data))
    x = np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32)
    y = np.arange(4) % 3
    whole = net.double()
    nn.functional.cross_entropy(whole(torch.from_numpy(x).double()), torch.from_numpy(y)).backward()
    parameters = dict(whole.named_parameters())
    want = np.concatenate(
        [np.zeros(s.size) if (g := parameters[s.name].grad) is None else g.numpy().ravel() for s in model.layout.slots]
    )
    found = model.loss_grad(model.theta0, x, y)[1]
    assert np.abs(found - want).max() <= 1e-5 * np.abs(want).max()


def chosen_by_values(z, value):
    z[z > 0] = z[z > 0] ** 2
    return z


def test_values_read_by_a_mask_are_refused_with_the_way_out():
    with pytest.raises(CompileError, match="where"):
        compile_module(Net(chosen_by_values).eval(), Spec("net", (6, 5)))
