"""A module that ends in what its loss applies once more: it is compiled as torch trains it, and it is told."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec


@pytest.mark.parametrize(
    ("last", "loss", "said"),
    [
        (nn.Softmax(-1), "cross_entropy", "ends in a softmax"),
        (nn.Sequential(nn.Sigmoid(), nn.Unflatten(1, (3, 1)), nn.Flatten()), "binary_cross_entropy", "a sigmoid"),
        (nn.LogSoftmax(-1), "cross_entropy", ""),
        (nn.Sigmoid(), "mean_squared_error", ""),
        (nn.Identity(), "binary_cross_entropy", ""),
    ],
)
def test_an_activation_that_the_loss_has_too_is_told(last: nn.Module, loss: str, said: str) -> None:
    lines = list[str]()
    compile_module(nn.Sequential(nn.Linear(4, 3), last).eval(), Spec("net", (4,), loss=loss), lines.append, search=0)
    warnings = [line for line in lines if line.startswith("warning: ")]
    assert [said in line for line in warnings] == [True] * bool(said)
