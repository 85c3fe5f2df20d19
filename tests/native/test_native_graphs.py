"""Native forms at work: used where the library has their operators and they are right; else it is said why not."""

from __future__ import annotations

import json
import logging

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="the models are compiled with it")

import edge_sdk.model.sessions.self_test
from edge_sdk.model.bundle import BundleError, parse
from edge_sdk.model.forms import NATIVE, has_native, native_part
from edge_sdk.model.model import Model
from edge_sdk.model.predictor import make_predictor
from edge_sdk.model.sessions import operator_probe
from edge_sdk.model.sessions.kernels import KernelChoice
from edge_sdk.model.sessions.operator_probe import OPERATORS, PROGRAM, check_operators
from edge_sdk.models.bundle import native_graphs
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import CompileError, ParityError
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.native.elementwise_program import CHAINED, DIRECT
from edge_sdk.tools.bundle_commands import verify
from tests.model.bundle_files import repacked
from tests.models.native_forms import SHAPE, bundle_of, compile_planes, with_tensors, wrong_form
from tests.models.test_theta_tensors import NETWORKS, Recurrent
from tests.native.libraries import compile_old_library
from tests.native.test_choice import use

BATCH = 7


@pytest.fixture(scope="module")
def bundle():
    return bundle_of(blocked=True)


@pytest.fixture(scope="module")
def large():
    return with_tensors()


def feeds_of(model, graph):
    """Random values for all inputs of a graph but theta."""
    random, found = np.random.default_rng(4), {}
    for value in model.bundle.manifest["graphs"][graph]["inputs"]:
        shape = [BATCH if size == "B" else size for size in value["shape"]]
        found[value["name"]] = random.standard_normal(shape).astype(np.float32)
    found |= {"theta": model.theta0, "weights": np.full(BATCH, 1 / BATCH, np.float32)}
    return found | {"y": random.integers(0, 3, BATCH)}


def check_alike(bundle, choice):
    """Checks that all graphs give what the portable ones give."""
    fast, plain = Model(bundle), Model(bundle, kernels="portable")
    assert (fast.choice, fast.fallback) == (choice, "")
    for graph in bundle.manifest["graphs"]:
        if "+" not in graph:
            feeds = feeds_of(plain, graph)
            for got, want in zip(fast.run(graph, feeds, None), plain.run(graph, feeds, None), strict=True):
                assert got.shape == want.shape
                assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want) + 1e-12, graph


# -- where they are right ----------------------------------------------------------------------------------------------


def test_native_forms_of_blocked_graphs_are_used_and_compute_the_same(best, bundle):
    check_alike(bundle, KernelChoice(best, blocked=True, native=True))


def test_those_that_take_the_tensors_of_theta(best, large):
    check_alike(large, KernelChoice(best, native=True))
    session = Model(large).session("loss_grad")
    assert session.inputs[0] == "theta" and session.tensors.each


@pytest.mark.parametrize("name", ["recurrent", "statistics of the batch", "attention", "dropout"])
def test_other_networks(best, name):
    build, shape, settings = NETWORKS[name]
    made = parse(compile_module(build().eval(), Spec("m", shape, 3, native=True, **settings), search=0).data)
    assert any(has_native(entry) for entry in made.manifest["graphs"].values())
    model = Model(made)
    assert model.choice == KernelChoice(best, native=True)
    if name not in ("statistics of the batch", "dropout"):
        check_alike(made, model.choice)


@pytest.mark.parametrize("kind", ["auto", "native"])
def test_small_models_have_them_with_onnxruntimes_products(best, portable, kind, monkeypatch):
    monkeypatch.setattr("edge_sdk.model.sessions.kernels.ENOUGH", 1 << 30)
    choice = KernelChoice(best, native=True, products=False)
    check_alike(portable, choice)
    model = Model(portable, kernels=kind)
    assert model.choice == choice
    assert model.choice.describe().endswith(" on native portable graphs, with onnxruntime's products")
    monkeypatch.setattr("edge_sdk.model.sessions.native.MEASURED", frozenset())
    assert Model(portable).choice == KernelChoice()


def test_a_predictor_gives_what_predict_gives(best, portable):
    model = Model(portable)
    x = np.random.default_rng(0).standard_normal((1, *SHAPE)).astype(np.float32)
    assert np.array_equal(make_predictor(model, model.theta0)(x), model.predict(model.theta0, x))


def test_what_is_used_is_said(best, tmp_path):
    path = tmp_path / "m.bundle"
    path.write_bytes(compile_planes(blocked=True))
    assert "native kernels (auscult-native" in verify(path) and "on native blocked graphs" in verify(path)


