"""LSTMs in training graphs: a loop that gives its gates, so that the backward pass computes nothing of it again."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.tracing.explain import explain_forward
from edge_sdk.models.ir.specification.spec import Spec
from tests.models.module_check import export_net


class Tagger(nn.Module):
    """A convolution, LSTMs, and a head on the last hidden and cell states of the last layer."""

    def __init__(self, layers: int, both: bool) -> None:
        super().__init__()
        self.body = nn.Conv1d(3, 4, 3, padding=1)
        self.lstm = nn.LSTM(4, 5, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen, (h, c) = self.lstm(self.body(x).transpose(1, 2))
        return self.head(torch.cat([h[-1] + seen.mean((1, 2), keepdim=True)[:, 0], c[-1]], 1))


@pytest.fixture(scope="module", params=[(1, False), (2, False), (1, True)], ids=["one", "two", "both directions"])
def form(request):
    """The number of layers, and whether there are both directions."""
    return request.param


@pytest.fixture(scope="module")
def bundle(form):
    torch.manual_seed(3)
    return parse(compile_module(Tagger(*form).eval(), Spec("m", (3, 6))).data)


def list_operators(graph):
    return [n.op_type for n in graph.node] + [
        op for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH for op in list_operators(a.g)
    ]


def test_the_forward_pass_is_run_once(bundle, form):
    training, predicting = (
        list_operators(onnx.load_from_string(bytes(bundle.parts[name])).graph)
        for name in ("loss_grad.onnx", "predict.onnx")
    )
    layers, both = form
    loops = layers * (1 + both)
    assert training.count("Scan") == 2 * loops  # one forwards, one back
    assert "LSTM" in predicting and "LSTM" not in training and "Scan" not in predicting
    assert training.count("Sigmoid") == loops
    assert training.count("Tanh") == 2 * loops


def test_the_loss_is_that_of_prediction_and_parts_are_those_of_the_whole(bundle):
    model, rng = Model(bundle), np.random.default_rng(4)
    x, y = rng.standard_normal((7, 3, 6)).astype(np.float32), np.arange(7) % 3
    loss, whole = model.loss_grad(model.theta0, x, y)
    z = torch.from_numpy(model.predict(model.theta0, x))
    assert loss == pytest.approx(float(nn.functional.cross_entropy(z, torch.from_numpy(y))), rel=1e-5)
    for group in {s.group for s in model.layout.slots}:
        want = np.concatenate([whole[s.span] for s in model.layout.slots if s.group == group])
        assert np.array_equal(model.loss_grad(model.theta0, x, y, group=group)[1], want)


def test_a_head_alone_needs_no_loop_back(bundle):
    graph = onnx.load_from_string(bytes(bundle.parts["loss_grad@head.onnx"])).graph
    whole = onnx.load_from_string(bytes(bundle.parts["loss_grad.onnx"])).graph
    assert list_operators(graph).count("Scan") == list_operators(whole).count("Scan") // 2


def test_an_lstm_is_explained_as_one_that_has_a_gradient():
    *_, forward = export_net(Tagger(1, False), (3, 6))
    told = "\n".join(explain_forward(forward))
    assert "LSTM" in told and "no rule" not in told
