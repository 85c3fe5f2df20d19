"""Gradient rules of convolutions and pooling against central differences in float64."""

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from edge_sdk.models.derive import targets
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.rules.windows import depthwise
from edge_sdk.models.rules.windows.window import Window
from tests.models.module_check import export_net, measure_exported
from tests.models.rule_check import check, make_node

BATCHES = pytest.mark.parametrize("batch", [1, 3])

CONVOLUTIONS_1D = [
    # channels in, out, length, kernel, attributes
    (2, 3, 8, 3, {}),
    (2, 3, 8, 1, {}),
    (2, 3, 9, 4, {"pads": [1, 2], "strides": [2]}),
    (2, 3, 9, 3, {"pads": [2, 2], "dilations": [2]}),
    (4, 6, 9, 3, {"group": 2, "pads": [1, 1]}),
    (4, 4, 9, 3, {"group": 4, "pads": [1, 1]}),
    (4, 4, 10, 5, {"group": 4, "pads": [2, 2], "strides": [2]}),
    (4, 8, 9, 3, {"group": 4, "pads": [1, 1]}),
    (2, 3, 10, 3, {"pads": [1, 1], "strides": [3], "dilations": [2]}),
    (3, 3, 17, 11, {"group": 3, "pads": [5, 5], "strides": [2]}),  # stacked
]


