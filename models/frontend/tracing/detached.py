"""Where autograd stops in a module: `detach`, `no_grad` and `.data`, which are marked in a trace, and `.item()`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from edge_sdk.models.frontend.decomposition.sized import SIZED
from edge_sdk.models.frontend.tracing.batch_sizes import insert_call
from edge_sdk.models.frontend.tracing.diagnose import find_path
from edge_sdk.models.frontend.tracing.marks import GIVEN, OWN, STOP
from edge_sdk.models.ir.errors import DetachedGradient

aten = torch.ops.aten
ITEMS = (aten.item.default, aten._local_scalar_dense.default)
# functions that read the shape and type of a tensor, but none of its values
LIKE = ("new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like")
GRAD_MODE = "wrap_with_set_grad_enabled"


class DataMode(TorchFunctionMode):
    """Lets a tensor's `.data` be its `detach()` while a module is traced: torch's own loses the value.

    Distances are taken as differences, whatever the number of samples, and functions of SIZED as they are there.

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
        if function is torch.cdist:  # by itself it asks whether there are more than 25 rows, which may be samples
            kwargs = {**(kwargs or {}), "compute_mode": "donot_use_mm_for_euclid_dist"}
            args = args[:3]
        return SIZED.get(function, function)(*args, **(kwargs or {}))


def refuse_writing(path: str) -> DetachedGradient:
    """The error of a module that changes a parameter in its forward pass."""
    advice = "write the constraint into what is computed, e.g. self.weight.clamp(-1, 1) in the place of self.weight"
    return DetachedGradient(
        f"{path or 'the module'}: writes into a parameter in forward (.data, or under no_grad); {advice}"
    )


def open_no_grad(program: torch.export.ExportedProgram, parameters: int) -> None:
    """Write what a program computes under `no_grad` among the rest, in place, and mark the results that change.

    Args:
        parameters: number of the first inputs that are parameters.

    Raises:
        DetachedGradient: a parameter is written to there.
    """
    changed = list_parameters(program, parameters)
    for node in list(program.graph.nodes):
        if any(a.name in changed for a in node.all_input_nodes):
            changed.add(node.name)
        if GRAD_MODE in str(node.target):
            if node.name in changed and writes(node, program.graph_module, changed):
                raise refuse_writing(find_path(node))
            changed.update(open_region(program.graph_module, node, changed))
    program.graph_module.recompile()


def open_region(module: torch.fx.GraphModule, node: torch.fx.Node, changed: Collection[str]) -> set[str]:
    """Put the calls of one region in its place; names of those that parameters change."""
    region: Any = node.args[1]
    body = module.get_submodule(str(region.target))
    assert isinstance(body, torch.fx.GraphModule)
    given = iter(node.args[2:])
    known: dict[torch.fx.Node, Any] = {}
    own, found = set[torch.fx.Node](), set[str]()
    for inner in body.graph.nodes:
        if inner.op == "placeholder":
            known[inner] = next(given)
        elif inner.op == "output":
            results: Any = torch.fx.node.map_arg(inner.args[0], known.__getitem__)
        else:
            with module.graph.inserting_before(node):
                made = known[inner] = module.graph.node_copy(inner, known.__getitem__)
            if inner.op == "get_attr":
                made.target = f"{region.target}.{inner.target}"
            own.add(made)
            if any(a.name in changed or a.name in found for a in made.all_input_nodes):
                found.add(made.name)
    for user in list(node.users):
        result = results[user.args[1]]
        if result in own and result.name in found and is_float(result) and result.target is not GIVEN:
            result = insert_call(module.graph, node, STOP, result)
        user.replace_all_uses_with(result)
        module.graph.erase_node(user)
    module.graph.erase_node(node)
    return found


def mark_detached(program: torch.export.ExportedProgram, parameters: int) -> None:
    """Mark where a program detaches what parameters change, in place: an ONNX graph would not show it.

    Args:
        parameters: number of the first inputs that are parameters.

    Raises:
        DetachedGradient: it is written to what was detached, or a Python number is made of it.
    """
    changed = list_parameters(program, parameters)
    for node in program.graph.nodes:
        if is_like(node):
            continue
        if not any(a.name in changed for a in node.all_input_nodes):
            if node.target is OWN:  # as in a front, which has no gradient
                node.replace_all_uses_with(node.args[0])
            continue
        changed.add(node.name)
        if node.target in ITEMS:
            told = f"{find_path(node)}: item; a graph has no number that changes with parameters"
            raise DetachedGradient(f"{told}. Compute with tensors in its place, of which detach() stops the gradient")
        if "detach" not in str(node.target) or node.op != "call_function":  # a value may have a call's name
            continue
        if any(is_written(user, node) for user in node.users):
            raise refuse_writing(find_path(node))
        if is_float(node) and not all(is_like(user) for user in node.users):
            node.target = STOP


def list_parameters(program: torch.export.ExportedProgram, parameters: int) -> set[str]:
    """Names of the values of a program that are parameters: `parameters` of the first inputs, and those it holds."""
    signature = program.graph_signature
    return {*map(str, signature.user_inputs[:parameters]), *signature.inputs_to_parameters}


def is_float(node: torch.fx.Node) -> bool:
    """True for a value that may have a gradient."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def is_like(node: torch.fx.Node) -> bool:
    """True for a function that reads no values of what parameters may change: only a shape, a type, a device."""
    name = getattr(node.target, "_opname", "")
    if name == "type_as":
        source: Any = node.args[0]
        return "detach" in str(node.args[1]) and "detach" not in str(source)
    return name in LIKE or name.startswith("sym_")


def writes(node: torch.fx.Node, module: torch.nn.Module, changed: Collection[str]) -> bool:
    """True if a function within a no_grad writes into what it is given of the values that parameters change."""
    body = module.get_submodule(str(node.args[1].target))  # type: ignore[union-attr]
    assert isinstance(body, torch.fx.GraphModule)
    given = [n for n in body.graph.nodes if n.op == "placeholder"]
    inside = [n for n, a in zip(given, node.args[2:], strict=False) if getattr(a, "name", "") in changed]
    return any(is_written(user, n) for n in inside for user in n.users)


def is_written(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """True if a function changes this argument in place."""
    schema = getattr(user.target, "_schema", None)
    return bool(schema and schema.is_mutable and user.args and user.args[0] is node)
