"""`torch.no_grad` around what no parameter changes, or what is not trained: it stops no gradient."""

import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec


@torch.no_grad()
def scaled(x):
    return x / (x.std(1, keepdim=True) + 1)


class Rotary(nn.Module):
    """Positions as angles, which language models compute without gradients."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("rates", torch.arange(4.0) / 4)

    def forward(self, x):
        with torch.no_grad():
            angles = torch.arange(x.shape[1]).float()[:, None] * self.rates
            cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        q = self.body(scaled(x))
        turned = torch.cat([-q[..., 4:], q[..., :4]], -1)
        return self.head((q * cos + turned * sin).mean(1))


class Frozen(Rotary):
    def forward(self, x):
        with torch.no_grad():
            q = self.body(x)
        return self.head(q.cos().mean(1))


def test_what_no_parameter_changes_compiles():
    torch.manual_seed(1)
    assert compile_module(Rotary().eval(), Spec("net", (5, 8)), search=0).errors["float64"] < 1e-9


def test_parameters_that_are_not_trained_do_not_count():
    torch.manual_seed(1)
    net = Frozen().eval()
    net.body.requires_grad_(False)
    made = compile_module(net, Spec("net", (5, 8)), search=0)
    assert made.errors["float64"] < 1e-9 and made.parameters == 27
