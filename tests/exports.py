"""Exports of torch, quicker: what torch makes anew in each, though it is the same each time, is kept.

* It asks for the list of all its operators some fifty times. The list only grows when a library registers operators, so
  it is made again when one has.
* Twice it enters functions for 16 kinds of device into the tables of 360 operators, and takes them out again. The
  tables that this makes are kept, with what they were made of, and used where that is the same.
* It asks of each operator again whether it may be left whole, and makes the table of those that it takes apart.
  Both are kept, until a library registers operators.
* It keeps the shape of what each function returns, for the next call with the same shapes. That takes as long as two
  calls, and networks of tests call few functions as often.
* It records where it is called from for a log that nobody reads, some twenty times in each export.
* It writes a program as ONNX that it has written before: tests of one network with other settings, or of one call
  alone. The latest WRITTEN are kept by all that decides them: their text with shapes, types, layers and constants.

The graphs are the same; of an export of a small network this was half, of a large one a tenth.
tests/models/test_quick_exports.py compares them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def quicken_exports() -> None:
    """Change torch in this process; nothing, if no test here exports."""
    if "torch" in sys.modules:
        note_registrations()
        list_operators_once()
        keep_tables()
        keep_shapes_of_frequent_calls()
        log_nothing()
        keep_written()


KEPT: dict[Any, Any] = {}
"""What is known of operators; empty again when a library may have registered new ones."""
WRITTEN: OrderedDict[Any, Any] = OrderedDict()
"""What decides a graph -> it, as bytes, and the program that it was written from."""
MOST = 100  # of WRITTEN
FREQUENT = 40  # calls of a function in one export
REPLACED: list[tuple[Any, str, Any]] = []
"""What was put elsewhere: where, its name, and what was there before."""


def put(where: Any, name: str, new: Any) -> None:
    """Set an attribute of torch's or of the rewriter's, and note what it was."""
    REPLACED.append((where, name, getattr(where, name)))
    setattr(where, name, new)


def note_registrations() -> None:
    """Have KEPT emptied by whatever registers operators."""
    import torch

    def noted(change: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(change)
        def change_and_note(*given: Any, **named: Any) -> Any:
            KEPT.clear()
            try:
                return change(*given, **named)
            finally:
                KEPT.clear()

        return change_and_note

    for name in ("__init__", "define", "impl"):
        put(torch.library.Library, name, noted(getattr(torch.library.Library, name)))


def list_operators_once() -> None:
    """Have torch look at its operators only when a library may have registered new ones."""
    import torch
    from torch._export import utils
    from torch.onnx._internal.exporter import _decomp, _fx_passes

    names = ("_materialize_cpp_cia_ops", "_check_valid_to_preserve")
    walk, may_stay = (getattr(utils, name, None) for name in names)
    if walk is None or may_stay is None:  # of another version of torch
        return

    def kept(key: Any, make: Callable[..., Any], *given: Any) -> Any:
        if key not in KEPT:
            KEPT[key] = make(*given)
        return KEPT[key]

    def decompose(program: torch.export.ExportedProgram, registry: Any) -> torch.export.ExportedProgram:
        taken_apart = (len(torch._decomp.decomposition_table), registry, len(registry.functions))
        table = kept(taken_apart, make_table, registry)
        return program.run_decompositions(dict(table))  # it takes out of it what it has done

    def make_table(registry: Any) -> dict[Any, Any]:
        table = _decomp.create_onnx_friendly_decomposition_table({*_decomp.get_onnx_implemented_overloads(registry)})
        return dict(table)

    put(utils, "_materialize_cpp_cia_ops", functools.partial(kept, walk, walk))
    put(utils, "_check_valid_to_preserve", lambda op: kept((may_stay, op), may_stay, op))
    put(_fx_passes, "decompose_with_registry", decompose)


def keep_written() -> None:
    """Have a program that has been written as ONNX not be written again."""
    import onnx

    from edge_sdk.models.frontend.tracing import export

    write = export.write_onnx

    def write_once(program: Any, inputs: Any, output: str) -> Any:
        key = describe(program), tuple(inputs), output, functions_of(export)
        if key not in WRITTEN:
            model, written = write(program, inputs, output)
            WRITTEN[key] = model.SerializeToString(), written
            if len(WRITTEN) > MOST:
                WRITTEN.popitem(last=False)
            return model, written
        data, written = WRITTEN[key]
        return onnx.load_from_string(data), written

    put(export, "write_onnx", write_once)


def describe(program: Any) -> str:
    """All of a traced program that decides what is written of it."""
    lines = [str(program.graph_signature), str(program.range_constraints)]
    for node in program.graph.nodes:
        layers = node.meta.get("nn_module_stack") or {}
        lines.append(
            f"{node.name} {node.op} {node.target} {node.args} {node.kwargs} {node.meta.get('val')} {[*layers.values()]}"
        )
    for name, value in {**program.constants, **program.state_dict}.items():
        lines.append(f"{name} {value.dtype} {value.detach().cpu().numpy().tobytes().hex()}")
    return "\n".join(lines)


def functions_of(export: Any) -> tuple[Any, ...]:
    """What writes, which a test may have replaced."""
    import torch

    names = ("cut_pools", "export_leanly", "keep_registry", "keep_small_constants", "shorten_recurrences", "READ")
    return torch.onnx.export, *(getattr(export, name) for name in names)


def keep_shapes_of_frequent_calls() -> None:
    """Have torch keep shapes of functions that one export calls many times, and no others."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    if not all(hasattr(FakeTensorMode, name) for name in ("_cached_dispatch_impl", "_dispatch_impl")):
        return  # another version of torch
    look_up = FakeTensorMode._cached_dispatch_impl

    def compute(mode: Any, function: Any, *given: Any) -> Any:
        calls = vars(mode).setdefault("calls_of_tests", Counter())  # one mode for each export
        calls[function] += 1
        return (look_up if calls[function] > FREQUENT else FakeTensorMode._dispatch_impl)(mode, function, *given)

    put(FakeTensorMode, "_cached_dispatch_impl", compute)


