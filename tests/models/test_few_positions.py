"""Convolutions with few positions and many weights, as products over all samples."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.derive.targets import Source, write_loss_grad
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.passes.convolutions import flat_planes, merge_samples, turned_convolutions
from edge_sdk.models.rules.windows import few_positions
from edge_sdk.models.rules.windows.few_positions import select_taps
from edge_sdk.models.rules.windows.window import Window
from tests.models.module_check import export_net, measure_exported


def make_net() -> nn.Module:
    """Convolutions with padding, stride, dilation and neither, on planes of (5, 6) that become (2, 2)."""
    torch.manual_seed(0)
    body = [
        nn.Conv2d(6, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 6, 3, (1, 2), (2, 1), bias=False),
        nn.Conv2d(6, 5, (2, 1), dilation=(3, 1)), nn.Conv2d(5, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, 1, 2),
    ]  # fmt: skip
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(24, 3))


def list_operators(forward, net) -> list[str]:
    source = Source(forward, {"theta": lay_out_parameters(net)})
    return [n.op for n in write_loss_grad(source, "cross_entropy").graph.nodes]


def test_gradients_are_torchs_and_no_convolution_is_left(monkeypatch):
    def fits(window, *sizes):
        return window.group == 1

    for other in (flat_planes, turned_convolutions):  # which have adjoints of their own
        monkeypatch.setattr(other, "gains", lambda *given: False)
    monkeypatch.setattr(few_positions, "has_few_positions", fits)
    net = make_net()
    exported = export_net(net, (6, 5, 6))
    assert measure_exported(*exported) <= 1e-9  # the input's adjoint as a product, the rest as a convolution
    assert "ConvTranspose" not in list_operators(exported[2], net)
    monkeypatch.setattr(merge_samples, "has_few_positions", fits)
    assert measure_exported(*exported) <= 1e-9
    assert not {"Conv", "ConvTranspose"} & set(list_operators(exported[2], net))


def test_a_layer_with_few_weights_stays_a_convolution():
    net = nn.Sequential(nn.Conv2d(6, 5, 3, padding=1), nn.Flatten(), nn.Linear(20, 3)).eval()
    assert "Conv" in list_operators(export_net(net, (6, 2, 2))[2], net)


@pytest.mark.parametrize(
    ("window", "inputs", "outputs", "fits"),
    [
        (Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), (2, 2), (2, 2), True),
        (Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), (5, 5), (5, 5), False),  # 25 positions
        (Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 2), (2, 2), (2, 2), False),  # two groups
        (Window((9, 9), (5, 5), (4, 4), (4, 4), (1, 1)), (20, 20), (4, 4), False),  # a large constant
    ],
)
def test_it_is_chosen_by_positions_weights_and_the_size_of_the_constant(window, inputs, outputs, fits):
    sw = (512, 512 // window.group, *window.kernel)
    assert few_positions.has_few_positions(window, sw, inputs, outputs) == fits


def test_the_matrix_of_ones_gives_the_columns_of_a_plane():
    window = Window((3, 2), (2, 1), (1, 0), (1, 1), (1, 2))
    x = torch.randn(2, 1, 5, 4, dtype=torch.float64)
    outputs = (3, 3)
    seen = x.reshape(2, 20).numpy() @ select_taps(window, (5, 4), outputs)
    padded = F.pad(x, (0, 1, 1, 1))
    columns = F.unfold(padded, (3, 2), dilation=(1, 2), stride=(2, 1))  # (2, taps, positions)
    np.testing.assert_array_equal(seen.reshape(2, 9, 6), columns.numpy().transpose(0, 2, 1))
