"""Functions that are the difference of nearly equal numbers keep their digits on a device, near 0 and far from it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import targets
from edge_sdk.models.derive.targets import Source, write_vjp
from edge_sdk.models.frontend.tracing.export import TRACE_BATCH, export_forward
from edge_sdk.models.gate.operators import digits
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.ir.specification.spec import Spec

SIZES = np.float32(
    np.unique([*10.0 ** np.arange(-30, 2.01, 0.5), 0.3, 0.5, 0.9, 1.5, 3, 5, 8, 12, 16, 17, 20, 40, 60, 80])
)
BOTH = np.concatenate([-SIZES[::-1], np.zeros(1, np.float32), SIZES])
ULPS = 16
"""Units of float32's last place that a result may be off, or this many times what torch's own float32 is."""


class Each(nn.Module):
    """A function of each input by itself: the gradient of its weight is the slope times the input."""

    def __init__(self, f, size):
        super().__init__()
        self.w, self.f = nn.Parameter(torch.ones(size)), f

    def forward(self, x):
        return self.f(x * self.w)


def run_device(f, x):
    """Value and slope times x of a compiled function in float32."""
    net = Each(f, len(x)).eval()
    slots = lay_out_parameters(net)
    target = write_vjp(
        Source(export_forward(net, slots, ["x"], [torch.full((TRACE_BATCH, len(x)), 0.5)]), {"theta": slots})
    )
    rows, cotangent = np.stack([x, x]), np.stack([np.ones_like(x), np.zeros_like(x)])
    made = RunnableGraph(target.model())({"theta": np.ones(len(x), np.float32), "x": rows, "cotangent": cotangent})
    return made[target.outputs[0]][0].astype(np.float64), made["grad"].astype(np.float64)


def run_torch(f, x, dtype):
    w = torch.ones(len(x), dtype=dtype, requires_grad=True)
    made = f((torch.tensor(x, dtype=dtype) * w)[None])[0]
    return made.detach().double().numpy(), torch.autograd.grad(made.sum(), w)[0].double().numpy()


def check(f, x):
    for got, want, single in zip(
        run_device(f, x), run_torch(f, x, torch.float64), run_torch(f, x, torch.float32), strict=True
    ):
        counts = np.isfinite(want) & np.isfinite(single) & ((np.abs(want) > 1e-36) | (want == 0))
        allowed = ULPS * np.maximum(np.abs(single - want), 2.0**-24 * np.abs(want))
        wrong = counts & ~(np.abs(got - want) <= allowed)
        assert not wrong.any(), f"{x[wrong]}: {got[wrong]} in place of {want[wrong]}"


def pair(f):
    """A function of two values, of which the second is 0."""
    return lambda x: f(torch.stack([x, torch.zeros_like(x)], -1))


FUNCTIONS = {
    "log1p": (torch.log1p, BOTH[BOTH > -1]),
    "special.log1p": (torch.special.log1p, BOTH[BOTH > -1]),
    "expm1": (torch.expm1, BOTH[BOTH > -15]),
    "special.expm1": (torch.special.expm1, BOTH[BOTH > -15]),
    "xlog1py": (lambda x: torch.special.xlog1py(torch.ones_like(x), x), SIZES),
    "log(1 - e^-x)": (lambda x: torch.log(-torch.expm1(-x)), SIZES[SIZES < 10]),
    "softplus": (F.softplus, BOTH),
    "softplus with a factor": (lambda x: F.softplus(x, 2.0, 5.0), BOTH[BOTH > -35]),
    "logsigmoid": (F.logsigmoid, BOTH),
    "logaddexp": (lambda x: torch.logaddexp(x - 16.0, torch.zeros_like(x)), BOTH[np.abs(BOTH) < 10]),
    "log of a sigmoid": (lambda x: torch.log(torch.sigmoid(x)), BOTH[BOTH > -80]),
    "odds": (lambda x: 1 / (1e-12 + torch.sigmoid(x)), BOTH[BOTH > -80]),
    "mish": (F.mish, BOTH[BOTH > -80]),
    "binary cross entropy": (
        lambda x: F.binary_cross_entropy_with_logits(x, torch.zeros_like(x), reduction="none"),
        BOTH[BOTH > -15],
    ),
    "log_softmax": (lambda x: pair(lambda z: torch.log_softmax(z, -1))(x)[..., 0], BOTH),
    "logsumexp": (pair(lambda z: torch.logsumexp(z, -1)), BOTH),
    "norm": (pair(lambda z: torch.linalg.vector_norm(z, dim=-1)), BOTH),
    "hypot": (lambda x: torch.hypot(x, 2 * x), BOTH[np.abs(BOTH) > 1e-18]),
    "special.sinc": (lambda x: torch.special.sinc(x), BOTH[(np.abs(BOTH) < 1e-4) | (np.abs(BOTH) > 0.1)]),
    "sinh": (torch.sinh, BOTH),
    "asinh": (torch.asinh, BOTH),
    "atanh": (torch.atanh, BOTH[np.abs(BOTH) < 1]),
    "gelu": (F.gelu, BOTH[BOTH > -3]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_slopes_keep_their_digits(name):
    check(*FUNCTIONS[name])


class Power(nn.Module):
    """A function of the power of a signal, as of volts: 1e-8 for inputs of 1e-4."""

    def __init__(self, f):
        super().__init__()
        self.f, self.head = f, nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.f(torch.tanh(x) ** 2) * 1e10)


class Inside(nn.Module):
    """The same of values that are small for inputs of 1."""

    def __init__(self, f):
        super().__init__()
        self.f, self.body, self.head = f, nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.f(1e-4 * torch.tanh(self.body(x))) * 1e4)


@pytest.mark.parametrize("kind", [Power, Inside])
@pytest.mark.parametrize("f", [torch.log1p, torch.expm1])
def test_the_gate_looks_at_small_values(monkeypatch, kind, f):
    torch.manual_seed(0)
    assert compile_module(kind(f).eval(), Spec("net", (16,))).errors["float32"] < 1e-5
    for home in (targets, digits):
        monkeypatch.setattr(home, "write_small_values", lambda g: None)
    with pytest.raises(ParityError, match="float32, "):
        compile_module(kind(f).eval(), Spec("net", (16,)))
