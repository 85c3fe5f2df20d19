"""Batch normalisation with fixed statistics, folded into the convolution before it."""

import pytest
import torch
from torch import nn

from edge_sdk.models.derive.targets import Source, write_loss_grad
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.layout import lay_out_buffers, lay_out_parameters
from edge_sdk.models.passes.convolutions import fold_norm
from tests.models.module_check import export_net, measure_exported


def make_net(bias: bool = False, affine: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    norms = nn.BatchNorm2d(4, affine=affine), nn.BatchNorm2d(6, eps=1e-2)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=bias), norms[0], nn.ReLU6(), nn.Conv2d(4, 6, 3, groups=2), norms[1],
        nn.Flatten(), nn.Linear(96, 3),
    )  # fmt: skip
    for norm in norms:
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    return net


def list_operators(net: nn.Module) -> list[str]:
    _, _, forward = export_net(net, (2, 6, 6))
    source = Source(forward, {"theta": lay_out_parameters(net)}, lay_out_buffers(net))
    return [n.op for n in write_loss_grad(source, "cross_entropy").graph.nodes]


@pytest.mark.parametrize(("bias", "affine"), [(False, True), (True, False)])
def test_gradients_are_torchs_and_no_norm_is_left(bias, affine):
    assert measure_exported(*export_net(make_net(bias, affine), (2, 6, 6))) <= 1e-9
    assert "BatchNormalization" not in list_operators(make_net(bias, affine))


def test_a_norm_with_more_weights_than_activations_stays():
    net = nn.Sequential(nn.Conv2d(64, 4, 6), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 3)).eval()
    _, _, forward = export_net(net, (64, 6, 6))
    source = Source(forward, {"theta": lay_out_parameters(net)}, lay_out_buffers(net))
    assert "BatchNormalization" in [n.op for n in source.copy_graph().nodes]


def test_a_convolution_that_somebody_else_reads_stays():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(64, 3)

        def forward(self, x):
            h = self.conv(x)
            return self.head((h + self.norm(h)).flatten(1))

    assert measure_exported(*export_net(Skip(), (2, 6, 6))) <= 1e-9


def test_a_mean_that_is_forgotten_is_caught(monkeypatch):
    original = fold_norm.write_folded

    def broken(g, conv, norm):
        original(g, conv, norm)
        node = g.makers[norm.outputs[0]]
        node.inputs[2] = norm.inputs[2]

    monkeypatch.setattr(fold_norm, "write_folded", broken)
    with pytest.raises(ParityError, match="float64"):
        measure_exported(*export_net(make_net(), (2, 6, 6)))
