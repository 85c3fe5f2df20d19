"""Windows of pooling that would begin in the padding: torch has none, and ONNX's ceil_mode, as it is run, has some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

POOLS = ("MaxPool", "AveragePool")


def cut_pools(model: onnx.ModelProto) -> None:
    """Write pooling with ceil_mode whose last window torch leaves out as one with padding of its own, in place."""
    graph = model.graph
    sizes = {v.name: read_sizes(v) for v in (*graph.input, *graph.value_info)}
    for node in [n for n in graph.node if n.op_type in POOLS]:
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if given.get("ceil_mode") and (there := sizes.get(node.input[0])):
            cut_pool(node, given, there)


def read_sizes(value: onnx.ValueInfoProto) -> list[int]:
    """The sizes of a value's positions; empty where one is not known."""
    dims = value.type.tensor_type.shape.dim[2:]
    return [d.dim_value for d in dims] if all(d.HasField("dim_value") for d in dims) else []


def cut_pool(node: onnx.NodeProto, given: dict[str, Any], there: Sequence[int]) -> None:
    """Give a pool the padding after its input that leads to torch's sizes, if its own would lead to others.

    Args:
        given: its attributes. there: sizes of its input.
    """
    axes = len(there)
    kernel, pads = given["kernel_shape"], given.get("pads") or [0] * 2 * axes
    strides, dilations = (given.get(k) or [1] * axes for k in ("strides", "dilations"))
    rooms = [i + pads[a] + pads[axes + a] - dilations[a] * (kernel[a] - 1) - 1 for a, i in enumerate(there)]
    plain = [-(-room // s) + 1 for room, s in zip(rooms, strides, strict=True)]
    made = [n - ((n - 1) * strides[a] >= there[a] + pads[a]) for a, n in enumerate(plain)]
    floors = [room // s + 1 for room, s in zip(rooms, strides, strict=True)]
    if plain == made or (node.op_type == "AveragePool" and floors != made):
        return
    needed = [(o - 1) * s - room for o, s, room in zip(made, strides, rooms, strict=True)]
    after = [pads[axes + a] + max(0, more) for a, more in enumerate(needed)]
    kept = [a for a in node.attribute if a.name not in ("ceil_mode", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("pads", [*pads[:axes], *after])])