def test_the_probe_has_every_operator_and_passes(library):
    """All that the compiler writes; sums, loops and gradients of weights are compared by the golden vectors."""
    assert {*OPERATORS} == DIRECT | {*CHAINED.values()} | {"HardSigmoid"}
    assert {line.split()[0] for line in PROGRAM} >= {*OPERATORS}
    check_operators(library, products=True)


# -- where they are wrong ----------------------------------------------------------------------------------------------


def test_the_compiler_compares_them(best):
    said = []
    compile_planes(said.append)
    assert [text for text in said if text.startswith("native: at most ") and "auscult-native" in text]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_graphs, "native_form", wrong_form)
        with pytest.raises(ParityError, match=r"the native form of \w+, float32"):
            compile_planes()


def test_the_compiler_refuses_a_library_that_cannot_run_them(tmp_path, monkeypatch):
    old = compile_old_library(tmp_path)
    monkeypatch.setattr(native_graphs, "find_library", lambda: str(old))
    with pytest.raises(CompileError, match=r"auscult-native has no operators .*; .*AUSCULT_NATIVE=0"):
        compile_planes()


@pytest.fixture(scope="module")
def wrong():
    """Parts of native forms that are wrong, written where nothing was compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUSCULT_NATIVE", "0")
        patch.setattr(native_graphs, "native_form", wrong_form)
        made = bundle_of()
    return {name: part for name, part in made.parts.items() if NATIVE in name}


def with_wrong(bundle, wrong, graph):
    return parse(repacked(bundle, **{native_part(graph).replace(".", "__"): wrong[native_part(graph)]}))


@pytest.fixture(scope="module")
def portable():
    return bundle_of()


@pytest.mark.parametrize(("kind", "left"), [("auto", "native"), ("native", "native")])
def test_the_golden_vectors_find_a_wrong_gradient(best, portable, wrong, kind, left, caplog):
    with caplog.at_level(logging.WARNING):
        model = Model(with_wrong(portable, wrong, "loss_grad"), kernels=kind)
    assert (model.choice, model.kernels) == (KernelChoice(best), left)
    assert "the golden vectors fail" in model.fallback and "on portable graphs are used: " in caplog.text


@pytest.mark.parametrize("graph", ["vjp", "loss_grad@0", "features_vjp"])
def test_other_graphs_are_compared_when_they_are_first_used(best, portable, wrong, graph, caplog):
    made = with_wrong(portable, wrong, graph)
    model, plain = Model(made), Model(made, kernels="portable")
    assert model.choice.native and not model.fallback
    with caplog.at_level(logging.WARNING):
        session = model.session(graph)
    assert f"m: {graph} is not run in its native form: its native form is off by" in caplog.text
    feeds = {name: value for name, value in feeds_of(model, graph).items() if name in session.inputs}
    for got, want in zip(session.run(feeds), plain.session(graph).run(feeds), strict=True):
        assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
    with pytest.raises(BundleError, match="its native form is off by"):
        Model(made, kernels="native").session(graph)


def test_a_form_of_another_graph_is_not_run(best, portable, caplog):
    other = bytes(portable.parts["loss_grad.native.onnx"])
    model = Model(parse(repacked(portable, vjp__native__onnx=other)))
    with caplog.at_level(logging.WARNING):
        model.session("vjp")
    reason = "vjp is not run in its native form: graph 'vjp' has the inputs theta, weights, x, y; the manifest says "
    assert reason in caplog.text and reason in model.fallback


@pytest.mark.parametrize("change", ["one dropped", "two exchanged"])
def test_outputs_that_others_would_be_taken_for_are_found_first(best, portable, change):
    graph = onnx.load_from_string(bytes(portable.parts["loss_grad.native.onnx"]))
    outputs = [*graph.graph.output]
    del graph.graph.output[:]
    graph.graph.output.extend(outputs[:1] if change == "one dropped" else outputs[::-1])
    model = Model(parse(repacked(portable, loss_grad__native__onnx=graph.SerializeToString())))
    assert model.choice == KernelChoice(best) and "graph 'loss_grad' has the outputs" in model.fallback


@pytest.mark.parametrize("change", ["another input", "another output"])
def test_plain_forms_that_are_not_as_the_manifest_says_are_refused(best, portable, change):
    """When the native form is compared with them."""
    graph = onnx.load_from_string(bytes(portable.parts["vjp.onnx"]))
    manifest = json.loads(json.dumps(portable.manifest))
    if change == "another output":
        graph.graph.output.append(graph.graph.output[0])
        graph.graph.output[-1].name = "more"
        graph.graph.node.append(onnx.helper.make_node("Identity", [graph.graph.output[0].name], ["more"]))
        made = {"vjp__onnx": graph.SerializeToString()}
    else:  # in both forms, and in the manifest
        manifest["graphs"]["vjp"]["inputs"].append({"name": "q", "shape": [1]})
        forms = graph, onnx.load_from_string(bytes(portable.parts["vjp.native.onnx"]))
        for each in forms:
            each.graph.input.append(onnx.helper.make_tensor_value_info("q", 1, [1]))
        names = ("vjp__onnx", "vjp__native__onnx")
        made = {name: each.SerializeToString() for name, each in zip(names, forms, strict=True)}
    model = Model(parse(repacked(portable, manifest, **made)))
    with pytest.raises(BundleError, match=r"graph 'vjp' (has the outputs|wants q)"):
        Model(model.bundle, kernels="native").session("vjp")


def test_a_loss_that_is_off_is_not_hidden_by_the_size_of_the_gradient(best, portable):
    """That of a group, whose gradient is compared beside the whole one."""
    graph = onnx.load_from_string(bytes(portable.parts["loss_grad@0.native.onnx"]))
    node = next(node for node in graph.graph.node if "loss" in node.output)
    node.output[[*node.output].index("loss")] = "own"
    graph.graph.node.append(onnx.helper.make_node("Add", ["own", "more"], ["loss"]))
    limit, golden = portable.manifest["golden"]["tolerance"]["grad"], portable.golden()
    more = 1.2 * limit * golden["out.loss"].item()
    assert more < limit * np.linalg.norm(golden["out.grad_norms"])  # which would hide it
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(more), "more"))
    model = Model(parse(repacked(portable, **{"loss_grad@0__native__onnx": graph.SerializeToString()})))
    model.session("loss_grad@0")
    assert "is off by" in model.fallback and "in loss" in model.fallback


def test_operators_that_are_wrong_are_found_by_the_probe(best, portable, monkeypatch):
    monkeypatch.setitem(operator_probe.OPERATORS, "Tanh", np.sinh)  # as if the library had another one
    model = Model(portable)
    assert model.choice == KernelChoice(best)
    assert "the operators of auscult-native are wrong on this machine" in model.fallback


def test_an_older_library_gives_its_products(tmp_path, portable, monkeypatch, caplog):
    old = compile_old_library(tmp_path)
    use(old, monkeypatch)
    with caplog.at_level(logging.WARNING):
        models = [Model(portable), Model(portable, kernels="native")]
    for model in models:
        assert model.choice == KernelChoice(str(old))
        assert "auscult-native has no operators for native graphs; install the version" in model.fallback
    monkeypatch.setattr("edge_sdk.model.sessions.kernels.ENOUGH", 1 << 30)
    small = Model(portable)
    assert small.choice == KernelChoice() and "has no operators" in small.fallback


def test_a_program_that_the_library_does_not_know(best, portable):
    """As that of a later version."""
    graph = onnx.load_from_string(bytes(portable.parts["loss_grad.native.onnx"]))
    node = next(node for node in graph.graph.node if node.op_type == "Elementwise")
    node.attribute[0].s = node.attribute[0].s.replace(b"\nMul", b"\nLater", 1)
    made = parse(repacked(portable, loss_grad__native__onnx=graph.SerializeToString()))
    model = Model(made)
    assert model.choice == KernelChoice(best) and "onnxruntime" in model.fallback


def test_portable_forms_where_the_layout_is_another(best, bundle, monkeypatch):
    monkeypatch.setattr(edge_sdk.model.sessions.self_test, "BLOCKS", ())
    assert Model(bundle).choice == KernelChoice(best, native=True)


def test_without_the_golden_vectors_none_is_used(best, bundle):
    model = Model(bundle, check=False)
    assert model.choice == KernelChoice() and "after the golden vectors have passed" in model.fallback


@pytest.mark.parametrize("kind", ["auto", "portable", "blocked"])
def test_a_variable_turns_them_off(bundle, kind, monkeypatch):
    monkeypatch.setenv("AUSCULT_NATIVE", "0")
    model = Model(bundle, kernels=kind)
    assert not model.choice.library and not model.choice.native and model.fallback == ""


def test_loops_of_recurrent_layers_are_among_them(best):
    made = parse(compile_module(Recurrent().eval(), Spec("m", (6, 3), 3, native=True), search=0).data)
    nodes = onnx.load_from_string(bytes(made.parts["loss_grad.native.onnx"])).graph.node
    assert {"LstmLoop", "LstmLoopGradient"} <= {node.op_type for node in nodes}
