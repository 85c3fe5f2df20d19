"""Graphs that take the tensors of theta one by one: the same bits as with theta as a whole, wherever it lies."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from edge_sdk.algebra.vectors import Slot
from edge_sdk.model.bundle import BundleError, parse
from edge_sdk.model.model import Model
from edge_sdk.model.sessions.form_session import TensorSession
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.model.theta_tensors import TENSORS, read_tensors, tensor_part
from edge_sdk.models.bundle import tensor_graphs
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import tensors
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode, ScanBody
from edge_sdk.models.ir.shapes import BatchDim
from edge_sdk.models.ir.specification.spec import Spec
from tests.model.bundle_files import repacked
from tests.models.blocked_layout import skip_without_blocks

BATCH = 5
LIMITS = {"LEAST": tensors.LEAST, "EACH": tensors.EACH}


class Recurrent(nn.Module):
    """An LSTM, whose steps are the body of a Scan that reads weights from outside."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class Tied(nn.Module):
    """One weight used in two shapes, a parameter that the output does not depend on, and weight normalisation."""

    def __init__(self):
        super().__init__()
        self.first, self.idle = nn.Linear(6, 7), nn.Parameter(torch.ones(3))
        self.body = nn.utils.parametrizations.weight_norm(nn.Linear(7, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        h = torch.tanh(self.body(torch.relu(self.first(x))))
        return self.head(h @ self.first.weight.T @ self.first.weight)


def attention():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    return nn.Sequential(nn.Linear(4, 8), layer, nn.Flatten(), nn.Linear(48, 3))


def planes():
    body = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(32 * 16, 3))


NETWORKS = {
    "planes": (planes, (3, 8, 8), {"blocked": True}),
    "statistics of the batch": (planes, (3, 8, 8), {"norm": "batch"}),
    "statistics in theta": (planes, (3, 8, 8), {"norm": "running"}),
    "recurrent": (Recurrent, (6, 3), {}),
    "attention": (attention, (6, 4), {"features": "2"}),
    "tied": (Tied, (6,), {}),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(), nn.Linear(9, 3)), (6,), {"dropout": "keep"}),
}


