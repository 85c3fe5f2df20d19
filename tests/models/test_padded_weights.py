"""Kernels that are put into larger ones before they are used."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec


class Embedded(nn.Module):
    """A kernel in a larger one, in the middle of which it lies, or in one with more channels."""

    def __init__(self, pads, channels):
        super().__init__()
        torch.manual_seed(0)
        self.pads, self.w, self.head = pads, nn.Parameter(torch.randn(4, channels, 1, 1)), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(F.conv2d(x, F.pad(self.w, self.pads), None, 1, 1).mean((2, 3)))


@pytest.mark.parametrize(("pads", "channels"), [((1, 1, 1, 1), 4), ((1, 1, 1, 1, 1, 0), 3), ((2, 0, 1, 1), 4)])
def test_they_compile(pads, channels):
    """onnxruntime took the padding for one of the image, and refused its own graph."""
    made = compile_module(Embedded(pads, channels).eval(), Spec("m", (4, 4, 4), blocked=True), search=2)
    assert max(made.errors.values()) < 1e-4
