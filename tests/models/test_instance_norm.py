"""Instance norms of images of one value: a device's rounding is no larger than torch's."""

import copy

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec


class Residual(nn.Module):
    """A convolution beside a 1 x 1 one, whose channels are of one value where the image is, each with a norm."""

    def __init__(self, affine: bool):
        super().__init__()
        self.wide, self.flat = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.Conv2d(1, 8, 1, bias=False)
        self.norm, self.other = nn.InstanceNorm2d(8, affine=affine), nn.InstanceNorm2d(8, affine=affine)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(
            nn.functional.leaky_relu(self.norm(self.wide(x)) + self.other(self.flat(x))).square().mean((2, 3))
        )


def gradient(net, names, x, y, dtype):
    whole = copy.deepcopy(net).to(dtype)
    nn.functional.cross_entropy(whole(torch.from_numpy(x).to(dtype)), torch.from_numpy(y)).backward()
    return np.concatenate([whole.get_parameter(n).grad.double().numpy().ravel() for n in names])


@pytest.mark.parametrize("affine", [True, False])
def test_images_of_one_value_lose_no_more_than_torch_does(affine):
    torch.manual_seed(1)
    net = Residual(affine).eval()
    model = Model(parse(compile_module(net, Spec("net", (1, 32, 32)), search=2).data))
    names, y = [s.name for s in model.layout.slots], np.arange(4) % 3
    lost = []
    for value in (0.3, 1.0, 2.0, 5.0, 7.0):
        x = np.full((4, 1, 32, 32), value, np.float32)
        want = gradient(net, names, x, y, torch.float64)
        found = model.loss_grad(model.theta0, x, y)[1], gradient(net, names, x, y, torch.float32)
        lost.append([np.linalg.norm(g - want) / np.linalg.norm(want) for g in found])
    ours, torchs = np.median(lost, 0)
    assert ours <= 3 * torchs


def test_an_instance_norm_is_the_kernel_that_returns_its_statistics():
    made = compile_module(Residual(True).eval(), Spec("net", (1, 8, 8)), search=0)
    for name in ("predict", "loss_grad"):
        operators = {n.op_type for n in onnx.load_from_string(bytes(parse(made.data).parts[f"{name}.onnx"])).graph.node}
        assert "LayerNormalization" in operators
        assert "InstanceNormalization" not in operators
