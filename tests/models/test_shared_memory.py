"""Parameters that share their memory with another tensor: torch's optimiser would change both."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.bundle.split import SplitNet, SplitSpec, compile_split
from edge_sdk.models.frontend.kept.shared_memory import refuse_shared_memory
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


def tie_by_data(net):
    net[2].weight = nn.Parameter(net[1].weight.data)


def tie_turned(net):
    net[2].weight = nn.Parameter(net[1].weight.data.t())


def freeze_a_twin(net):
    net[2].weight = nn.Parameter(net[1].weight.data, requires_grad=False)


def keep_a_buffer(net):
    net.register_buffer("start", net[1].weight.detach())


def keep_rows_in_a_list(net):
    net.start = {"rows": [net[1].weight.detach()[2:4]]}


def keep_an_array(net):
    net.start = net[1].weight.detach().numpy()


def keep_around_a_function(net):
    start = net[1].weight.data
    net[0].forward = lambda x: torch.tanh(x) * start.mean()


SHARED = [tie_by_data, tie_turned, freeze_a_twin, keep_a_buffer, keep_rows_in_a_list, keep_an_array]
SHARED.append(keep_around_a_function)


def tie(net):
    net[2].weight = net[1].weight
    net.known = [net[1].weight]


def copy_it(net):
    net.start, net.known = net[1].weight.detach().clone(), net[1].weight.detach().numpy().copy()


def take_columns_of_one(net):
    whole = torch.randn(8, 16)
    net[1].weight, net[2].weight = nn.Parameter(whole[:, ::2]), nn.Parameter(whole[:, 1::2])


def freeze_both(net):
    tie_by_data(net)
    net[1:3].requires_grad_(False)


def make(change):
    net = nn.Sequential(nn.Tanh(), nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), nn.Linear(8, 3))
    change(net)
    return net.eval()


@pytest.mark.parametrize("change", SHARED)
def test_memory_that_a_step_would_change_elsewhere_is_refused_by_name(change):
    with pytest.raises(UnsupportedPattern, match=r"^1\.weight: .*memory of .*\.clone\(\)"):
        compile_module(make(change), Spec("n", (8,)))


def test_a_step_of_torch_changes_both():
    net = make(tie_by_data)
    net(torch.ones(2, 8)).sum().backward()
    torch.optim.SGD([net[1].weight], 0.1).step()
    assert torch.equal(net[1].weight, net[2].weight)


@pytest.mark.parametrize("change", [tie, copy_it, take_columns_of_one, freeze_both])
def test_what_no_step_changes_twice_is_none_of_it(change):
    refuse_shared_memory(make(change))


def test_towers_that_share_their_memory():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = nn.Parameter(first.weight.data)
    net = SplitNet({"a": first, "b": second}, head=nn.Linear(8, 2))
    spec = SplitSpec("s", inputs={"a": (4,), "b": (4,)}, parties={"one": ("head", "a"), "two": ("b",)})
    with pytest.raises(UnsupportedPattern, match=r"the memory of "):
        compile_split(net.eval(), spec)
