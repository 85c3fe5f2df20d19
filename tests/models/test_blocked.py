"""Graphs in the blocked layout: the same numbers, and never without being asked, probed and said."""

import json
import logging

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

import edge_sdk.model.sessions.self_test
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import BundleError, parse
from edge_sdk.model.model import Model
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.model.sessions.self_test import check_layout
from edge_sdk.models.bundle import graphs
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.gate.references.blocks import find_block
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.convolutions.blocked import BLOCKS, write_probe
from tests.model.bundle_files import repacked
from tests.models.blocked_layout import skip_without_blocks


def net():
    torch.manual_seed(6)
    depthwise = nn.Conv1d(16, 16, 5, 2, 2, groups=16, bias=False)
    body = [nn.Conv1d(2, 16, 3, padding=1), nn.ReLU(), depthwise, nn.Conv1d(16, 32, 1), nn.GroupNorm(4, 32), nn.ReLU()]
    return nn.Sequential(*body, nn.Conv1d(32, 16, 3, padding=1), nn.Flatten(), nn.Linear(16 * 8, 3)).eval()


def plane_net():
    torch.manual_seed(6)
    body = [
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 16, 3, padding=1),
    ]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(16 * 16, 3)).eval()


def mobile_net():
    """Depthwise planes with stride, dilation and padding that leave rows or columns unseen; two groups."""
    torch.manual_seed(6)
    wide = {"groups": 32, "bias": False}
    body = [
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1, **wide),
        nn.Conv2d(32, 32, (5, 3), padding=(2, 0), dilation=(1, 2), **wide), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=2), nn.Conv2d(32, 32, 3, (3, 1), (2, 3), **wide),
        nn.Conv2d(32, 32, 2, 2, **wide), nn.Conv2d(32, 32, 1, **wide),
    ]  # fmt: skip
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(32 * 2 * 4, 3)).eval()


def bundle_of(module, shape, blocked=True):
    with skip_without_blocks():
        return parse(compile_module(module, Spec("m", shape, blocked=blocked)).data)


@pytest.fixture(scope="module")
def bundle():
    return bundle_of(net(), (2, 16))


def test_the_machine_that_compiled_uses_them(bundle):
    model = Model(bundle)
    assert (model.kernels, model.fallback) == ("blocked", "")
    assert model.session("loss_grad").inputs == Model(bundle, kernels="portable").session("loss_grad").inputs


@pytest.mark.parametrize(("make", "shape"), [(net, (2, 16)), (plane_net, (3, 8, 8)), (mobile_net, (3, 17, 16))])
def test_outputs_and_gradients_are_those_of_the_portable_graphs(make, shape):
    made = bundle_of(make(), shape)
    fast, plain = Model(made, kernels="blocked"), Model(made, kernels="portable")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, *shape)).astype(np.float32), rng.integers(0, 3, 7)
    np.testing.assert_allclose(fast.predict(fast.theta0, x), plain.predict(plain.theta0, x), atol=1e-5)
    (loss, grad), (want, slope) = fast.loss_grad(fast.theta0, x, y), plain.loss_grad(plain.theta0, x, y)
    assert loss == pytest.approx(want, rel=1e-5)
    assert np.linalg.norm(grad - slope) <= 1e-5 * np.linalg.norm(slope)


def test_another_layout_falls_back_and_says_so(bundle, monkeypatch, caplog):
    monkeypatch.setattr(edge_sdk.model.sessions.self_test, "BLOCKS", ())
    with caplog.at_level(logging.WARNING):
        model = Model(bundle)
    assert model.kernels == "portable" and "m: portable kernels are used" in caplog.text
    assert model.fallback
    model.loss_grad(model.theta0, np.zeros((2, 2, 16), np.float32), np.zeros(2, np.int64))
    with pytest.raises(BundleError):
        Model(bundle, kernels="blocked")


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_of_another_size_are_refused_by_the_probe(block):
    """As in a bundle from a machine with other blocks."""
    probe = Target(write_probe(block), ["y"]).model().SerializeToString()
    session = OnnxSession("probe", probe, 1)
    told = {"inputs": [{"name": "x", "shape": [1, 2 * block, 1, 3]}]}
    if block == find_block():
        check_layout(session, told)
    else:
        with pytest.raises(BundleError, match=f"is not that of {block} channels in a block"):
            check_layout(session, told)
    for inputs in ([], told["inputs"] * 2, *([{"shape": s}] for s in ([1, 6, 1, 3], [2 * block], ["B", 16, 1, 3], []))):
        with pytest.raises(BundleError, match="not two blocks as x"):
            check_layout(session, {"inputs": inputs})


@pytest.mark.parametrize(
    ("operator", "inputs", "more"),
    [
        ("Constant", [], {"value_float": 1.0}),
        ("SequenceConstruct", ["x"], {}),
        ("Optional", [], {"type": helper.make_optional_type_proto(helper.make_tensor_type_proto(1, None))}),
    ],
)
def test_a_probe_of_another_kind_is_refused_in_words(bundle, operator, inputs, more):
    node = helper.make_node(operator, inputs, ["y"], **more)
    kind = {"SequenceConstruct": helper.make_sequence_type_proto, "Optional": helper.make_optional_type_proto}
    floats = helper.make_tensor_type_proto(1, None)
    output = helper.make_value_info("y", kind[operator](floats) if operator in kind else floats)
    x = [helper.make_tensor_value_info(name, 1, [1, 2 * find_block(), 1, 3]) for name in inputs]
    graph = helper.make_model(
        helper.make_graph([node], "g", x, [output]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    manifest = json.loads(json.dumps(bundle.manifest))
    manifest["graphs"]["probe+blocked"]["inputs"] *= bool(inputs)
    made = parse(repacked(bundle, manifest, **{"probe+blocked__onnx": graph.SerializeToString()}))
    model = Model(made)
    assert model.kernels == "portable" and model.fallback
    with pytest.raises(BundleError):
        Model(made, kernels="blocked")


@pytest.mark.parametrize("value", ["", {}, {"name": "x"}, [1], [{"name": 1, "shape": []}]])
def test_inputs_that_are_no_list_of_values_are_refused_when_they_are_read(bundle, value):
    manifest = json.loads(json.dumps(bundle.manifest))
    manifest["graphs"]["probe+blocked"]["inputs"] = value
    with pytest.raises(BundleError, match=r"graphs.probe\+blocked.inputs|malformed"):
        parse(repacked(bundle, manifest))


def test_a_network_without_convolutions_needs_no_blocks(monkeypatch):
    monkeypatch.setattr(graphs, "find_block", lambda: 0)
    dense = nn.Sequential(nn.Flatten(), nn.Linear(8, 3)).eval()
    assert Model(parse(compile_module(dense, Spec("m", (8,), blocked=True)).data)).kernels == "portable"
    with pytest.raises(CompileError, match="no blocked layout on this machine; compile without --blocked"):
        compile_module(net(), Spec("m", (2, 16), blocked=True))


def test_without_the_golden_vectors_they_are_not_used(bundle):
    model = Model(bundle, check=False)
    assert model.kernels == "portable" and "after the golden vectors have passed" in model.fallback


def test_a_bundle_without_them():
    plain = bundle_of(net(), (2, 16), blocked=False)
    assert (Model(plain).kernels, Model(plain).fallback) == ("portable", "")
    with pytest.raises(BundleError, match="compile it with --blocked"):
        Model(plain, kernels="blocked")
    with pytest.raises(UsageError, match="kernels = 'fast', expected auto, native, blocked or portable"):
        Model(plain, kernels="fast")
