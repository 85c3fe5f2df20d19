"""Graphs that the float64 evaluation runs: automatic padding, and what it says of a node that it cannot run."""

import numpy as np
import onnxruntime
import pytest

from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.ir.errors import BatchSpecialised, UnsupportedPattern
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.proto import write_model
from tests.models.rule_check import check, make_forward, make_node

AUTOMATIC = pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])


@AUTOMATIC
def test_gradients_of_windows_with_automatic_padding(auto_pad):
    """Four taps at strides of two over nine positions: an odd number of them is padded."""
    conv = make_node("Conv", ["x", "w"], kernel_shape=[4], strides=[2], auto_pad=auto_pad)
    check([conv], {"x": ("B", 2, 9), "w": (3, 2, 4)})
    for op in ("MaxPool", "AveragePool"):
        pool = make_node(op, ["x"], kernel_shape=[4, 3], strides=[2, 2], auto_pad=auto_pad)
        check([pool], {"x": ("B", 2, 9, 5)})


@AUTOMATIC
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_automatic_padding_is_that_of_onnxruntime(op, auto_pad):
    weights = {"w": np.random.default_rng(1).standard_normal((3, 2, 4, 3)).astype(np.float32)} if op == "Conv" else {}
    node = make_node(op, ["x", *weights], kernel_shape=[4, 3], strides=[2, 3], auto_pad=auto_pad)
    forward = make_forward([node], {"x": ("B", 2, 9, 7)}, weights)
    x = np.random.default_rng(2).standard_normal((3, 2, 9, 7)).astype(np.float32)
    model = write_model(read_forward(forward), ["y"])
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(run(model, {"x": x})["y"], want, rtol=1e-5, atol=1e-6)


def place(node, path):
    """The node, as torch's exporter says of which layer it is."""
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'net.{path}', '']")
    return node


def reads(node, inputs, constants=None):
    read_forward(make_forward([place(node, "body.up")], inputs, constants or {}))


def test_a_transposed_convolution_with_automatic_padding_is_refused_by_its_layer():
    node = make_node("ConvTranspose", ["x", "w"], kernel_shape=[3], strides=[2], auto_pad="SAME_UPPER")
    with pytest.raises(UnsupportedPattern, match=r"^body\.up: ConvTranspose with automatic padding; give padding"):
        reads(node, {"x": ("B", 2, 5), "w": (2, 3, 3)})


def test_what_an_operator_refuses_is_not_said_to_be_the_batch():
    node = make_node("Resize", ["x", "", "", "sizes"], mode="linear", antialias=1, axes=[2])
    with pytest.raises(UnsupportedPattern, match=r"^body\.up: Resize linear .*antialias.*; leave these out"):
        reads(node, {"x": ("B", 2, 5)}, {"sizes": np.array([3], np.int64)})


def test_an_operator_that_cannot_be_evaluated_is_not_said_to_be_the_batch():
    node = make_node("GlobalLpPool", ["x"], p=3)
    with pytest.raises(UnsupportedPattern, match=r"^body\.up: GlobalLpPool cannot be evaluated .*; use other"):
        reads(node, {"x": ("B", 2, 5)})


def test_a_graph_for_one_batch_size_is_still_said_to_be_that():
    node = make_node("Reshape", ["x", "shape"])
    with pytest.raises(BatchSpecialised, match=r"^body\.up: Reshape does not run with a batch of 2"):
        reads(node, {"x": ("B", 2)}, {"shape": np.array([7, 2], np.int64)})