def log_nothing() -> None:
    """Have torch write its structured log to nobody, where nobody has asked for that log.

    A logger that no manager knows: pytest gives a handler to each that does not propagate, and torch writes where there
    is a handler.
    """
    from torch._logging import _internal

    if not any(getattr(handler, "root_dir", None) for handler in _internal.trace_log.handlers):
        put(_internal, "trace_log", logging.Logger(_internal.trace_log.name))


class Table:
    """What an operator's table and its rule for shapes become while it is decomposed, but for the decomposition."""

    def __init__(self, before: dict[Any, Any], after: dict[Any, Any], rule: Any) -> None:
        self.before, self.after, self.rule = before, after, rule

    def is_of(self, now: dict[Any, Any], rule: Any) -> bool:
        """Whether it was made of this table, where there was no rule of another's."""
        return rule is None and now == self.before


def keep_tables() -> None:
    """Have torch use the tables of operators that it has made before."""
    import torch
    from torch._subclasses import fake_impls
    from torch.export import exported_program

    enter = getattr(exported_program, "_override_composite_implicit_decomp", None)
    rules = getattr(fake_impls, "op_implementations_dict", None)
    if enter is None or rules is None:  # of another version of torch
        return
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    kept: dict[Any, Table] = {}

    @contextlib.contextmanager
    def enter_kept(decompositions: Mapping[Any, Any], **more: Any) -> Iterator[None]:
        known = {op: kept[op] for op in decompositions if op in kept and kept[op].is_of(op.py_kernels, rules.get(op))}
        before = {op: dict(op.py_kernels) for op in decompositions if op not in known}
        free = {op for op in before if op not in rules}
        with enter({op: decompositions[op] for op in before}, **more):
            for op in free:
                kept[op] = Table(before[op], dict(op.py_kernels), rules[op])
            for op, table in known.items():
                op.py_kernels.update(table.after)
                op.py_kernels[composite] = decompositions[op]
                op._dispatch_cache.clear()
                rules[op] = table.rule
            try:
                yield
            finally:
                for op, table in known.items():
                    op.py_kernels.clear()
                    op.py_kernels.update(table.before)
                    op._dispatch_cache.clear()
                    rules.pop(op, None)

    put(exported_program, "_override_composite_implicit_decomp", enter_kept)
