"""Winograd's products in the place of convolutions: the same values and gradients, where a 0 need not be exactly 0."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import targets
from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.proto import write_model
from edge_sdk.models.ir.specification.layout import lay_out_buffers, lay_out_parameters
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.convolutions import winograd
from tests.models.module_check import export_net, measure_error, measure_exported
from tests.models.rule_check import append_gradients, make_forward, make_node

# (height, width), paddings before and after
PLANES = [
    ((4, 4), [1, 1, 1, 1]),
    ((5, 7), [1, 1, 1, 1]),  # tiles that reach beyond the plane
    ((6, 3), [0, 0, 0, 0]),  # a plane of outputs that is smaller
    ((3, 4), [2, 1, 2, 0]),
]


def make_graph(plane, pads, bias=True):
    """A convolution and the norm behind it, and the shapes of their inputs."""
    shapes = {"x": ("B", 3, *plane), "w": (4, 3, 3, 3)} | ({"b": (4,)} if bias else {})
    nodes = [make_node("Conv", list(shapes), ["c"], pads=pads), make_node("InstanceNormalization", ["c", "s", "t"])]
    shapes |= {"s": (4,), "t": (4,)}
    return read_forward(make_forward(nodes, shapes, {})), shapes


def draw(shapes, batch):
    rng = np.random.default_rng(3)
    return {k: rng.standard_normal([batch if d == "B" else d for d in v]) for k, v in shapes.items()}


@pytest.fixture
def everywhere(monkeypatch):
    """As if the products paid for any size."""
    monkeypatch.setattr(winograd, "compare_costs", lambda *sizes: 0.0)


def use(g):
    winograd.use_winograd(g, 1.0, False)
    return [n.op for n in g.nodes]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("plane", "pads"), PLANES)
def test_values_and_gradients_stay_the_same(plane, pads, batch, bias, everywhere):
    found = []
    for rewritten in (False, True):
        g, shapes = make_graph(plane, pads, bias)
        if rewritten:
            assert "Conv" not in use(g)
        at = draw(shapes, batch)
        y = run(write_model(g, ["y"], double=True), at)["y"]
        names = append_gradients(g, shapes, "y")
        cotangent = np.random.default_rng(4).standard_normal(y.shape)
        found.append([y, *run(write_model(g, names, double=True), {**at, "cotangent": cotangent}).values()])
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-11)


def test_the_matrices_are_those_of_the_definition():
    """y = A' [(G g G') (B' d B)] A for a tile of 4 x 4."""
    rng = np.random.default_rng(0)
    d, taps = rng.standard_normal((4, 4)), rng.standard_normal((3, 3))
    entries = (winograd.TAPS @ taps @ winograd.TAPS.T) * (winograd.INPUTS @ d @ winograd.INPUTS.T)
    want = [[(d[i : i + 3, j : j + 3] * taps).sum() for j in range(2)] for i in range(2)]
    np.testing.assert_allclose(winograd.OUTPUTS @ entries @ winograd.OUTPUTS.T, want, atol=1e-13)


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"pads": [2, 2, 2, 2], "dilations": [2, 2]},
        {"pads": [1, 1, 1, 1], "group": 3},
        {"pads": [0, 1, 0, 1], "kernel": (1, 3)},
    ],
)
def test_other_convolutions_stay(attributes, everywhere):
    kernel = attributes.pop("kernel", (3, 3))
    shapes = {"x": ("B", 3, 6, 6), "w": (3, 3 // attributes.get("group", 1), *kernel), "s": (3,), "t": (3,)}
    nodes = [make_node("Conv", ["x", "w"], ["c"], **attributes), make_node("InstanceNormalization", ["c", "s", "t"])]
    assert "Conv" in use(read_forward(make_forward(nodes, shapes, {})))


# Zeros ------------------------------------------------------------------------------------------------------------
class Plain(nn.Module):
    """Convolutions with ReLUs behind them, or with a norm in between."""

    def __init__(self, norm):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.one = nn.Conv2d(4, 6, 3, padding=1, bias=False), norm(6)
        self.b, self.two = nn.Conv2d(6, 6, 3, padding=1, bias=False), norm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        h = torch.relu(self.one(self.a(x)))
        return self.head(torch.relu(self.two(self.b(h))).mean((2, 3)))


def shift(weight):
    """Taps that are 0 but for one: most of what a ReLU behind it sees is exactly 0."""
    nn.init.dirac_(weight)


def prune(weight):
    keep = torch.rand(weight.shape, generator=torch.Generator().manual_seed(3)) < 0.1
    with torch.no_grad():
        weight.mul_(keep)


@pytest.mark.parametrize("make_zeros", [shift, prune])
@pytest.mark.parametrize("norm", [lambda n: nn.Identity(), lambda n: nn.GroupNorm(2, n), nn.BatchNorm2d])
def test_taps_that_are_0_give_torchs_gradient(norm, make_zeros, everywhere):
    """0 but for rounding in front of a ReLU: 36 % of the gradient was wrong with one tap in a hundred."""
    net = Plain(norm)
    make_zeros(net.b.weight)
    assert measure_error(net, (4, 6, 6)) < 1e-7


def test_and_those_that_become_0_when_the_bundle_is_made(everywhere):
    """Nobody can refuse these: the gate has not seen them."""
    net = Plain(lambda n: nn.Identity()).eval()
    model = Model(parse(compile_module(net, Spec("m", (4, 6, 6))).data))
    shift(net.b.weight)
    theta = torch.cat([p.detach().reshape(-1) for p in net.parameters()]).numpy()
    x, y = np.random.default_rng(0).standard_normal((5, 4, 6, 6)).astype(np.float32), np.arange(5) % 3
    loss = nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
    want = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(net.parameters()))]).numpy()
    np.testing.assert_allclose(model.loss_grad(theta, x, y)[1], want, atol=1e-6)