@pytest.mark.parametrize(("inputs", "outputs", "length", "kernel", "attributes"), CONVOLUTIONS_1D)
def test_conv_1d(inputs, outputs, length, kernel, attributes):
    weight = (outputs, inputs // attributes.get("group", 1), kernel)
    shapes = {"x": ("B", inputs, length), "w": weight, "b": (outputs,)}
    check([make_node("Conv", list(shapes), kernel_shape=[kernel], **attributes)], shapes)


CONVOLUTIONS_2D = [
    (2, 3, (5, 6), (3, 3), {"pads": [1, 1, 1, 1]}),
    (2, 3, (5, 70), (3, 3), {"pads": [1, 1, 1, 1]}),
    (16, 3, (6, 5), (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (16, 2, (6, 5), (2, 3), {}),
    (2, 3, (6, 7), (3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    (4, 6, (5, 5), (3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    (4, 4, (5, 5), (3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    (3, 2, (4, 4), (1, 1), {"strides": [2, 2]}),
    (8, 2, (4, 5), (3, 3), {"pads": [1, 1, 1, 1]}),  # shifted, by masks
    (8, 2, (17, 16), (3, 3), {"pads": [1, 1, 1, 1]}),  # shifted, by a one-hot Conv
    (8, 8, (2, 2), (3, 3), {"pads": [1, 1, 1, 1]}),  # shifted, one product for the batch
    (16, 4, (4, 5), (3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),  # shifted, a product for each group
    (6, 3, (9, 8), (3, 3), {"dilations": [2, 1]}),  # by rows
    (2, 3, (7, 8), (5, 5), {"pads": [2, 1, 0, 2]}),  # columns by slices and Gather
    (3, 16, (6, 6), (3, 3), {"pads": [1, 1, 1, 1]}),  # columns times gy'
    (2, 2, (6, 5), (5, 5), {"group": 2, "pads": [2, 2, 2, 2]}),  # stacked
    (2, 4, (9, 10), (4, 3), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 3]}),  # stacked, two kernels a channel
    (2, 2, (9, 8), (4, 3), {"group": 2, "pads": [0, 2, 1, 0], "strides": [1, 2], "dilations": [2, 1]}),  # stacked
    (2, 2, (2, 2), (7, 7), {"group": 2, "pads": [3, 3, 3, 3]}),  # stacked
]


@pytest.mark.parametrize(("inputs", "outputs", "size", "kernel", "attributes"), CONVOLUTIONS_2D)
@BATCHES
def test_conv_2d(inputs, outputs, size, kernel, attributes, batch):
    weight = (outputs, inputs // attributes.get("group", 1), *kernel)
    shapes = {"x": ("B", inputs, *size), "w": weight}
    check([make_node("Conv", list(shapes), kernel_shape=list(kernel), **attributes)], shapes, batch=batch)


def test_samples_are_stacked_where_taps_are_many_and_zeros_are_few():
    def suits(kernel, sx, sy, **more):
        window = Window(kernel, **{"stride": (1, 1), "before": (0, 0), "after": (0, 0), "dilation": (1, 1)} | more)
        return depthwise.suits_stacking(window, sx, sy)

    same = {"before": (2, 2), "after": (2, 2)}
    assert suits((5, 5), (4, 8, 8), (4, 8, 8), group=4, **same)
    assert suits((5, 5), (4, 8, 8), (8, 8, 8), group=4, **same)  # two kernels a channel
    assert not suits((3, 3), (4, 8, 8), (4, 6, 6), group=4)
    assert not suits((5, 5), (4, 8, 8), (4, 8, 8), group=2, **same)
    assert not suits((5, 5), (1, 8, 8), (1, 8, 8), group=1, **same)
    assert not suits((22, 1), (4, 22, 90), (8, 1, 90), group=4)  # 21 of 22 rows of the kernel would be zeros


def test_conv_3d():
    shapes = {"x": ("B", 2, 3, 4, 3), "w": (3, 2, 2, 2, 2), "b": (3,)}
    check([make_node("Conv", list(shapes), kernel_shape=[2, 2, 2], pads=[1, 0, 0, 0, 1, 0])], shapes)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2], "output_padding": [1], "pads": [1, 1]},
        {"strides": [3], "pads": [0, 1], "dilations": [2]},
        {"group": 2, "strides": [2]},
    ],
)
def test_conv_transpose(attributes):
    group = attributes.get("group", 1)
    shapes = {"x": ("B", 4, 5), "w": (4, 6 // group, 3), "b": (6,)}
    check([make_node("ConvTranspose", list(shapes), kernel_shape=[3], **attributes)], shapes)


@BATCHES
@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ((6, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((7, 5), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((7, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((6, 6), {"kernel_shape": [3, 2], "strides": [1, 1], "dilations": [2, 1]}),
    ],
)
def test_max_pool(size, attributes, batch):
    check([make_node("MaxPool", ["x"], **attributes)], {"x": ("B", 2, *size)}, batch=batch)


@pytest.mark.parametrize(
    ("length", "attributes"),
    [
        (6, {"kernel_shape": [2], "strides": [2]}),
        (7, {"kernel_shape": [3], "strides": [2]}),
        (7, {"kernel_shape": [3], "strides": [1], "pads": [1, 1], "count_include_pad": 1}),
    ],
)
def test_average_pool(length, attributes):
    check([make_node("AveragePool", ["x"], **attributes)], {"x": ("B", 2, length)})


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pool(op):
    check([make_node(op, ["x"])], {"x": ("B", 2, 3, 4)})


def test_resize():
    scales = np.array([1, 1, 2, 3], np.float32)
    at = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    check([make_node("Resize", ["x", "", "scales"], **at)], {"x": ("B", 2, 3, 2)}, {"scales": scales})


def test_max_pool_of_a_large_array_with_a_last_axis_of_one():
    """numpy's unravel_index is wrong there: the reference must not use it."""
    x = np.random.default_rng(0).standard_normal((2, 40, 400, 1))
    at = {"kernel_shape": [3, 1], "strides": [3, 1], "pads": [1, 0, 1, 0]}
    outputs = [helper.make_tensor_value_info("y", 11, None), helper.make_tensor_value_info("i", 7, None)]
    graph = helper.make_graph(
        [make_node("MaxPool", ["x"], ["y", "i"], **at)], "g", [helper.make_tensor_value_info("x", 11, x.shape)], outputs
    )
    got = run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), {"x": x})
    np.testing.assert_array_equal(x.reshape(-1)[got["i"]], got["y"])


def test_columns_of_rows_that_lie_in_order_already_are_not_moved():
    """A kernel of one row: gathering all rows as they lie took a quarter of a step of EEGInceptionERP."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, (1, 25), padding=(0, 12)), nn.Flatten(), nn.Linear(4 * 5 * 20, 3))
    net, inputs, forward = export_net(net, (1, 5, 20))
    assert measure_exported(net, inputs, forward) < 1e-9
    source = targets.Source(forward, {"theta": lay_out_parameters(net)})
    ops = [n.op for n in targets.write_loss_grad(source, "cross_entropy").graph.nodes]
    assert "Gather" not in ops
