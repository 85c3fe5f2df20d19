"""Native forms in a bundle: what is written, what is refused when it is read, and that others leave them alone."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge_sdk.model.bundle import BundleError, check_graph, parse
from edge_sdk.model.forms import NATIVE, NATIVE_DOMAIN, native_part
from edge_sdk.model.model import Model
from edge_sdk.model.sessions.kernels import KernelChoice
from edge_sdk.model.theta_tensors import TENSORS, tensor_part
from edge_sdk.models.bundle import native_graphs
from edge_sdk.models.cli import main
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.tools.bundle_commands import describe
from tests.model.bundle_files import assembled, repacked
from tests.models.native_forms import bundle_of, compile_planes, with_tensors

TRAINED = {"loss_grad", "vjp", "features_vjp", "loss_grad@0", "loss_grad@1"}


@pytest.fixture(scope="module")
def bundle():
    return bundle_of(blocked=True)


@pytest.fixture(scope="module")
def large():
    return with_tensors()


def graph_of(bundle, part):
    return onnx.load_from_string(bytes(bundle.parts[part])).graph


def having(bundle):
    return {name for name, entry in bundle.manifest["graphs"].items() if NATIVE in entry}


# -- what is written ---------------------------------------------------------------------------------------------------


def test_graphs_have_a_native_form_and_so_have_blocked_ones(bundle):
    found = having(bundle)
    assert {*TRAINED, "loss_grad+blocked"} <= found and "probe+blocked" not in found
    assert {native_part(name) for name in found} == {name for name in bundle.parts if NATIVE in name}
    for name in found:
        plain, native = graph_of(bundle, f"{name}.onnx"), graph_of(bundle, native_part(name))
        assert "Elementwise" in {node.op_type for node in native.node if node.domain == NATIVE_DOMAIN}
        assert NATIVE_DOMAIN not in {node.domain for node in plain.node}
        for side in ("input", "output"):
            assert [v.name for v in getattr(native, side)] == [v.name for v in getattr(plain, side)]


def test_the_form_of_a_large_model_takes_the_same_tensors(large):
    for name in having(large):
        second, native = (graph_of(large, part(name)) for part in (tensor_part, native_part))
        assert [v.name for v in native.input] == [v.name for v in second.input]
        listed = {one["name"] for one in large.manifest["graphs"][name][TENSORS]}
        assert listed and listed <= {v.name for v in native.input}
    assert having(large) >= TRAINED


def test_nothing_else_changes(bundle):
    """Without --native no pass is asked, and the file has the same graphs and no word of native ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_graphs, "native_form", None)
        plain = bundle_of(blocked=True, native=False)
    assert not having(plain) and not [name for name in plain.parts if NATIVE in name]
    for name, part in plain.parts.items():
        assert bytes(bundle.parts[name]) == bytes(part)
    manifest = json.loads(json.dumps(bundle.manifest))
    for entry in manifest["graphs"].values():
        entry.pop(NATIVE, None)
    assert {**manifest, "parts": 0} == {**plain.manifest, "parts": 0}


def test_the_compiler_says_what_they_add_and_that_they_were_not_run():
    said = []
    made = parse(compile_planes(said.append))
    size = sum(len(made.parts[native_part(name)]) for name in having(made))
    count, all_graphs = len(having(made)), len(made.manifest["graphs"])
    assert f"native: {count} of {all_graphs} graphs have a native form, {size:,} bytes more" in said
    assert [text for text in said if text.startswith("native: not run here, where there is no auscult-native")]


def test_a_network_without_any_says_so(monkeypatch):
    monkeypatch.setattr(native_graphs, "native_form", lambda target: None)
    said = []
    made = parse(compile_planes(said.append))
    assert not having(made)
    assert [text for text in said if text.startswith("native:")] == [
        f"native: 0 of {len(made.manifest['graphs'])} graphs have a native form, 0 bytes more"
    ]


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_form_with_other_inputs_or_outputs_is_no_bundle(side, monkeypatch):
    def change(target: Target) -> Target | None:
        if side == "output":
            return Target(target.graph, target.outputs[:1], target.slots) if len(target.outputs) > 1 else None
        value = next(value for value in target.outputs if value in target.graph.shapes)
        target.graph.shapes["more"], target.graph.dtypes["more"] = target.graph.shapes[value], "float"
        target.graph.inputs.append("more")
        return Target(target.graph, [*target.outputs[:-1], "more"], target.slots)

    monkeypatch.setattr(native_graphs, "native_form", change)
    with pytest.raises(CompileError, match=rf"the native form of \S+ has the {side}s .*, not "):
        compile_planes()


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compile", "mlp", "--native", "--search", "0", "-o", "m.bundle"]) == 0
    assert "graphs have a native form" in capsys.readouterr().out
    made = parse((tmp_path / "m.bundle").read_bytes())
    assert "loss_grad" in having(made)
    line = next(text for text in describe(made).splitlines() if "the same with operators of auscult-native" in text)
    assert line.split()[0] in having(made)


