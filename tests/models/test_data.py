"""`.data` of a tensor: a gradient stops there; writing into it is refused with its layer."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.GRU(6, 4, batch_first=True), nn.Linear(4, 3)
        self.register_buffer("gain", torch.full((6,), 2.0))

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class FirstState(Net):
    """A state of zeros, of the kind and place of the parameters."""

    def forward(self, x):
        like = next(self.parameters()).data
        return self.head(self.body(x, like.new_zeros(1, x.shape[0], 4))[0][:, -1])


class Sizes(Net):
    def forward(self, x):
        state = torch.zeros(1, x.data.size(0), 4).type_as(self.head.weight.data)
        return self.head(self.body(x, state)[0][:, -1])


class Samples(Net):
    def forward(self, x):
        return super().forward((x - x.data.mean(1, keepdim=True)) * self.gain.data)


class Value(Net):
    def forward(self, x):
        return super().forward(x) * self.head.weight.data.norm()


class Clamped(Net):
    def forward(self, x):
        self.head.weight.data.clamp_(-0.1, 0.1)
        return super().forward(x)


class Wide(Net):
    """Clamps what is within the bounds now, and would not be after a few steps."""

    def forward(self, x):
        self.head.weight.data.clamp_(-10, 10)
        return super().forward(x)


class Set(Net):
    def forward(self, x):
        self.head.weight.data = self.head.weight.clamp(-0.1, 0.1)
        return super().forward(x)


class Copied(Net):
    def forward(self, x):
        with torch.no_grad():
            self.head.weight.copy_(self.head.weight / 2)
        return super().forward(x)


class Around(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x)


def compile_it(kind):
    torch.manual_seed(1)
    return compile_module(Around(kind()).eval(), Spec("net", (5, 6)), search=0)


@pytest.mark.parametrize("kind", [FirstState, Sizes, Samples, Value])
def test_a_value_that_is_read_compiles(kind):
    assert compile_it(kind).errors["float64"] < 1e-6


@pytest.mark.parametrize("kind", [Clamped, Set, Copied, Wide])
def test_writing_into_a_parameter_is_refused_with_what_to_write_instead(kind):
    with pytest.raises(CompileError, match=r"^part.*: .*parameter .* self\.weight\.clamp"):
        compile_it(kind)
