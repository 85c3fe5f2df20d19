"""Graphs that reach outside a bundle, or bring operators of their own, are found without running them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_sdk.model.bundle import BundleError, check_graph
from edge_sdk.model.onnx_scan import scan


def model(nodes, initializers=(), domains=(("", 18),)):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*d) for d in domains], ir_version=9)


def checked(m, name="predict"):
    check_graph(name, memoryview(m.SerializeToString()))


def outside():
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"
    return tensor


def test_plain_graphs_pass():
    m = model([helper.make_node("Relu", ["x"], ["y"])])
    checked(m)
    facts = scan(memoryview(m.SerializeToString()))
    assert (facts.operators, facts.domains, facts.opsets) == (1, {""}, {"": 18})


def test_tensors_in_other_files():
    with pytest.raises(BundleError, match="a tensor stored in another file"):
        checked(model([helper.make_node("Add", ["x", "w"], ["y"])], [outside()]))


def test_tensors_in_other_files_inside_attributes_and_bodies():
    constant = helper.make_node("Constant", [], ["w"], value=outside())
    with pytest.raises(BundleError, match="another file"):
        checked(model([constant, helper.make_node("Add", ["x", "w"], ["y"])]))
    body = helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    with pytest.raises(BundleError, match="another file"):
        checked(model([branch]))


@pytest.mark.parametrize("domain", ["evil.ops", "com.microsoft"])
def test_custom_operators(domain):
    with pytest.raises(BundleError, match=f"custom operators, of {domain}"):
        checked(model([helper.make_node("Run", ["x"], ["y"], domain=domain)], domains=(("", 18), (domain, 1))))


def test_custom_operators_inside_a_body():
    inner = helper.make_graph(
        [helper.make_node("Run", [], ["w"], domain="evil")], "b", [], [helper.make_tensor_value_info("w", 1, [2])]
    )
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    with pytest.raises(BundleError, match="custom operators, of evil"):
        checked(model([branch]))


def test_functions_are_refused():
    f = helper.make_function(
        "f", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    m = model([helper.make_node("Relu", ["x"], ["y"])])
    m.functions.append(f)
    with pytest.raises(BundleError, match="functions of its own"):
        checked(m)


@pytest.mark.parametrize("opset", [9, 99])
def test_other_opsets_are_refused(opset):
    with pytest.raises(BundleError, match=f"opset {opset}"):
        checked(model([helper.make_node("Relu", ["x"], ["y"])], domains=(("", opset),)))


def test_deep_nesting_ends_in_a_refusal():
    graph = helper.make_graph([], "g", [], [])
    for _ in range(9):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=helper.make_graph([], "e", [], []))
        graph = helper.make_graph([node], "g", [], [])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(BundleError, match="nested deeper"):
        checked(m)
