"""The native forms of a bundle's graphs, for devices that have the library auscult-native."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edge_sdk.model.sessions.kernels import takes_products
from edge_sdk.model.sessions.native import describe_library, find_library
from edge_sdk.models.derive.native import native_form
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.derive.tensors import TensorGraph
from edge_sdk.models.gate.graphs.check import YShape
from edge_sdk.models.gate.graphs.gate import Truth
from edge_sdk.models.gate.graphs.native import NativeGraph, check_native, check_sides
from edge_sdk.models.gate.references.runnable import RunnableGraph


def build_native_graphs(
    graphs: Mapping[str, Target],
    tensors: Mapping[str, TensorGraph],
    runs: Mapping[str, RunnableGraph],
    fixed: Mapping[str, np.ndarray],
    truth: Truth,
    y_shape: YShape,
    progress: Callable[[str], None],
) -> dict[str, Target]:
    """Name -> native form of a graph, for those that gain by one; run and compared here if the library is installed.

    Args:
        graphs, runs: name -> graph, and its session. tensors: second forms, of which native ones are made.

    Raises:
        CompileError: a native form is not right, or the library cannot run it.
    """
    found = dict[str, Target]()
    for name, target in graphs.items():
        plain = tensors[name].target if name in tensors else target
        if (native := native_form(plain)) is not None:
            check_sides(name, native, plain)
            found[name] = native
    size = sum(len(target.model().SerializeToString()) for target in found.values())
    progress(f"native: {len(found)} of {len(graphs)} graphs have a native form, {size:,} bytes more")
    library = find_library()
    if found and library:
        slots = graphs["loss_grad"].slots
        forms = {name: NativeGraph(target, tensors.get(name), runs[name]) for name, target in found.items()}
        worst = check_native(forms, library, slots, fixed, truth, y_shape)
        own = "" if takes_products(slots[-1].offset + slots[-1].size) else " and onnxruntime's products"
        progress(f"native: at most {worst:.1e} from the other graphs in float32, with {describe_library()}{own}")
    elif found:
        progress("native: not run here, where there is no auscult-native; devices compare golden vectors before use")
    return found