@pytest.fixture(scope="module")
def always():
    """Every bundle has the second forms, however small it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "LEAST", 0)
        patch.setattr(tensors, "EACH", 0)
        yield


def bundle_of(build, shape, **settings):
    torch.manual_seed(3)
    with skip_without_blocks():
        return parse(compile_module(build().eval(), Spec("net", shape, 3, **settings)).data)


@pytest.fixture(scope="module", params=NETWORKS)
def bundle(request, always):
    build, shape, settings = NETWORKS[request.param]
    return bundle_of(build, shape, **settings)


@pytest.fixture(scope="module")
def dense(always):
    return bundle_of(*NETWORKS["tied"][:2])


def feeds_of(bundle, graph):
    """Random values for all inputs of a graph with theta as a whole."""
    random, found = np.random.default_rng(4), {}
    for value in bundle.manifest["graphs"][graph]["inputs"]:
        shape = [BATCH if size == "B" else size for size in value["shape"]]
        found[value["name"]] = random.standard_normal(shape).astype(np.float32)
    found["theta"] = bundle.theta0 + random.normal(0, 0.01, bundle.theta0.size).astype(np.float32)
    if bundle.buffers0.size and "buffers" in found:
        found["buffers"] = bundle.buffers0
    return found | ({"y": random.integers(0, 3, BATCH)} if "y" in found else {})


def whole(bundle, graph):
    return OnnxSession(graph, bytes(bundle.parts[f"{graph}.onnx"]), 1)


def bits(values):
    return [np.asarray(value).tobytes() for value in values]


def test_every_graph_gives_the_bits_of_the_one_with_theta_as_a_whole(bundle):
    model, compared = Model(bundle, kernels="portable"), []  # a blocked graph is asked for by its whole name
    for graph, entry in bundle.manifest["graphs"].items():
        if TENSORS in entry:
            feeds, session = feeds_of(bundle, graph), model.session(graph)
            assert isinstance(session, TensorSession) and {*session.inputs} == {*feeds}
            assert bits(session.run(feeds)) == bits(whole(bundle, graph).run(feeds)), graph
            compared.append(graph)
    assert {"predict", "loss_grad", "vjp"} <= {*compared}
    others = {*bundle.manifest["graphs"]} - {*compared}
    assert all("Split" not in operators(bundle, graph) for graph in others), "it cuts theta, and has no second form"


def operators(bundle, graph):
    """Operators that read theta."""
    nodes = onnx.load_from_string(bytes(bundle.parts[f"{graph}.onnx"])).graph.node
    return {node.op_type for node in nodes if "theta" in node.input}


def test_a_second_form_neither_takes_nor_cuts_theta(bundle):
    for graph, entry in bundle.manifest["graphs"].items():
        if TENSORS in entry:
            form = onnx.load_from_string(bytes(bundle.parts[tensor_part(graph)])).graph
            names = {value.name for value in form.input}
            assert "theta" not in names and {one["name"] for one in entry[TENSORS]} <= names


def test_blocked_graphs_and_those_of_groups_have_one(always):
    made = bundle_of(*NETWORKS["planes"][:2], blocked=True, groups={"body": "0,1,3", "head": "6"})
    having = {graph for graph, entry in made.manifest["graphs"].items() if TENSORS in entry}
    assert {"loss_grad+blocked", "predict+blocked", "loss_grad@body", "loss_grad@head"} <= having


def test_the_body_of_a_scan_reads_a_tensor_by_its_new_name_and_an_idle_one_is_no_input():
    g = OnnxGraph()
    g.input("theta", (6,))
    g.input("x", (BatchDim(), 2))
    _, piece = g.ops("Split", "theta", g.ints([2, 4]), shapes=[(2,), (4,)], axis=0)
    weight = g.op("Reshape", piece, g.ints([2, 2]), shape=(2, 2))
    product = OnnxNode("MatMul", ["row", weight], ["out"])
    body = ScanBody((product,), (("row", (2,)),), (("out", (2,)),))
    g.op("Scan", "x", shape=(BatchDim(), 2), output="y", body=body, num_scan_inputs=1)
    target = Target(g, ["y"])
    found = tensors.separate_tensors(target, [Slot("idle", (2,), 0), Slot("weight", (2, 2), 2)])
    assert found.slots == {"theta.weight": "weight"}
    x, theta = np.ones((3, 2), np.float32), np.arange(6, dtype=np.float32)
    wanted = RunnableGraph(target.model())({"x": x, "theta": theta})["y"]
    given = {"x": x, "theta.weight": theta[2:].reshape(2, 2)}
    assert np.array_equal(RunnableGraph(found.target.model())(given)["y"], wanted)


def test_a_graph_that_does_more_with_theta_has_no_second_form():
    g = OnnxGraph()
    g.input("theta", (6,))
    parts = g.ops("Split", "theta", g.ints([2, 4]), shapes=[(2,), (4,)], axis=0)
    g.op("Concat", *parts, "theta", shape=(12,), output="y", axis=0)
    assert tensors.separate_tensors(Target(g, ["y"]), [Slot("a", (2,), 0), Slot("b", (4,), 2)]) is None


def test_tensors_are_views_of_theta_and_of_a_copy_where_it_begins_elsewhere(dense):
    """Some sums of onnxruntime depend on where a tensor begins: those of all vectors begin as numpy's arrays do."""
    taken = read_tensors("loss_grad", dense.manifest["graphs"]["loss_grad"], dense.layout)
    memory = np.zeros(dense.theta0.size + 8, np.float32)
    first = -memory.ctypes.data % 16 // 4
    vectors = [memory[first + shift :][: dense.theta0.size] for shift in range(4)]
    vectors.append(np.zeros((dense.theta0.size, 2), np.float32)[:, 0])
    for place, theta in enumerate(vectors):
        cut = taken.cut(theta)
        assert all(np.shares_memory(theta, one) == (place == 0) for one in cut.values())
        starts = [one.ctypes.data - 4 * part.span.start for one, part in zip(cut.values(), taken.each, strict=True)]
        assert all(start % 16 == 0 for start in starts)


def test_theta_is_read_at_each_step_wherever_it_is(dense):
    model, plain = Model(dense), whole(dense, "loss_grad")
    feeds = feeds_of(dense, "loss_grad")
    x, y, theta = feeds["x"], feeds["y"], feeds["theta"]
    gradient = model.grad_fn(x, y)
    weights = {"weights": np.full(BATCH, 1 / BATCH, np.float32)}
    seen = [gradient(theta)]
    theta *= np.float32(0.5)  # in place
    seen.append(gradient(theta))
    wide = np.zeros((theta.size, 2), np.float32)
    wide[:, 1] = theta
    for other in (theta, theta.copy(), np.append(np.float32(0), theta)[1:], wide[:, 1]):
        wanted = plain.run({**feeds, **weights, "theta": np.ascontiguousarray(other)})
        assert bits(gradient(other)[1:]) == bits(wanted[1:])
    assert not np.array_equal(seen[0][1], seen[1][1])


def test_a_gradient_stays_what_it_was(dense):
    model = Model(dense)
    feeds = feeds_of(dense, "loss_grad")
    gradient, kept, copies = model.grad_fn(feeds["x"], feeds["y"]), [], []
    for step in range(6):
        found = gradient(feeds["theta"] * np.float32(1 + step))[1]
        kept.append(found[3:].reshape(1, -1))
        copies.append(kept[-1].copy())
    assert bits(kept) == bits(copies) and len({*bits(kept)}) == 6