# -- where there is no library -----------------------------------------------------------------------------------------


def test_devices_without_the_library_leave_them_alone(bundle, large):
    assert (Model(bundle).choice, Model(bundle).fallback) == (KernelChoice(blocked=True), "")
    assert (Model(large).choice, Model(large).fallback) == (KernelChoice(), "")
    with pytest.raises(BundleError, match="there are no native products here"):
        Model(bundle, kernels="native")
    x, y = np.random.default_rng(0).standard_normal((5, 3, 8, 8)).astype(np.float32), np.arange(5) % 3
    losses = [model.loss_grad(model.theta0, x, y)[0] for model in (Model(bundle), Model(large))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


# -- what is refused when it is read -----------------------------------------------------------------------------------


def changed(bundle, graph, **entries):
    manifest = json.loads(json.dumps(bundle.manifest))
    manifest["graphs"][graph].update(entries)
    return manifest


def custom(domain):
    """A graph of one operator of a domain."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    node = helper.make_node("Elementwise", ["x"], ["y"], domain=domain, program="Inputs 1\nReturn 0")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def test_a_form_that_is_listed_but_not_there(bundle):
    parts = {name: part for name, part in bundle.parts.items() if name != "loss_grad.native.onnx"}
    with pytest.raises(BundleError, match=r"graph 'loss_grad' has no part loss_grad\.native\.onnx"):
        parse(assembled(bundle.manifest, parts))


@pytest.mark.parametrize("value", [False, None, 1, "yes", [], {"tensors": []}])
def test_what_does_not_say_that_there_is_one(bundle, value):
    with pytest.raises(BundleError, match=r"graphs\.loss_grad\.native = .*expected true, or nothing"):
        parse(repacked(bundle, changed(bundle, "loss_grad", native=value)))


@pytest.mark.parametrize("part", ["predict.onnx", "loss_grad+blocked.onnx", "loss_grad.tensors.onnx"])
def test_operators_of_the_library_elsewhere(bundle, large, part):
    kept = large if TENSORS in part else bundle
    with pytest.raises(BundleError, match="uses custom operators, of auscult"):
        parse(repacked(kept, **{part.replace(".", "__"): custom(NATIVE_DOMAIN)}))


def test_a_graph_whose_name_is_that_of_a_native_form(bundle):
    """It is a plain one: the form of a graph, not the name of a part, says what it may have."""
    manifest = json.loads(json.dumps(bundle.manifest))
    manifest["graphs"]["loss_grad.native"] = manifest["graphs"]["loss_grad"]
    with pytest.raises(BundleError, match=r"'loss_grad\.native' uses custom operators, of auscult"):
        parse(assembled(manifest, {**bundle.parts, "loss_grad.native.native.onnx": custom(NATIVE_DOMAIN)}))


@pytest.mark.parametrize("domain", ["evil", "com.microsoft", "com.microsoft.nchwc", "auscult.more", "Auscult"])
def test_other_operators_in_a_native_form(bundle, domain):
    with pytest.raises(BundleError, match=f"uses custom operators, of {domain}"):
        parse(repacked(bundle, loss_grad__native__onnx=custom(domain)))


def test_only_native_forms_of_blocked_graphs_have_onnxruntimes_operators():
    data = memoryview(custom("com.microsoft.nchwc"))
    check_graph("loss_grad+blocked", data, native=True)
    with pytest.raises(BundleError, match="custom operators"):
        check_graph("loss_grad", data, native=True)


@pytest.mark.parametrize("data", [b"", b"no graph", b"\xff" * 40])
def test_a_form_that_is_no_graph(bundle, data):
    with pytest.raises(BundleError, match="loss_grad"):
        parse(repacked(bundle, loss_grad__native__onnx=data))


def test_tensors_that_the_layout_has_not(large):
    entry = large.manifest["graphs"]["loss_grad"][TENSORS]
    listed = [{**entry[0], "slot": "nothing"}, *entry[1:]]
    with pytest.raises(BundleError, match="slot 'nothing' is not in the layout"):
        parse(repacked(large, changed(large, "loss_grad", tensors=listed)))
