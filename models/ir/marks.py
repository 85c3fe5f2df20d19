"""Nodes of a forward graph at which autograd does something else than the derivative; no device gets them.

    StopGradient(x)                        x, through which no gradient goes
    Cotangent(y, inputs...)                the adjoint of y
    OwnGradient(y, g, inputs..., found...) y; of an adjoint gy the inputs get what `found` is with gy for g
    Heads(y, others...)                    y; the task's loss of the others is added to that of y

They are in a graph from its export until it is differentiated, or used for predictions.
"""

from __future__ import annotations

MARK_DOMAIN = "auscult.gradient"
"""Of the marks in an exported model. A graph has them without it, so that no model with one passes onnx's checker."""
STOP_GRADIENT, COTANGENT, OWN_GRADIENT, HEADS = "StopGradient", "Cotangent", "OwnGradient", "Heads"
MARKS = frozenset({STOP_GRADIENT, COTANGENT, OWN_GRADIENT, HEADS})