def test_theta_of_another_size_is_an_error_of_the_bundle(dense):
    session, feeds = Model(dense).session("loss_grad"), feeds_of(dense, "loss_grad")
    for wrong in (feeds["theta"][:-1], np.append(feeds["theta"], feeds["theta"][:1]), feeds["theta"][:, None]):
        with pytest.raises(BundleError, match="theta"):
            session.run({**feeds, "theta": wrong})
    with pytest.raises(BundleError, match="onnxruntime failed"):
        session.run({**feeds, "theta": feeds["theta"].astype(np.float64)})


def first(entries, **changed):
    return [{**entries[0], **changed}, *entries[1:]]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda t: first(t, slot="nothing"), "slot 'nothing' is not in the layout"),
        (lambda t: first(t, slot=None), "slot 'None' is not in the layout"),
        (lambda t: first(t, slot=["a"]), "malformed"),
        (lambda t: first(t, shape=[7, 7]), "is no shape of the"),
        (lambda t: first(t, shape=[-7, -6]), "is no shape of the"),
        (lambda t: first(t, shape=["B", 6]), "is no shape of the"),
        (lambda t: first(t, shape=[True, 42]), "is no shape of the"),
        (lambda t: first(t, shape=[1 << 40, 1 << 40]), "is no shape of the"),
        (lambda t: first(t, name=5), "have this name"),
        (lambda t: [*t, t[0]], "have this name"),
        (lambda t: {"a": 1}, "must be a list"),
        (lambda t: [1], "malformed"),
    ],
)
def test_a_list_that_does_not_fit_the_layout_is_refused_when_it_is_read(dense, change, error):
    manifest = json.loads(json.dumps(dense.manifest))
    entry = manifest["graphs"]["loss_grad"]
    entry[TENSORS] = change(entry[TENSORS])
    with pytest.raises(BundleError, match=error) as caught:
        parse(repacked(dense, manifest))
    assert "malformed" in str(caught.value) or "graphs.loss_grad" in str(caught.value)


def test_a_list_that_does_not_fit_the_graph_is_refused_before_it_runs(dense):
    """Here the graph's inputs are others than the list's: of another name, another shape, or one more."""
    for change, error in (
        (lambda t: first(t, name="other"), "no input 'other'"),
        (lambda t: first(t, shape=[*reversed(t[0]["shape"])]), "dimensions"),
        (lambda t: t[1:], "the manifest says"),
    ):
        manifest = json.loads(json.dumps(dense.manifest))
        entry = manifest["graphs"]["loss_grad"]
        assert entry[TENSORS][0]["shape"] != entry[TENSORS][0]["shape"][::-1]
        entry[TENSORS] = change(entry[TENSORS])
        with pytest.raises(BundleError, match=error):
            Model(parse(repacked(dense, manifest)))


def test_a_list_without_its_graph_is_refused(dense):
    parts = {k: v for k, v in dense.parts.items() if k != tensor_part("loss_grad")}
    short = type(dense)(dense.manifest, parts, dense.layout, dense.buffers, dense.sha256)
    with pytest.raises(BundleError, match=r"graph 'loss_grad' has no part loss_grad\.tensors\.onnx"):
        parse(repacked(short))


def test_a_second_form_is_scanned_as_the_first_is(dense):
    hostile = onnx.load_from_string(bytes(dense.parts[tensor_part("loss_grad")]))
    hostile.graph.node[0].domain = "elsewhere"
    with pytest.raises(BundleError, match="uses custom operators, of elsewhere"):
        parse(repacked(dense, loss_grad__tensors__onnx=hostile.SerializeToString()))


def test_a_form_that_rounds_differently_is_left_out_and_said(always, monkeypatch):
    def shifted(target, slots):
        """A form whose first tensor is doubled."""
        graph = tensors.separate_tensors(target, slots)
        if "grad" in target.outputs and graph is not None:
            name = next(iter(graph.slots))
            g = graph.target.graph
            nodes, g.nodes = g.nodes, []
            g.op("Add", name, name, shape=g.shape(name), output="twice")
            tensors.rename(nodes, {name: "twice"})
            g.nodes += nodes
        return graph

    monkeypatch.setattr(tensor_graphs, "separate_tensors", shifted)
    said = []
    made = compile_module(Tied().eval(), Spec("net", (6,), 3), said.append)
    having = {graph for graph, entry in parse(made.data).manifest["graphs"].items() if TENSORS in entry}
    assert having == {"predict"}
    assert [text for text in said if text.startswith("loss_grad: is rounded differently")]


def test_a_small_model_has_none(monkeypatch):
    for name, value in LIMITS.items():
        monkeypatch.setattr(tensors, name, value)
    made = bundle_of(*NETWORKS["tied"][:2])
    assert not [graph for graph, entry in made.manifest["graphs"].items() if TENSORS in entry]
    assert not [name for name in made.parts if TENSORS in name]
