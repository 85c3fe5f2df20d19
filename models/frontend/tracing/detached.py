"""Where autograd stops in a module: `detach`, `no_grad`, `.data` and `.item()`, which an ONNX graph does not show."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from edge_sdk.models.frontend.tracing.diagnose import find_path
from edge_sdk.models.ir.errors import DetachedGradient

aten = torch.ops.aten
ITEMS = (aten.item.default, aten._local_scalar_dense.default)
# functions that read the shape and type of a tensor, but none of its values
LIKE = ("new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like")
GRAD_MODE = "wrap_with_set_grad_enabled"


class DataMode(TorchFunctionMode):
    """Lets a tensor's `.data` be its `detach()` while a module is traced: torch's own loses the value.

    Args:
        layers: the modules that are running, with their paths, outermost first.
    """

    def __init__(self, layers: Sequence[tuple[str, Any]]) -> None:
        super().__init__()
        self.layers = layers

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function == torch.Tensor.data.__get__:  # type: ignore[attr-defined]
            return args[0].detach()
        if function == torch.Tensor.data.__set__:  # type: ignore[attr-defined]
            raise refuse_writing(self.layers[-1][0] if self.layers else "")
        return function(*args, **(kwargs or {}))


def refuse_writing(path: str) -> DetachedGradient:
    """The error of a module that changes a parameter in its forward pass."""
    advice = "write the constraint into what is computed, e.g. self.weight.clamp(-1, 1) in the place of self.weight"
    return DetachedGradient(
        f"{path or 'the module'}: writes into a parameter in forward (.data, or under no_grad); {advice}"
    )


def refuse_detached(program: torch.export.ExportedProgram, parameters: int) -> None:
    """Raise DetachedGradient if the program detaches what parameters change: the ONNX graph would not show it.

    Args:
        parameters: number of the first inputs that are parameters.
    """
    signature = program.graph_signature
    trained = {*map(str, signature.user_inputs[:parameters]), *signature.inputs_to_parameters}
    for node in program.graph.nodes:
        if is_like(node):
            continue
        changed = any(a.name in trained for a in node.all_input_nodes)
        if changed:
            trained.add(node.name)
        if not (what := describe_stop(node, changed)):
            continue
        if writes(node, program.graph_module, trained):
            raise refuse_writing(find_path(node))
        raise DetachedGradient(
            f"{find_path(node)}: {what}; the compiled gradient would flow through it. Take that part out of the module"
        )


def describe_stop(node: torch.fx.Node, changed: bool) -> str:
    """What stops autograd at a node, if anything does; `changed`: it reads what parameters change."""
    target = str(node.target) if node.op == "call_function" else ""  # a value may have a call's name
    if GRAD_MODE in target and (changed or not node.all_input_nodes):
        return "no_grad"
    if not changed:
        return ""
    if "detach" in target and not all(is_like(user) for user in node.users):
        return "detach (or .data)"
    return "item" if node.target in ITEMS else ""


def is_like(node: torch.fx.Node) -> bool:
    """True for a function that reads no values of what parameters may change: only a shape, a type, a device."""
    name = getattr(node.target, "_opname", "")
    if name == "type_as":
        source: Any = node.args[0]
        return "detach" in str(node.args[1]) and "detach" not in str(source)
    return name in LIKE or name.startswith("sym_")


def writes(node: torch.fx.Node, module: torch.nn.Module, trained: Collection[str]) -> bool:
    """True if a function that writes into its argument is given what a node detaches, or is within its no_grad."""
    if GRAD_MODE not in str(node.target):
        return any(is_written(user, node) for user in node.users)
    body = module.get_submodule(str(node.args[1].target))  # type: ignore[union-attr]
    assert isinstance(body, torch.fx.GraphModule)
    given = [n for n in body.graph.nodes if n.op == "placeholder"]
    inside = [n for n, a in zip(given, node.args[2:], strict=False) if getattr(a, "name", "") in trained]
    return any(is_written(user, n) for n in inside for user in n.users)


def is_written(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """True if a function changes this argument in place."""
    schema = getattr(user.target, "_schema", None)
    return bool(schema and schema.is_mutable and user.args and user.args[0] is node)
