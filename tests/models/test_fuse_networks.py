"""Training graphs of networks, plain and with groups of elementwise nodes: the same values in float64 and float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import read_vectors
from edge_sdk.models.derive import targets
from edge_sdk.models.derive.tensors import separate_tensors
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.specification.layout import lay_out_buffers, lay_out_parameters
from edge_sdk.models.passes.convolutions.batch_norm import find_momenta
from edge_sdk.models.passes.native.fuse import fuse_elementwise
from edge_sdk.models.zoo import ZOO
from tests.models.fused import list_groups
from tests.models.module_check import export_net

BATCH = 3


class Attention(nn.Module):
    """A block of a transformer, with the tanh form of GELU and scales of its branches."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.scale = nn.LayerNorm(8), nn.LayerNorm(8), nn.Parameter(torch.full((8,), 0.5))
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.first(x)
        x = x + self.scale * self.mix(h, h, h, need_weights=False)[0]
        x = x + self.scale * self.down(nn.functional.gelu(self.up(self.second(x)), approximate="tanh"))
        return self.head(x.mean(1))


class Excitation(nn.Module):
    """Convolutions with norms, hardswish, and a gate for each channel."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.rest = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.SiLU(), nn.ReLU6())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(128, 3))

    def forward(self, x):
        h = self.body(x)
        h = h * nn.functional.hardsigmoid(self.gate(h))
        return self.head(h + self.rest(h))


def units():
    layers = [nn.GELU(), nn.LeakyReLU(0.1), nn.ELU(), nn.SELU(), nn.PReLU(), nn.Softplus(), nn.Hardtanh(), nn.Mish()]
    return nn.Sequential(*(part for layer in layers for part in (nn.Linear(6, 6), layer)), nn.Linear(6, 3))


NETWORKS = {
    "attention": (Attention, (5, 8), {}),
    "excitation": (Excitation, (2, 4, 4), {}),
    "statistics of the batch": (Excitation, (2, 4, 4), {"batch": True}),
    "units": (units, (6,), {}),
    **{name: (ZOO[name].build, ZOO[name].input, {}) for name in ("mlp", "wrist", "transformer", "lstm", "separable")},
}


@pytest.fixture(scope="module", params=NETWORKS)
def written(request):
    """The targets of a network, its slots, and one batch for them."""
    torch.manual_seed(4)
    build, shape, settings = NETWORKS[request.param]
    net, _, forward = export_net(build(), shape)
    slots, buffers = lay_out_parameters(net), lay_out_buffers(net)
    momenta = find_momenta(net) if settings.get("batch") else None
    source = targets.Source(forward, {"theta": slots}, buffers, momenta)
    made = {
        "predict": targets.write_predict(source),
        "loss_grad": targets.write_loss_grad(source, "cross_entropy"),
        "vjp": targets.write_vjp(source),
    }
    rng, classes = np.random.default_rng(2), source.output_shape[1]
    feeds = read_vectors(net, slots, buffers) | {"x": rng.standard_normal((BATCH, *shape))}
    feeds |= {"y": rng.integers(0, classes, BATCH), "weights": rng.random(BATCH)}
    return made, slots, feeds | {"cotangent": rng.standard_normal((BATCH, classes))}


def to_single(feeds):
    return {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in feeds.items()}


def distance(a, b):
    """The largest difference, relative to the largest number."""
    return np.abs(a - b).max(initial=0) / (np.abs(a).max(initial=0) or 1)


@pytest.mark.parametrize("graph", ["predict", "loss_grad", "vjp"])
def test_the_same_values(written, graph):
    made, _, feeds = written
    target, fused = made[graph], fuse_elementwise(made[graph])
    if fused is None:
        assert graph == "predict"
        return
    for double, given, limit in ((True, feeds, 1e-7), (False, to_single(feeds), 2e-5)):
        wanted, found = (run(t.model(double=double), given) for t in (target, fused))
        assert list(wanted) == list(found)
        for name, value in wanted.items():
            assert found[name].dtype == value.dtype and distance(value, found[name]) <= limit, (name, double)


def test_the_form_with_tensors_of_theta_has_groups_as_well(written):
    made, slots, feeds = written
    graph = separate_tensors(made["loss_grad"], slots)
    fused = fuse_elementwise(graph.target)
    values = {s.name: feeds["theta"][s.offset : s.offset + s.size] for s in slots}
    shapes = graph.target.graph.shapes
    tensors = {name: values[slot].reshape(shapes[name]) for name, slot in graph.slots.items()}
    wanted, found = run(made["loss_grad"].model(double=True), feeds), run(fused.model(double=True), feeds | tensors)
    assert all(distance(value, found[name]) <= 1e-7 for name, value in wanted.items())


def test_fewer_nodes_and_equal_bytes(written):
    made, _, _ = written
    one, other = (fuse_elementwise(made["loss_grad"]) for _ in range(2))
    assert list_groups(one) and len(one.graph.nodes) < len(made["loss_grad"].graph.nodes)
    assert one.model().SerializeToString() == other.model().SerializeToString()
