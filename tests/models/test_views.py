"""A reshape after attention with a mask compiles, whatever torch makes of the memory between."""

import torch
from torch import nn
from torch.nn import functional as F

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec


class Relative(nn.Module):
    """Attention with a learnt bias for each distance, heads put together by `reshape`."""

    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 3)
        self.bias = nn.Parameter(0.1 * torch.randn(2, 9))
        self.register_buffer("distance", torch.arange(5)[:, None] - torch.arange(5) + 4)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, steps, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
        h = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias[:, self.distance].unsqueeze(0))
        return self.head(h.transpose(1, 2).reshape(batch, steps, width).mean(1))


def test_a_reshape_after_attention_with_a_bias():
    torch.manual_seed(1)
    assert compile_module(Relative().eval(), Spec("net", (5, 8)), search=0).errors["float64"] < 1e-9
