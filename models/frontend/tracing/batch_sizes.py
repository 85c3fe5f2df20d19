"""Counts that follow from the batch size, while a module is traced.

Torch asks for a number of pieces (split, chunk) as a plain number. Where that number is computed from the batch, as the
rest of `(3 * B - 1) // B`, torch does not see that it is the same for every batch, and takes the module for one that
works for its example only. Here it is tried for every batch size; a number that is always the same needs no guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy.printers import PythonPrinter

from edge_sdk.models.frontend.modules.randomness import follow_path

aten = torch.ops.aten
LARGEST_BATCH = 65536


@contextmanager
def settle_counts() -> Iterator[None]:
    """Let torch take numbers that are the same for every batch size as numbers."""
    original = symbolic_shapes.guard_int

    def guard(a: int | torch.SymInt) -> int:
        found = find_constant(a)
        return original(a) if found is None else found

    with mock.patch.object(symbolic_shapes, "guard_int", guard):
        yield


def find_constant(value: Any) -> int | None:
    """The one value of a traced number at all batch sizes from 1 to LARGEST_BATCH; None if it has several."""
    if not isinstance(value, torch.SymInt):
        return None
    expression = value.node.expr
    symbols = list(expression.free_symbols)
    if len(symbols) != 1:
        return None
    code = PythonPrinter().doprint(expression)
    sizes = np.arange(1, LARGEST_BATCH + 1)
    try:
        found = np.unique(eval(code, {"__builtins__": {}}, {str(symbols[0]): sizes}))
    except (NameError, TypeError):  # a function that numbers in an array do not have
        return None
    return int(found[0]) if len(found) == 1 and found.dtype.kind == "i" else None


@contextmanager
def note_guards(net: nn.Module) -> Iterator[list[str]]:
    """The path of the layer that was running, each time that torch restricted the batch size."""
    env, paths = symbolic_shapes.ShapeEnv, list[str]()
    original = env._log_guard

    with follow_path(net) as stack:

        def note(self: Any, prefix: str, guard: Any, *rest: Any, **options: Any) -> Any:
            if guard.free_symbols:
                paths.append(stack[-1][0] if stack else "")
            return original(self, prefix, guard, *rest, **options)

        with mock.patch.object(env, "_log_guard", note):
            yield paths


SPLITS = (aten.split.Tensor, aten.split_with_sizes.default)


def cut_batches_by_reshaping(program: torch.export.ExportedProgram) -> None:
    """Write splits of an axis into pieces of one batch as a Reshape and picks, in place.

    The exporter would write a sequence of tensors, of which ONNX does not say how many there are.
    """
    graph = program.graph
    for node in [n for n in graph.nodes if n.target in SPLITS]:
        source: Any = node.args[0]
        axis = int(node.args[2]) if len(node.args) > 2 else int(node.kwargs.get("dim", 0))
        pieces, shape = [v.shape for v in node.meta["val"]], list(source.meta["val"].shape)
        axis %= len(shape)
        fixed = [d for i, d in enumerate(shape) if i != axis]
        alike = len({str(p[axis]) for p in pieces}) == 1
        if isinstance(shape[axis], int) or not alike or not all(isinstance(d, int) for d in fixed):
            continue
        sizes = [*shape[:axis], len(pieces), -1, *shape[axis + 1 :]]
        apart = insert_call(graph, node, aten.reshape.default, source, sizes)
        for user in list(node.users):
            user.replace_all_uses_with(insert_call(graph, node, aten.select.int, apart, axis, user.args[1]))
            graph.erase_node(user)
        graph.erase_node(node)


def insert_call(graph: torch.fx.Graph, before: torch.fx.Node, target: Any, *args: Any) -> torch.fx.Node:
    """Insert a call that belongs to the layer of another; it knows its value's shape."""
    with graph.inserting_before(before):
        node = graph.call_function(target, args)
    node.meta = {k: v for k, v in before.meta.items() if k in ("nn_module_stack", "stack_trace")}
    with enable_python_dispatcher():  # without it torch 2.8 knows no shapes with symbols
        node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
    return node
