"""The pieces of the gradient are the last nodes, the last layer's at the end; what is computed stays the same."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module, make_example
from edge_sdk.models.derive import targets
from edge_sdk.models.derive.targets import Source
from edge_sdk.models.frontend.tracing.export import export_forward, shorten_recurrences
from edge_sdk.models.ir.proto import select_needed
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.ir.specification.spec import DataInput, Spec


class NormFirst(nn.Module):
    """Named in another order than it runs: the norm last, as in torch's transformer layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(4, 8), nn.Linear(8, 3), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(self.norm(x))))


def test_pieces_of_the_gradient_come_last_and_those_of_the_last_layer_at_the_end():
    net = NormFirst().eval()
    slots = lay_out_parameters(net)
    forward = export_forward(net, slots, ["x"], [make_example(DataInput("x", (4,)))])
    target = targets.write_loss_grad(Source(forward, {"theta": slots}), "cross_entropy")
    *_, joined, last = select_needed(target.graph, target.outputs)
    assert (joined.op, last.outputs) == ("Concat", ["grad"])
    order = [o for n in select_needed(target.graph, target.outputs) for o in n.outputs]
    places = {s.name.split(".")[0]: [] for s in slots}
    for slot, piece in zip(slots, joined.inputs, strict=True):
        places[slot.name.split(".")[0]].append(order.index(piece))
    assert max(places["norm"]) < min(places["first"])
    assert max(places["first"]) < min(places["last"])
    every = sorted(p for layer in places.values() for p in layer)
    assert every == list(range(every[0], every[0] + len(slots)))


def test_torch_walks_one_step_of_a_recurrence_and_is_itself_again_after():
    layer = torch._decomp.decompositions.one_layer_rnn
    with shorten_recurrences():
        assert torch._decomp.decompositions.one_layer_rnn is not layer
    assert torch._decomp.decompositions.one_layer_rnn is layer


class Long(nn.Module):
    """A recurrence of 200 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


def test_long_recurrences_compile_to_one_operator():
    torch.manual_seed(0)
    made = compile_module(Long().eval(), Spec("long", (200, 3)))
    assert made.nodes["loss_grad"] < 200
    assert np.isfinite(list(made.errors.values())).all()
