"""Einsums of any number of operands, with indices that are summed in one of them: gradients are torch's."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec

EQUATIONS = {
    "state space": ("bld,bln,bld->bldn", "aba"),
    "linear attention": ("nld,ndm,nl->nlm", "acs"),
    "summed in one": ("bld,bln->bn", "ab"),
    "one operand": ("bld->bl", "a"),
    "turned": ("bld->bdl", "a"),
    "four operands": ("bld,bln,bld,bkn->bkd", "abab"),
    "nothing in common": ("bld,bkn->bdk", "ab"),
}


class Product(nn.Module):
    def __init__(self, equation: str, operands: str):
        super().__init__()
        self.equation, self.operands = equation, operands
        self.left, self.right, self.head = nn.Linear(4, 4), nn.Linear(4, 3), nn.LazyLinear(3)

    def forward(self, x):
        a, b = self.left(x), self.right(x)
        values = {"a": a, "b": b, "c": a.transpose(1, 2) @ b, "s": b.sum(-1)}
        return self.head(torch.tanh(torch.einsum(self.equation, *(values[o] for o in self.operands))).flatten(1))


@pytest.mark.parametrize("equation", EQUATIONS)
def test_the_gate_finds_the_gradients_right(equation):
    torch.manual_seed(1)
    made = compile_module(Product(*EQUATIONS[equation]).eval(), Spec("net", (5, 4)), search=0)
    assert made.errors["float64"] < 1e-9
