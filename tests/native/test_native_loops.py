"""Recurrent networks in native form: what the graph consists of, and that it computes what the plain one does."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="the models are compiled with it")
from torch import nn  # noqa: E402

from edge_sdk.model.sessions.onnx_session import OnnxSession  # noqa: E402
from edge_sdk.models.bundle.compile import read_vectors  # noqa: E402
from edge_sdk.models.derive import targets  # noqa: E402
from edge_sdk.models.derive.targets import Target  # noqa: E402
from edge_sdk.models.derive.tensors import separate_tensors  # noqa: E402
from edge_sdk.models.ir.evaluation.reference import Evaluator  # noqa: E402
from edge_sdk.models.ir.specification.layout import lay_out_parameters  # noqa: E402
from edge_sdk.models.passes.native.native_nodes import use_native_nodes  # noqa: E402
from tests.models.module_check import export_net  # noqa: E402

STEPS, INPUTS, CLASSES = 6, 4, 3


class Reader(nn.Module):
    """A recurrent layer between a linear one and a head on its last states, and its whole sequence."""

    def __init__(self, cell: str, hidden: int, layers: int = 1, both: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.body = nn.Linear(INPUTS, 5)
        self.cell = getattr(nn, cell)(5, hidden, layers, batch_first=True, bidirectional=both, bias=bias)
        self.head = nn.Linear(hidden * (1 + both), CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen, last = self.cell(self.body(x))
        state = last[0][-1] + 0.5 * last[1][-1] if isinstance(last, tuple) else last[-1]
        return self.head(seen.mean(1)) + state.sum(1, keepdim=True)


class Started(Reader):
    """The same with first states that are learned from the input."""

    def __init__(self, cell: str, hidden: int, bias: bool = True) -> None:
        super().__init__(cell, hidden, bias=bias)
        self.start = nn.Linear(INPUTS, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.start(x[:, 0])).unsqueeze(0)
        given = (h, 2 * h) if isinstance(self.cell, nn.LSTM) else h
        return self.head(self.cell(self.body(x), given)[0][:, -1])


FORMS: dict[str, Any] = {
    "one layer of one unit": lambda cell: Reader(cell, 1),
    "two layers": lambda cell: Reader(cell, 16, 2),
    "both directions": lambda cell: Reader(cell, 5, both=True),
    "two layers of both": lambda cell: Reader(cell, 6, 2, both=True),
    "first states, no biases": lambda cell: Started(cell, 9, bias=False),
}
LOOPS = {"two layers": 2, "both directions": 2, "two layers of both": 4}
KINDS = [(cell, form) for cell in ("LSTM", "GRU") for form in FORMS]
PARTLY = ("two layers", "both directions")
"""Forms that "two layers of both" has in it."""


@cache
def write_source(cell: str, form: str) -> Any:
    torch.manual_seed(3)
    net, _, forward = export_net(FORMS[form](cell), (STEPS, INPUTS))
    slots = lay_out_parameters(net)
    theta = read_vectors(net, slots, [])["theta"]
    return targets.Source(forward, {"theta": slots}), slots, theta


def count_operators(target: Target) -> Counter[str]:
    return Counter(n.op_type for n in target.model().graph.node)


def run(target: Target, feeds: dict[str, Any], library: str = "") -> list[Any]:
    """The outputs in the order of the target's, in float32."""
    session = OnnxSession("net", target.model().SerializeToString(), 1, library=library)
    found = dict(zip(session.outputs, session.run({k: feeds[k] for k in session.inputs}), strict=True))
    return [found[name] for name in target.outputs]


def evaluate(target: Target, feeds: dict[str, Any]) -> list[Any]:
    """The same in float64, by the reference."""
    wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feeds.items()}
    found = Evaluator(target.model(double=True))(wide)
    return [found[name] for name in target.outputs]


