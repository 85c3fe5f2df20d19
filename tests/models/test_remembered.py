"""What a module keeps in Python from one call to the next: harmless, or refused by its name."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.kept.holders import make_holder
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.calls, self.rate, self.last = 0, 1.0, torch.zeros(())

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


class Counting(Net):
    """Counts, and nothing follows from it; remembers a size, as a cache does."""

    def forward(self, x):
        self.calls += 1
        self.width = x.shape[-1]
        return super().forward(x)


class Warming(Net):
    """Does something else after so many calls."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def forward(self, x):
        self.calls += 1
        return super().forward(x if self.calls < self.after else 2 * x)


class Cooling(Net):
    def forward(self, x):
        self.rate *= 0.99
        return super().forward(x) * self.rate


class Recurring(Net):
    """The state of the last call goes into this one."""

    def forward(self, x):
        made = super().forward(x) + self.last
        self.last = made.detach().mean()
        return made


class Hidden(Net):
    """Counts where nobody looks."""

    def __init__(self):
        super().__init__()
        self.counts = {"calls": 0}

    def forward(self, x):
        self.counts["calls"] += 1
        return super().forward(x) * self.counts["calls"]


class Initialised(Net):
    """Sets a parameter by the first batch that it sees."""

    def __init__(self):
        super().__init__()
        self.scale, self.ready = nn.Parameter(torch.ones(6)), False

    def forward(self, x):
        if not self.ready:
            self.scale.data.copy_(1 / x.detach().std(0, unbiased=False))
            self.ready = True
        return super().forward(x * self.scale)


class Around(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x)


def compile_it(net):
    return compile_module(Around(net).eval(), Spec("net", (6,)), search=0)


def test_a_count_from_which_nothing_follows_is_harmless():
    assert compile_it(Counting()).errors["float64"] < 1e-9


REFUSED = {
    "after three calls": (lambda: Warming(3), r"^part: self\.calls .* changes with each call"),
    "after thousands": (lambda: Warming(5000), r"^part: self\.calls .* changes with each call"),
    "a falling rate": (Cooling, r"^part: self\.rate .* changes with each call"),
    "a hidden count": (Hidden, r"^part: self\.counts in Python changes with each call"),
    "a state": (Recurring, r"^part: self\.last .* changes with each call"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_changes_the_result_is_named(kind):
    make, words = REFUSED[kind]
    with pytest.raises(UnsupportedPattern, match=words):
        compile_it(make())


def test_a_parameter_that_the_first_batch_sets_is_named_and_left_as_it_was():
    net = Initialised()
    with pytest.raises(
        UnsupportedPattern, match=r"^part: parameter scale changes in evaluation; .* by running the module on data"
    ):
        compile_it(net)
    assert (net.scale == 1).all()


class Makers(OrderedDict):
    """Makes what a name stands for at each reading, as libraries do with activations; one cannot be made so."""

    def __getitem__(self, name):
        kind, given = super().__getitem__(name)
        return kind(*given)

    def __setitem__(self, name, value):
        super().__setitem__(name, value if isinstance(value, tuple) else (value, ()))


class Lines(list):
    """A list whose items are others when they are read."""

    def __iter__(self):
        raise RuntimeError("whoever looks at this reads a file")

    def __len__(self):
        return 10**9


MAKERS = Makers(tanh=nn.Tanh, drawn=(nn.Linear, (6, "six")))


class Chosen(Net):
    """An activation that a table of the file makes."""

    def forward(self, x):
        return self.head(MAKERS["tanh"](self.body(x)))


def test_a_container_of_ones_own_is_read_as_it_is():
    before = dict(OrderedDict.items(MAKERS))
    assert compile_it(Chosen()).errors["float64"] < 1e-9
    assert dict(OrderedDict.items(MAKERS)) == before


@pytest.mark.parametrize("value", [Makers(tanh=nn.Tanh, drawn=(nn.Linear, (6, "six"))), Lines([3, 4])])
def test_a_container_of_ones_own_is_put_back_as_it_was(value):
    holder, plain = make_holder(value), type(value).__mro__[1]
    items = holder.read()
    value.clear()
    holder.write(items)
    assert holder.read() == items and plain.__len__(value) == 2
