"""A graph and its form with groups of elementwise nodes, run side by side by the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import at_batch
from edge_sdk.models.passes.native.fuse import fuse_elementwise

BATCH = 3


def fuse(g: OnnxGraph, *outputs: str) -> tuple[Target, Target]:
    """A graph as a target, and its other form, which it must have."""
    target = Target(g, list(outputs))
    fused = fuse_elementwise(target)
    assert fused is not None
    return target, fused


def list_groups(target: Target | None) -> list[OnnxNode]:
    return [] if target is None else [n for n in target.graph.nodes if n.op == "Elementwise"]


def list_operators(target: Target) -> list[str]:
    return [n.op for n in target.graph.nodes]


def list_lines(node: OnnxNode) -> list[str]:
    """The operators of a program, in order."""
    return [line.split()[0] for line in node.attributes["program"].split("\n")]


def draw(g: OnnxGraph, batch: int = BATCH, seed: int = 5) -> dict[str, np.ndarray]:
    """Random inputs of a graph."""
    rng = np.random.default_rng(seed)
    shapes = {i: at_batch(g.shape(i), batch) for i in g.inputs}
    whole = {"int64": lambda shape: rng.integers(0, 2, shape), "bool": lambda shape: rng.random(shape) < 0.5}
    return {i: whole.get(g.dtypes[i], rng.standard_normal)(shape) for i, shape in shapes.items()}


def compare(target: Target, fused: Target, feeds: dict[str, np.ndarray] | None = None, limit: float = 1e-12) -> None:
    """Both forms have the same inputs and outputs, and give the same values in float64."""
    feeds = feeds or draw(target.graph)
    wanted, found = (run(t.model(double=True), feeds) for t in (target, fused))
    assert list(wanted) == list(found)
    for name, value in wanted.items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, rtol=limit, atol=limit, err_msg=name)


def check(g: OnnxGraph, outputs: Sequence[str], groups: int) -> list[OnnxNode]:
    """The groups of a graph's other form, after a comparison of values and of bytes."""
    target, fused = fuse(g, *outputs)
    compare(target, fused)
    again = fuse_elementwise(target)
    assert again is not None and again.model().SerializeToString() == fused.model().SerializeToString()
    found = list_groups(fused)
    assert len(found) == groups
    return found
