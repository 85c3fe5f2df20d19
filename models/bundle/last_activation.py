"""The last activation of a module whose loss applies it once more: a frequent slip that trains, and never well.

The losses of classes and of sets of labels take logits, as torch's `CrossEntropyLoss` and `BCEWithLogitsLoss` do. A
module that ends in a softmax or a sigmoid is compiled as it is, since torch trains it so, too; whoever compiles it is
told.
"""

from __future__ import annotations

from typing import Any

TWICE = {
    "cross_entropy": ("Softmax", "a softmax"),
    "soft_cross_entropy": ("Softmax", "a softmax"),
    "binary_cross_entropy": ("Sigmoid", "a sigmoid"),
}
"""Loss -> the operator that it applies itself, and its name."""
PASSED = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that change no value."""


def describe_last_activation(model: Any, loss: str) -> str:
    """A sentence, if a graph that predicts (an ONNX model) ends in what its loss applies once more; "": it does not."""
    if loss not in TWICE:
        return ""
    makers = {name: node for node in model.graph.node for name in node.output}
    node = makers.get(model.graph.output[0].name)
    while node is not None and node.op_type in PASSED:
        node = makers.get(node.input[0])
    operator, name = TWICE[loss]
    if node is None or node.op_type != operator:
        return ""
    return f"the module ends in {name}, and the loss {loss} applies one itself: return logits, without it"
