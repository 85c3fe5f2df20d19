"""Work that torch's exporter does and throws away, left out; the graphs are the same to the byte, or compute the same.

Long loops spend most of their export on it: of a loop of 64 steps about half.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch


@contextlib.contextmanager
def export_leanly() -> Iterator[None]:
    """Let torch write a program as ONNX without the work that leaves nothing behind."""
    with leave_sizes_unwritten(), pass_rules_of_others(), take_apart_on_demand(), know_types():
        yield


@contextlib.contextmanager
def trace_leanly() -> Iterator[None]:
    """Let torch trace a module without noting for each function which lines of Python called it: nothing reads that.

    Nor do distributions look at their arguments, which is a branch on values and only raises errors.
    """
    name, home = "do_not_emit_stack_traces", getattr(torch.fx, "config", None)
    known = hasattr(home, name)  # another torch is used as it is
    with (
        mock.patch.object(home, name, True) if known else contextlib.nullcontext(),
        mock.patch.object(torch.distributions.Distribution, "_validate_args", False),
    ):
        yield


@contextlib.contextmanager
def take_apart_on_demand() -> Iterator[None]:
    """Let torch take a program's functions apart only where ONNX lacks one of them, or one changes its argument.

    It walks through the whole program three times for that, also where each function stays as it is.
    """
    home = importlib.import_module("torch.onnx._internal.exporter._fx_passes")
    decompose = getattr(home, "decompose_with_registry", None)
    if decompose is None or not hasattr(find_decompositions(), "get_onnx_implemented_overloads"):
        yield  # another torch, which is used as it is
        return

    def decompose_on_demand(program: torch.export.ExportedProgram, registry: Any) -> torch.export.ExportedProgram:
        written = list_written(registry, len(registry.functions))
        whole = all(is_written_whole(node, written) for node in program.graph.nodes)
        return program if whole else decompose(program, registry)

    with mock.patch.object(home, "decompose_with_registry", decompose_on_demand):
        yield


def find_decompositions() -> Any:
    """The module in which torch lists what it takes apart."""
    return importlib.import_module("torch.onnx._internal.exporter._decomp")


@functools.lru_cache(1)
def list_written(registry: Any, size: int) -> frozenset[Any]:
    """Functions that have one of ONNX, and which torch leaves as they are. `size`: of the table, which may grow."""
    return frozenset(find_decompositions().get_onnx_implemented_overloads(registry))


def is_written_whole(node: torch.fx.Node, written: frozenset[Any]) -> bool:
    """A node of a program that torch would leave as it is."""
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target in written and not node.target._schema.is_mutable
    return not isinstance(node.target, torch._ops.OperatorBase)  # sums of sizes, and parts of tuples


@contextlib.contextmanager
def leave_sizes_unwritten() -> Iterator[None]:
    """Let torch note how a size is computed only where the program reads it.

    While it takes functions apart it notes every sum and product of sizes, in a loop of recurrent cells thirty for each
    function, and takes nearly all of them out again. It can do so on demand, and does elsewhere.
    """
    name, home = "maybe_disable_thunkify", find_wrappers()
    if not hasattr(home, name):  # another torch, which is used as it is
        yield
        return
    with mock.patch.object(home, name, contextlib.nullcontext):
        yield


def find_wrappers() -> Any:
    """The module in which torch wraps what it takes apart; None: this version has no such module."""
    where = "torch._functorch._aot_autograd.graph_capture_wrappers"
    return importlib.import_module(where) if importlib.util.find_spec(where) else None


@contextlib.contextmanager
def pass_rules_of_others() -> Iterator[None]:
    """Let the rewriter of ONNX graphs compare a node only with the rules of its operator.

    It begins to compare each node with each of its rules, and most rules are about another operator. Of two constants
    to which rules give one name (those of a value that is flattened twice) it loses one: here both have their own.
    """
    try:
        matcher: Any = importlib.import_module("onnxscript.rewriter._matcher")
        rule: Any = importlib.import_module("onnxscript.rewriter._rewrite_rule").RewriteRule
    except (ImportError, AttributeError):  # another onnxscript, which is used as it is
        yield
        return
    attempt = rule.try_rewrite

    def try_own(self: Any, model: Any, graph: Any, node: Any, **more: Any) -> Any:
        if more.get("tracer") is None and find_operator(self) not in (None, (node.domain, node.op_type)):
            return None
        made = attempt(self, model, graph, node, **more)
        for value in made.new_initializers if made else ():
            while value.name in graph.initializers:
                value.name += "_"
        return made

    @functools.cache
    def find_operator(one: Any) -> tuple[str, str] | None:
        """Domain and name of the operator that a rule is about; None: of several."""
        if type(one._matcher) is not matcher.SimplePatternMatcher:
            return None
        said = one._matcher.pattern.output_nodes[0].op_identifier()  # the one that a node is compared with
        return said and (said[0], said[1])

    with mock.patch.object(rule, "try_rewrite", try_own):
        yield


@contextlib.contextmanager
def know_types() -> Iterator[None]:
    """Let torch write conversions between types of numbers from the types that a program has noted.

    It computes the shape and type of each value once more for that.
    """
    name = "torch.onnx._internal.fx.passes.type_promotion"
    home: Any = importlib.import_module(name) if importlib.util.find_spec(name) else None
    interpreter: Any = getattr(home, "_TypePromotionInterpreter", None)
    if not all(hasattr(interpreter, method) for method in ("_maybe_promote_node", "_set_current_node")):
        yield  # another torch, which is used as it is
        return
    compute = interpreter.run_node

    def take_known(self: Any, node: torch.fx.Node) -> Any:
        if node.op != "call_function" or "val" not in node.meta:
            return compute(self, node)
        if (rule := home.get_type_promotion_rule(node, self.type_promotion_table)) is not None:
            with self._set_current_node(node):
                self._maybe_promote_node(node, rule)  # it notes what it changes
        return node.meta["val"]

    with mock.patch.object(interpreter, "run_node", take_known):
        yield
