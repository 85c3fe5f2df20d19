"""Modules whose gradients are right are not refused: constants of torch, gradients that are truly tiny, RMSNorm."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.evaluation.reference import Evaluator
from edge_sdk.models.ir.specification.spec import Spec
from tests.models.module_check import Net, measure_error


class Scores(nn.Module):
    """Attention whose scores are divided by sqrt(8) as a number, on inputs that make its softmax steep."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.scale = 8**-0.5
        with torch.no_grad():
            self.q.weight *= 3

    def forward(self, x):
        scores = (self.q(x) @ self.k(x).transpose(1, 2)) * self.scale
        return self.head((scores.softmax(-1) @ self.v(x)).mean(1))


class Cancelled(nn.Module):
    """A bias before an instance norm, which takes it away again: its gradient is rounding noise."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv1d(1, 4, 3, padding=1), nn.InstanceNorm1d(4, affine=True)
        self.second, self.head = nn.Conv1d(4, 4, 3, padding=1), nn.Linear(64, 3)

    def forward(self, x):
        return self.head(F.relu(self.second(self.norm(self.first(x) * 20))).flatten(1))


def test_constants_are_as_exact_as_torchs():
    torch.manual_seed(0)
    assert measure_error(Scores(), (6, 8)) <= 1e-8  # 3e-7 with the number rounded to float32


@pytest.mark.parametrize(
    "f", [F.gelu, lambda h: h / 3, lambda h: h * 0.123456789, lambda h: h.norm(p=3, dim=1, keepdim=True) * h]
)
def test_numbers_in_functions(f):
    torch.manual_seed(0)
    assert measure_error(Net(f), (8,)) <= 1e-10


def test_a_gradient_that_is_rounding_noise():
    torch.manual_seed(0)
    assert measure_error(Cancelled(), (1, 16)) <= 1e-6


@pytest.mark.parametrize("eps", [None, 1e-6])
def test_rms_norm(eps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.RMSNorm(6, eps=eps), nn.Linear(6, 3))
    made = compile_module(net.eval(), Spec("m", (8,)))
    assert made.errors["float64"] <= 1e-6


def test_rms_norm_by_the_function():
    torch.manual_seed(0)
    assert measure_error(Net(lambda h: F.rms_norm(h, (6,))), (8,)) <= 1e-8


@pytest.mark.parametrize(
    "pool",
    [nn.AvgPool2d(2, divisor_override=3), nn.AvgPool2d((3, 2), 1, 1, divisor_override=5)],
    ids=["plain", "padded"],
)
def test_means_by_a_divisor(pool):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 2, 3), pool, nn.Flatten()]
    width = nn.Sequential(*layers)(torch.zeros(1, 1, 6, 6)).shape[1]
    assert measure_error(nn.Sequential(*layers, nn.Linear(width, 3)), (1, 6, 6)) <= 1e-9


def test_the_gate_divides_by_six_in_float64():
    """A sixth in float32 is off in the 8th digit, which grew above the limit in LeViT's attention."""
    assert measure_error(make_dense(nn.Hardswish(), nn.Linear(8, 8), nn.Hardswish()), (6,)) <= 1e-12


def test_hard_sigmoids_slope_is_a_sixth_in_the_gate():
    """By its output: torch's own gradient has a sixth in float32, also in float64."""
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)[:, None]
    node = helper.make_node("HardSigmoid", ["x"], ["y"], alpha=1 / 6)
    assert np.abs(evaluate(node, x) - F.hardsigmoid(x).numpy()).max() <= 1e-15


def make_dense(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 3)).eval()


def evaluate(node, x, values=None):
    """What the gate's evaluator makes of one operator; constants of one number each."""
    constants = [helper.make_tensor(name, TensorProto.DOUBLE, [1], [value]) for name, value in (values or {}).items()]
    inputs, outputs = (helper.make_tensor_value_info(name, TensorProto.DOUBLE, [*x.shape]) for name in "xy")
    graph = helper.make_graph([node], "one", [inputs], [outputs], constants)
    return Evaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))({"x": x.numpy()})["y"]


def test_norms_over_two_values_one_after_the_other():
    """A batch of two, where gradients are small differences (ShuffleNetV2 in its end)."""
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8, bias=False))]
    made = compile_module(make_dense(*layers, nn.BatchNorm1d(8)), Spec("m", (6,), norm="batch"))
    assert made.errors["float64"] <= 1e-6


def test_the_gate_adds_torchs_epsilon_and_not_the_float32_next_to_it():
    """Where the variance is about the epsilon, that of float32 is off in the 9th digit."""
    x = torch.tensor([[0.0], [0.006]], dtype=torch.float64)
    node = helper.make_node("BatchNormalization", ["x", "one", "zero", "mean", "var"], ["y"], epsilon=1e-5)
    values = {"one": 1.0, "zero": 0.0, "mean": x.mean().item(), "var": x.var(unbiased=False).item()}
    got = evaluate(node, x, values)
    want = F.batch_norm(x, None, None, training=True, eps=1e-5).numpy()
    assert np.abs(got - want).max() <= 1e-14


def test_statistics_of_the_batch_do_not_switch_dropout_on():
    """With --norm batch and --dropout off nothing is dropped on either side of the gate (MobileNetV2's classifier)."""
    made = compile_module(make_dense(nn.BatchNorm1d(8), nn.Dropout(0.2)), Spec("m", (6,), norm="batch", dropout="off"))
    assert made.errors["float64"] <= 1e-6


def test_statistics_of_the_batch_and_dropout():
    made = compile_module(make_dense(nn.BatchNorm1d(8), nn.Dropout(0.2)), Spec("m", (6,), norm="batch", dropout="keep"))
    assert made.errors["float64"] <= 1e-6
