"""Dense layers of few rows and many weights, whose weights come first in their products."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec


def has_weights_first(graph):
    """The first layer is a product of its weights with the transposed input."""
    return any(
        n.op_type == "Gemm" and n.input[1] == "x" and {a.name: a.i for a in n.attribute}["transB"] for n in graph.node
    )


def is_of_theta(makers, name):
    """True for a piece of theta, perhaps reshaped."""
    made = makers.get(name)
    while made is not None and made.op_type in ("Reshape", "Identity"):
        made = makers.get(made.input[0])
    return made is not None and made.op_type == "Split"


def training_graph(bundle):
    return onnx.load_from_string(bytes(bundle.parts["loss_grad.onnx"])).graph


def net_of(bias):
    return nn.Sequential(nn.Flatten(), nn.Linear(512, 640, bias=bias), nn.Tanh(), nn.Linear(640, 4))


@pytest.mark.parametrize("bias", [True, False])
def test_many_weights_come_first_and_the_gradient_is_that_of_torch(bias):
    torch.manual_seed(5)
    net = net_of(bias)
    bundle = parse(compile_module(net.eval(), Spec("m", (512,))).data)
    assert has_weights_first(training_graph(bundle))
    model, rng = Model(bundle), np.random.default_rng(4)
    x, y = rng.standard_normal((9, 512)).astype(np.float32), np.arange(9) % 4
    loss, gradient = model.loss_grad(model.theta0, x, y)
    wanted = nn.functional.cross_entropy(net.double()(torch.from_numpy(x).double()), torch.from_numpy(y))
    wanted.backward()
    theirs = np.concatenate([p.grad.numpy().ravel() for p in net.parameters()])
    assert loss == pytest.approx(wanted.item(), rel=1e-6)
    assert np.linalg.norm(gradient - theirs) <= 1e-6 * np.linalg.norm(theirs)


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 4)), (256,)),  # few weights
        (nn.Sequential(nn.Linear(512, 640), nn.Tanh(), nn.Flatten(), nn.Linear(640 * 20, 4)), (20, 512)),  # many rows
    ],
)
def test_other_products_stay(net, shape):
    bundle = parse(compile_module(net.eval(), Spec("m", shape)).data)
    graph = training_graph(bundle)
    makers = {o: n for n in graph.node for o in n.output}
    rows = [n.input[0] for n in graph.node if n.op_type == "Gemm" and {a.name: a.i for a in n.attribute}["transB"]]
    assert rows and all(not is_of_theta(makers, name) for name in rows)


class Spread(nn.Module):
    """A layer whose bias has another shape than one number for each unit."""

    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(640, 512) / 20)
        self.bias = None if shape == "rows" else nn.Parameter(torch.randn(shape))
        self.other = nn.Linear(512, 640)
        self.head = nn.Linear(640, 4)

    def forward(self, x):
        bias = self.other(x) if self.bias is None else self.bias
        return self.head(torch.tanh(nn.functional.linear(x, self.weight, bias)))


@pytest.mark.parametrize(("most", "first"), [(8, True), (64, False)])
def test_rows_are_those_of_the_largest_step(most, first):
    """Five rows a sample: forty in a step of eight samples, and with 320 there would be nothing to gain."""
    net = nn.Sequential(nn.Linear(512, 640), nn.Tanh(), nn.Flatten(), nn.Linear(640 * 5, 4))
    graph = training_graph(parse(compile_module(net.eval(), Spec("m", (5, 512), max_batch=most)).data))
    makers = {o: n for n in graph.node for o in n.output}
    rows = [n.input[0] for n in graph.node if n.op_type == "Gemm" and {a.name: a.i for a in n.attribute}["transB"]]
    assert any(is_of_theta(makers, name) for name in rows) == first


@pytest.mark.parametrize("shape", [(640,), (1, 640), (1,), (), "rows"])
def test_a_bias_of_any_shape(shape):
    torch.manual_seed(5)
    net = Spread(shape)
    model, rng = Model(parse(compile_module(net.eval(), Spec("m", (512,))).data)), np.random.default_rng(4)
    x, y = rng.standard_normal((9, 512)).astype(np.float32), np.arange(9) % 4
    _, gradient = model.loss_grad(model.theta0, x, y)
    nn.functional.cross_entropy(net.double()(torch.from_numpy(x).double()), torch.from_numpy(y)).backward()
    of = {name: p.grad for name, p in net.named_parameters()}
    zeros = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    theirs = np.concatenate(
        [(zeros[s.name] if of[s.name] is None else of[s.name]).numpy().ravel() for s in model.layout.slots]
    )
    assert np.linalg.norm(gradient - theirs) <= 1e-6 * np.linalg.norm(theirs)


@pytest.mark.parametrize("bias", [True, False])
def test_onnxruntime_does_not_turn_the_product_back(bias, tmp_path):
    """It makes a transposition part of the product before it; then the weights would be copied again."""
    bundle = parse(compile_module(net_of(bias).eval(), Spec("m", (512,))).data)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "made.onnx")
    ort.InferenceSession(bytes(bundle.parts["loss_grad.onnx"]), options, providers=["CPUExecutionProvider"])
    assert has_weights_first(onnx.load(tmp_path / "made.onnx").graph)
