"""What a traced module makes of zeros and ones that it draws as truths, by products with a mask.

A mask has 0 and 1 where torch has false and true, and the probability of a 1 where nothing is to be dropped: there a
choice between two values has to be their mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from edge_sdk.models.frontend.modules.uniform import CASTS, CHOICES, FILLS, NEGATIONS, PRODUCTS, VIEWS

aten = torch.ops.aten
Node = torch.fx.Node
Call = Callable[..., Node]
"""Inserts a call of a function with arguments before a node: call(node, function, *arguments)."""


def put_mask(truth: Node, mask: Node, call: Call) -> str:
    """Put a mask in the place of truths, or of numbers that are 0 and 1, and of what is made of these.

    Returns:
        the name of a function that has no such form; "" if there is none.
    """
    for user in list(truth.users):
        target: Any = user.target
        if not is_truth(truth):
            user.replace_input_with(truth, mask)
            continue
        if target is aten._assert_tensor_metadata.default:  # what torch notes of a cast
            user.graph.erase_node(user)
            continue
        if target in CASTS:
            kind = user.meta["val"].dtype
            made = mask if kind == torch.bool else call(user, aten.to.dtype, mask, kind)
        elif target in NEGATIONS:
            made = call(user, aten.rsub.Scalar, mask, 1.0)
        elif target in (*CHOICES, *FILLS):
            made = write_mean(user, mask, call)
        elif target in VIEWS:
            made = call(user, target, mask, *user.args[1:])
        elif target in PRODUCTS and user.meta["val"].is_floating_point():
            user.replace_input_with(truth, mask)
            continue
        else:
            return str(getattr(target, "_opname", target))
        if is_truth(user) and target not in CASTS and (left := put_mask(user, made, call)):
            return left
        user.replace_all_uses_with(made)
        user.graph.erase_node(user)
    return ""


def is_truth(node: Node) -> bool:
    """True for a call that returns truths."""
    return bool(node.meta["val"].dtype == torch.bool)


def write_mean(node: Node, mask: Node, call: Call) -> Node:
    """A choice between two values by a mask: m a + (1 - m) b, where one of them may be a number."""
    values: Any = node.args
    a, b = values[1:3] if node.target in CHOICES else (values[2], values[0])
    first = call(node, aten.mul.Tensor, mask, a)
    second = call(node, aten.mul.Tensor, call(node, aten.rsub.Scalar, mask, 1.0), b)
    return call(node, aten.add.Tensor, first, second)
