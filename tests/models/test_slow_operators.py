"""Operators that onnxruntime is slow at, written with others: the same values, where there is a faster form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import write_model
from edge_sdk.models.passes.products.slow_operators import replace_slow_operators
from tests.models.rule_check import make_forward, make_node

SIZES = {"b": "B", "h": 3, "n": 5, "d": 4, "e": 2}


def read(operator: str, shapes: dict[str, tuple[Any, ...]], **attributes: Any) -> OnnxGraph:
    return read_forward(make_forward([make_node(operator, list(shapes), **attributes)], shapes, {}))


def compare(g: OnnxGraph, scale: float = 1.0) -> set[str]:
    """Checks that the values stay the same; the operators of the graph afterwards."""
    rng = np.random.default_rng(0)
    at = {k: scale * rng.standard_normal([d if isinstance(d, int) else 6 for d in g.shapes[k]]) for k in g.inputs}
    want = run(write_model(g, ["y"], double=True), at)["y"]
    replace_slow_operators(g)
    np.testing.assert_allclose(run(write_model(g, ["y"], double=True), at)["y"], want, atol=1e-12)
    return {n.op for n in g.nodes}


@pytest.mark.parametrize(
    "equation",
    ["bhnd,bhne->bhde", "bhnd,bhde->bhne", "bhde,bhne->bhnd", "bhne,bhnd->bhde", "bnd,bne->bed", "bnd,bde->bne"],
)
def test_products_of_matrices(equation: str) -> None:
    terms = dict(zip("xz", equation.partition("->")[0].split(","), strict=True))
    shapes = {name: tuple(SIZES[i] for i in indices) for name, indices in terms.items()}
    assert compare(read("Einsum", shapes, equation=equation)) <= {"MatMul", "Transpose"}


@pytest.mark.parametrize(
    "equation",
    [
        "bhn,bhn->bh",  # no matrices
        "bhnd,bhnd->bhn",  # one index is in all
        "bhnd,hbne->bhde",  # others do not come first, in one order
        "bnd,bhe->bndhe",  # nothing is summed
        "bhnd,bhnd->bn",
    ],
)
def test_other_einsums_stay(equation: str) -> None:
    terms = dict(zip("xz", equation.partition("->")[0].split(","), strict=True))
    shapes = {name: tuple(SIZES[i] for i in indices) for name, indices in terms.items()}
    assert compare(read("Einsum", shapes, equation=equation)) == {"Einsum"}


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": ("B", 3, 5, 4), "z": ("B", 1, 5, 2)},  # one of the outer sizes
        {"x": ("B", 3, 1, 4), "z": ("B", 3, 5, 2)},  # the size that is summed
    ],
)
def test_products_in_which_one_is_repeated_stay(shapes: dict[str, tuple[Any, ...]]) -> None:
    assert compare(read("Einsum", shapes, equation="bhnd,bhne->bhde")) == {"Einsum"}


@pytest.mark.parametrize("axis", [1, 2, -2])
def test_softmax_along_another_axis(axis: int) -> None:
    g = read("Softmax", {"x": ("B", 3, 5, 4)}, axis=axis)
    assert "Softmax" not in compare(g, 300.0)  # whose powers alone are beyond all numbers


@pytest.mark.parametrize("axis", [3, -1])
def test_softmax_along_the_last_axis_stays(axis: int) -> None:
    assert compare(read("Softmax", {"x": ("B", 3, 5, 4)}, axis=axis)) == {"Softmax"}