@pytest.mark.parametrize(
    ("norm", "batch_statistics", "rewritten"),
    [
        (nn.GroupNorm(2, 4), False, True),
        (nn.InstanceNorm2d(4, affine=True), False, True),
        (nn.LayerNorm([4, 4, 4]), False, True),
        (nn.LayerNorm(4), False, False),  # a row may be 0 throughout
        (nn.BatchNorm2d(4), False, False),  # fixed statistics leave a 0 where it is, if they are fresh
        (nn.BatchNorm2d(4), True, True),
        (nn.Identity(), False, False),
    ],
)
def test_only_norms_of_whole_planes_take_zeros_away(norm, batch_statistics, rewritten, everywhere):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, padding=1), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    net, _, forward = export_net(nn.Sequential(*layers), (3, 4, 4))
    momentum = {"1": 0.1} if batch_statistics else None
    source = targets.Source(forward, {"theta": lay_out_parameters(net)}, lay_out_buffers(net), momentum)
    ops = [n.op for n in targets.write_loss_grad(source, "cross_entropy").graph.nodes]
    assert ("ConvTranspose" not in ops and "Conv" not in ops) == rewritten


# Whole networks ---------------------------------------------------------------------------------------------------
def make_net():
    """A residual block on planes of 6 x 5."""
    torch.manual_seed(1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.one = nn.Conv2d(4, 6, 3, padding=1, bias=False), nn.GroupNorm(2, 6)
            self.second, self.two = nn.Conv2d(6, 6, 3, padding=1), nn.GroupNorm(3, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            h = torch.relu(self.one(self.first(x)))
            return self.head(torch.relu(h + self.two(self.second(h))).mean((2, 3)))

    return Block()


def test_gradients_are_torchs(everywhere):
    net, inputs, forward = export_net(make_net(), (4, 6, 5))
    assert measure_exported(net, inputs, forward) < 1e-7
    source = targets.Source(forward, {"theta": lay_out_parameters(net)})
    trained, predicted = targets.write_loss_grad(source, "cross_entropy"), targets.write_predict(source)
    assert not {"Conv", "ConvTranspose"} & {n.op for n in trained.graph.nodes}
    assert "Conv" in [n.op for n in predicted.graph.nodes]  # a device often predicts one sample


def test_the_backward_pass_computes_transforms_again(everywhere):
    """Kept from the forward pass they would take four times the memory of the activations."""
    net, _, forward = export_net(make_net(), (4, 6, 5))
    source = targets.Source(forward, {"theta": lay_out_parameters(net)})
    nodes = targets.write_loss_grad(source, "cross_entropy").graph.nodes
    last = max(i for i, n in enumerate(nodes) if n.op == "LogSoftmax")
    made = {o for n in nodes[:last] if n.op == "Gemm" for o in n.outputs}
    entries = {o for n in nodes[:last] if n.op == "Reshape" and n.inputs[0] in made for o in n.outputs} | made
    late = [n for n in nodes[last:] if n.op in ("MatMul", "Gemm") and n.where.startswith(("first", "second"))]
    assert late
    assert not {i for n in late for i in n.inputs} & entries


@pytest.mark.parametrize(
    ("channels", "side", "gains"),
    [(512, 4, True), (256, 8, True), (64, 4, True), (16, 8, False), (64, 32, False), (512, 2, False)],
)
def test_it_is_chosen_where_it_multiplies_less(channels, side, gains):
    share = winograd.compare_costs((channels, channels, 3, 3), (side, side), (side, side))
    assert (share <= winograd.MOST_BESIDE_BLOCKED) == gains


@pytest.mark.parametrize(("max_batch", "samples"), [(1, 1), (64, winograd.SAMPLES)])
def test_the_choice_knows_the_steps_of_the_bundle(monkeypatch, max_batch, samples):
    """Weights are transformed once for each step: for one of a single sample that does not pay."""
    seen = []
    monkeypatch.setattr(winograd, "cost_of", lambda g, n, samples: seen.append(samples) or 2.0)
    compile_module(make_net().eval(), Spec("m", (4, 6, 5), max_batch=max_batch))
    assert seen and set(seen) == {samples}
    shares = [winograd.compare_costs((512, 512, 3, 3), (4, 4), (4, 4), samples) for samples in (1, 8)]
    assert shares[0] > 1 > shares[1]