def draw_feeds(theta: Any, batch: int) -> dict[str, Any]:
    rng = np.random.default_rng(batch)
    return {
        "theta": theta.astype(np.float32),
        "x": 2 * rng.standard_normal((batch, STEPS, INPUTS)).astype(np.float32),
        "y": rng.integers(0, CLASSES, batch),
        "weights": np.full(batch, 1 / batch, np.float32),
        "cotangent": rng.standard_normal((batch, CLASSES)).astype(np.float32),
    }


@pytest.mark.parametrize(
    ("cell", "form"),
    [pytest.param(*kind, marks=[pytest.mark.long] if kind[1] in PARTLY else []) for kind in KINDS],
)
def test_a_native_graph_computes_what_the_plain_one_does(best: str, cell: str, form: str):
    source, _, theta = write_source(cell, form)
    for plain in (targets.write_loss_grad(source, "cross_entropy"), targets.write_vjp(source)):
        native = use_native_nodes(plain)
        assert native is not None
        count, loops = count_operators(native), LOOPS.get(form, 1)
        name = cell.title() + "Loop"
        assert (count[name], count[name + "Gradient"], count["Scan"], count[cell]) == (loops, loops, 0, 0)
        assert count.total() < count_operators(plain).total()
        for batch in (1, 3, 11):
            feeds = draw_feeds(theta, batch)
            exact, rounded = evaluate(plain, feeds), run(plain, feeds)
            for want, near, got in zip(exact, rounded, run(native, feeds, best), strict=True):
                size = np.linalg.norm(want)
                assert np.linalg.norm(got - want) <= max(3 * np.linalg.norm(near - want), 1e-6 * size)
            for want, got in zip(exact, evaluate(native, feeds), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_it_can_be_made_of_a_graph_that_takes_tensors(best: str, cell: str):
    source, slots, theta = write_source(cell, "two layers")
    whole = targets.write_loss_grad(source, "cross_entropy")
    parts = separate_tensors(whole, slots)
    assert parts is not None
    native = use_native_nodes(parts.target)
    assert native is not None and count_operators(native)["Scan"] == 0
    feeds = draw_feeds(theta, 5)
    by_name = {s.name: s for s in slots}
    feeds |= {k: feeds["theta"][by_name[s].span].reshape(by_name[s].shape) for k, s in parts.slots.items()}
    for got, want in zip(run(native, feeds, best), run(whole, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("cell", "operator"), [("LSTM", "LstmLoop"), ("GRU", "GRU")])
def test_a_head_alone_has_the_forward_pass_only(best: str, cell: str, operator: str):
    """Of a GRU that is onnxruntime's operator, which is as fast, and nothing asks for its gates."""
    source, _, theta = write_source(cell, "one layer of one unit")
    plain = targets.write_loss_grad(source, "cross_entropy", ["head"])
    native = use_native_nodes(plain) or plain
    count = count_operators(native)
    assert count[operator] == 1 and not any(name.endswith("Gradient") or name == "Scan" for name in count)
    feeds = draw_feeds(theta, 4)
    for got, want in zip(run(native, feeds, best), run(plain, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_the_plain_graph_stays_as_it_is(cell: str):
    source, _, _ = write_source(cell, "both directions")
    plain = targets.write_loss_grad(source, "cross_entropy")
    before = plain.model().SerializeToString(deterministic=True)
    native = use_native_nodes(plain)
    assert native is not None and plain.model().SerializeToString(deterministic=True) == before
    assert "auscult" not in {n.domain for n in onnx.load_from_string(before).graph.node}
    assert native.model().SerializeToString() == use_native_nodes(plain).model().SerializeToString()  # type: ignore[union-attr]
    assert use_native_nodes(native) is None


def test_a_graph_without_loops_has_no_native_form():
    torch.manual_seed(0)
    net, _, forward = export_net(nn.Sequential(nn.Flatten(), nn.Linear(8, CLASSES)), (2, 4))
    source = targets.Source(forward, {"theta": lay_out_parameters(net)})
    assert use_native_nodes(targets.write_loss_grad(source, "cross_entropy")) is None
    assert use_native_nodes(targets.write_predict(source)) is None
