"""Exports of torch, quicker: what torch makes anew in each, though it is the same each time, is kept.

* It asks for the list of all its operators some fifty times. The list only grows when a library registers operators, so
  it is made again when one has.
* Twice it enters functions for 16 kinds of device into the tables of 360 operators, and takes them out again. The
  tables that this makes are kept, with what they were made of, and used where that is the same.

The graphs are the same; of an export of a small network this was two fifths, of a large one a tenth.
tests/models/test_quick_exports.py compares them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def quicken_exports() -> None:
    """Change torch in this process; nothing, if no test here exports."""
    if "torch" in sys.modules:
        list_operators_once()
        keep_tables()


def list_operators_once() -> None:
    """Have torch list its operators only when a library may have registered new ones."""
    import torch
    from torch._export import utils

    walk = getattr(utils, "_materialize_cpp_cia_ops", None)
    if walk is None:  # of another version of torch
        return
    listed = [False]

    def walk_if_new() -> None:
        if not listed[0]:
            walk()
            listed[0] = True

    def noted(change: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(change)
        def change_and_note(*given: Any, **named: Any) -> Any:
            listed[0] = False
            return change(*given, **named)

        return change_and_note

    utils._materialize_cpp_cia_ops = walk_if_new
    for name in ("__init__", "define", "impl"):
        setattr(torch.library.Library, name, noted(getattr(torch.library.Library, name)))


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
    def enter_kept(decompositions: Mapping[Any, Any]) -> Iterator[None]:
        known = {op: kept[op] for op in decompositions if op in kept and kept[op].is_of(op.py_kernels, rules.get(op))}
        before = {op: dict(op.py_kernels) for op in decompositions if op not in known}
        free = {op for op in before if op not in rules}
        with enter({op: decompositions[op] for op in before}):
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

    enter_kept.torchs = enter  # type: ignore[attr-defined]
    exported_program._override_composite_implicit_decomp = enter_kept
