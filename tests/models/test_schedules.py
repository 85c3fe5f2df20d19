"""Dropout and noise that a module changes as it trains: a device would go on with what it was compiled with."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


class Net(nn.Module):
    """Something random between two layers, and what the module keeps of it."""

    def __init__(self, change):
        super().__init__()
        self.body, self.head, self.change, self.count = nn.Linear(8, 6), nn.Linear(6, 3), change, 0
        self.register_buffer("kept", torch.zeros(()))

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return self.head(self.change(self, h) if self.training else h)


def anneal_noise(net, h):
    h = h + 0.1 * torch.exp(-0.1 * net.kept) * torch.randn_like(h)
    net.kept += 1
    return h


def measure_noise(net, h):
    noise = torch.randn_like(h)
    net.kept.lerp_((noise * noise).mean(), 0.1)
    return h + noise * net.kept


def raise_dropout(net, h):
    h = F.dropout(h, min(0.5, 0.1 + net.count // 50 * 0.1))
    net.count += 1
    return h


def read_a_table(net, h):
    h = F.dropout(h, (0.1, 0.1, 0.2, 0.3, 0.4)[net.count])
    net.count += net.count < 4
    return h


CHANGES = {
    anneal_noise: "buffer kept",
    measure_noise: "buffer kept",
    raise_dropout: "self.count in Python",
    read_a_table: "self.count in Python",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_schedule_is_refused(change):
    with pytest.raises(UnsupportedPattern, match=f"the module: {CHANGES[change]} changes in training"):
        compile_module(Net(change).eval(), Spec("net", (8,), dropout="keep"), search=0)


@pytest.mark.parametrize("change", [anneal_noise, raise_dropout])
def test_without_what_is_drawn_there_is_no_schedule(change):
    compile_module(Net(change).eval(), Spec("net", (8,), dropout="off"), search=0)


def test_what_is_only_kept_of_a_mask_is_no_schedule():
    def keep(net, h):
        h = F.dropout(h, 0.25)
        net.kept, net.count = (h == 0).float().mean(), net.count + 1
        return h

    made = compile_module(Net(keep).eval(), Spec("net", (8,), dropout="keep"), search=0)
    assert len(Model(parse(made.data)).drop_sites) == 1
