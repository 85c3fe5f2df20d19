"""Exports of torch, quicker: torch lists its operators anew some thirty times in each, which took a quarter of a test.

The list only grows when operators are registered, so it is made again when there are others than the last time.
"""

from __future__ import annotations

import sys


def list_operators_once() -> None:
    """Have torch list its operators only when there are new ones; nothing, if no test here exports."""
    if "torch" not in sys.modules:
        return
    import torch
    from torch._export import utils

    walk = getattr(utils, "_materialize_cpp_cia_ops", None)
    if walk is None:  # of another version of torch
        return
    seen: list[list[str]] = []

    def walk_if_new() -> None:
        there = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        if seen != [there]:
            walk()
            seen[:] = [there]

    utils._materialize_cpp_cia_ops = walk_if_new
