"""The optional native step: the library of `auscult-native`, with operators, and with products in onnxruntime's place.

It is found without being imported. Its products are used only after one has been compared here; operators of its own,
only after those have (operator_probe.py).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from functools import cache
from typing import Any

import numpy as np

from edge_sdk.model.bundle import BundleError
from edge_sdk.model.inputs import Array
from edge_sdk.model.sessions.onnx_session import OnnxSession

PACKAGE = "auscult_native"
ENTRIES = ("find_library", "find_instruction_set", "__version__")
"""What is used of the package."""
SWITCH = "AUSCULT_NATIVE"
"""Variable of the environment that turns it off: 0."""
MEASURED = frozenset({"avx512", "avx2"})
"""Instruction sets with which training steps of native graphs were measured, and were not slower than of others."""
FAST_PRODUCTS = frozenset({"avx512"})
"""Those of them with which the library's products were not slower than onnxruntime's."""
UNUSABLE = (OSError, ValueError)
"""Errors of a library that is there and cannot tell its instruction set."""
ROWS, DEPTH, COLUMNS = (37, 5), 300, 70
"""Sizes of the products that are compared: many rows and few, two stretches of the depth, no whole block of columns."""

log = logging.getLogger(__name__)


def find_library() -> str:
    """Path of the library; "": the package is not installed, or AUSCULT_NATIVE=0 turns it off."""
    package = None if os.environ.get(SWITCH) == "0" else load_package()
    return "" if package is None else str(package.find_library())


def find_measured_library() -> str:
    """Path of the library if its instruction set is one of MEASURED, or cannot be told; else ""."""
    library = find_library()
    return library if library and computes_with(MEASURED) else ""


def has_fast_products() -> bool:
    """True with the library, if its instruction set is one of FAST_PRODUCTS, or cannot be told."""
    return bool(find_library()) and computes_with(FAST_PRODUCTS)


def computes_with(sets: frozenset[str]) -> bool:
    """True if the library's instruction set is one of these, or it cannot tell: the probe then says why."""
    try:
        return load_package().find_instruction_set() in sets
    except UNUSABLE:
        return True


def describe_library() -> str:
    """The package's version and its instruction set, e.g. "auscult-native 0.3.0, avx512"; "" as of `find_library`."""
    if not find_library():
        return ""
    package = load_package()
    try:
        return f"auscult-native {package.__version__}, {package.find_instruction_set()}"
    except UNUSABLE as error:
        return f"auscult-native {package.__version__} cannot be used: {error}"


def load_package() -> Any:
    """The package, whose import loads no library; None: it is not installed, or broken, of which the log tells."""
    if importlib.util.find_spec(PACKAGE) is None:
        return None
    try:
        package = importlib.import_module(PACKAGE)
    except Exception as error:  # whatever the code of another package raises
        log.warning("%s cannot be imported, and is not used: %s", PACKAGE, error)
        return None
    if missing := [name for name in ENTRIES if not hasattr(package, name)]:
        log.warning("%s has no %s, and is not used", PACKAGE, ", ".join(missing))
        return None
    return package


def check_library(library: str) -> None:
    """Compares products of the library with those of numpy in float64.

    Raises:
        BundleError: it cannot be loaded, or computes something else.
    """
    session = OnnxSession("probe of products", write_probe(), 1, library=library)
    rng = np.random.default_rng(0)
    b, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((DEPTH, COLUMNS), COLUMNS))
    for rows in ROWS:
        a = rng.standard_normal((rows, DEPTH)).astype(np.float32)
        product, sum_ = session.run({"a": a, "b": b, "b_rows": np.ascontiguousarray(b.T), "bias": bias})
        compare_product(product, a, b, np.zeros_like(bias))
        compare_product(sum_, a, b, bias)


def compare_product(got: Array, a: Array, b: Array, bias: Array) -> None:
    """Raises BundleError where a product is farther from that in float64 than rounding makes it."""
    a, b, bias = (np.asarray(each, np.float64) for each in (a, b, bias))
    most = (len(b) + 2) * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b) + np.abs(bias))
    want = a @ b + bias
    if got.shape != want.shape or not np.all(np.abs(got - want) <= most):  # what is no number is not within it either
        raise BundleError("the products of auscult-native are wrong on this machine; it is not used")


@cache
def write_probe() -> bytes:
    """A graph with product = a b, and sum = a b_rows^T + bias."""
    from edge_sdk.model.onnx_write import write, write_graph, write_node  # where the package is installed

    turned = write(1, "transB") + write(3, 1) + write(20, 2)
    nodes = write_node("MatMul", ("a", "b"), ("product",))
    nodes += write_node("Gemm", ("a", "b_rows", "bias"), ("sum",), turned)
    return write_graph(nodes, ("a", "b", "b_rows", "bias"), ("product", "sum"))
