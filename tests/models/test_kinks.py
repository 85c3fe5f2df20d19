"""Gradients exactly at ties, zeros and bounds are torch's, whatever ONNX writes the function as."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.bundle.compile import make_example
from edge_sdk.models.derive.targets import Source, write_vjp
from edge_sdk.models.frontend.tracing.export import export_forward
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.evaluation.reference import Evaluator
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.ir.specification.spec import DataInput
from tests.models.module_check import measure_error

Function = Callable[[torch.Tensor], torch.Tensor]

ELEMENTWISE: dict[str, Function] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "clamp": lambda h: h.clamp(-1.0, 2.0),
    "clamp from below": lambda h: h.clamp(min=0),
    "clamp from above": lambda h: h.clamp(max=1),
    "clamp_min": lambda h: torch.clamp_min(h, 1.0),
    "abs": torch.abs,
    "maximum": lambda h: torch.maximum(h, torch.zeros_like(h)),
    "leaky relu": lambda h: F.leaky_relu(h, 0.1),
    "elu": lambda h: F.elu(h, 1.5),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "threshold": lambda h: F.threshold(h, 1.0, 0.5),
    "hardshrink": lambda h: F.hardshrink(h, 0.5),
    "softplus": F.softplus,
    "log of a sigmoid": F.logsigmoid,
    "where": lambda h: torch.where(h > 0, h, 0.1 * h),
    "logaddexp": lambda h: torch.logaddexp(h, 0 * h),
    "xlogy": lambda h: torch.xlogy(h, h.abs()),
    "square": lambda h: h**2,
}
REDUCTIONS: dict[str, Function] = {
    "amax": lambda h: h.amax(2),
    "max with its index": lambda h: h.max(2)[0],
    "min with its index": lambda h: h.min(2)[0],
    "std": lambda h: h.std(2),
    "std of all": lambda h: h.std((1, 2), correction=0)[:, None],
    "std and mean": lambda h: sum(torch.std_mean(h, 2)),
    "root of var": lambda h: torch.sqrt(h.var(2) + 1e-5),
    "norm": lambda h: h.norm(dim=2),
    "norm of order 3": lambda h: h.norm(p=3, dim=2),
    "normalize": lambda h: F.normalize(h, dim=2),
    "max pool": lambda h: F.max_pool1d(h, 2),
    "max pool that overlaps": lambda h: F.max_pool1d(h, 3, 2, 1),
    "adaptive max pool to one": lambda h: F.adaptive_max_pool1d(h, 1),
    "adaptive max pool to two": lambda h: F.adaptive_max_pool1d(h, 2),
    "softmax": lambda h: h.softmax(2),
    "maximum of two": lambda h: torch.maximum(h, h.flip(2)),
}
POINTS = [-1e4, -1000.0, -6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 1000.0, 1e4, 0.1, -0.1]
ROWS = [np.zeros((4, 4)), np.ones((4, 4)), np.arange(16).reshape(4, 4) % 3 - 1.0, np.eye(4), 1e-20 * np.arange(16)]


class Several(nn.Module):
    """Several functions of x * scale, flattened and side by side."""

    def __init__(self, functions: dict[str, Function]) -> None:
        super().__init__()
        self.functions, self.scale = functions, nn.Parameter(torch.ones(4, 4))

    def apply_all(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [f(x * self.scale).flatten(1) for f in self.functions.values()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(self.apply_all(x), 1)


def compile_several(functions):
    """The module in float64, and its vjp graph."""
    net = Several(functions).eval()
    slots = lay_out_parameters(net)
    forward = export_forward(net, slots, ["x"], [make_example(DataInput("x", (4, 4)))])
    target = write_vjp(Source(forward, {"theta": slots}))
    return net.double(), Evaluator(target.model(double=True))


@pytest.fixture(scope="module")
def elementwise():
    return compile_several(ELEMENTWISE)


@pytest.fixture(scope="module")
def reductions():
    return compile_several(REDUCTIONS)


def compare(net, graph, name, x):
    """The gradient of one of the functions, with the others' cotangents at 0."""
    parts = net.apply_all(torch.from_numpy(x)[None])
    wide = [p.shape[1] for p in parts]
    at, which = list(net.functions).index(name), slice(None)
    cotangents = [np.linspace(0.5, 1.5, w) if i == at else np.zeros(w) for i, w in enumerate(wide)]
    total = (parts[at] * torch.from_numpy(cotangents[at])).sum()
    want = torch.autograd.grad(total, net.scale)[0].numpy()
    feeds = {"theta": np.ones(16), "x": x[None], "cotangent": np.concatenate(cotangents)[None]}
    got = graph(feeds)["grad"].reshape(4, 4)[which]
    finite = np.isfinite(want)
    assert finite.any()
    np.testing.assert_allclose(got[finite], want[finite], rtol=2e-7, atol=1e-9 * max(1.0, np.abs(want[finite]).max()))


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(elementwise, name):
    compare(*elementwise, name, np.array(POINTS).reshape(4, 4))


@pytest.mark.parametrize("rows", range(len(ROWS)))
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(reductions, name, rows):
    compare(*reductions, name, ROWS[rows].reshape(4, 4).astype(np.float64))


def embedding(**options):
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(9, 4, **options), nn.Flatten(), nn.Linear(20, 3))


@pytest.mark.parametrize("padding", [0, 4, -1])
def test_the_padding_row_of_an_embedding_is_never_trained(padding):
    net = embedding(padding_idx=padding)
    assert measure_error(net, (5,), below=9) <= 1e-9


def test_an_embedding_that_scales_its_gradient_is_refused():
    with pytest.raises(UnsupportedPattern, match="scale_grad_by_freq"):
        measure_error(embedding(scale_grad_by_freq=True), (5,), below=9)


class SpreadNet(nn.Module):
    """A convolution, and the standard deviation of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(2, 4, 3, bias=False), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).std(2))


def test_a_constant_sample_does_not_spoil_the_gradient_of_the_others():
    torch.manual_seed(2)
    assert measure_error(SpreadNet(), (2, 10)) <= 1e-9
