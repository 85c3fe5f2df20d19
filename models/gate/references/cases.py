"""The fixed inputs of the gate: normal ones, large and small, tied, constant, one alone, the ends of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from edge_sdk.models.ir.specification.spec import DataInput


@dataclass(frozen=True)
class Case:
    """The inputs of one comparison.

    For samples of one value and integers of one kind torch may have no finite gradient itself; nothing is compared.

    Attributes:
        batch: samples of normal numbers times `scale`. tied: they are rounded to whole numbers.
        degenerate: the first two samples are zeros and ones, and have the weight 0. What happens at such samples inside
            a network (a deviation of 0, equal maxima) must not reach the gradient of the others, not even as NaN.
        ends: integers are the first or the last one possible.
        whole: integers of a sample are all the first or all the last one possible: an empty mask and a full one;
            "silent" with the weight 0, "counted" with others. Only for modules that take integers.
        flat: the first sample is zeros, the second one has one value: sensors that are off.
        at_rest: nothing is dropped at random, and the module is in evaluation; only for modules that drop something.
    """

    name: str
    seed: int
    batch: int
    scale: float = 1.0
    tied: bool = False
    degenerate: bool = False
    ends: bool = False
    at_rest: bool = False
    whole: str = ""
    flat: bool = False


CASES = (
    Case("normal inputs", 100, 3),
    Case("normal inputs again", 101, 3),
    Case("inputs times 1e-3", 102, 3, 1e-3),
    Case("inputs times 30", 103, 3, 30.0),
    Case("one sample", 104, 1),
    Case("tied inputs", 105, 4, tied=True),
    Case("constant samples of weight 0", 106, 4, degenerate=True),
    Case("first and last indices", 107, 4, ends=True),
    Case("nothing dropped", 108, 3, at_rest=True),
    Case("empty and full masks of weight 0", 109, 4, whole="silent"),
    Case("empty and full masks", 110, 4, whole="counted"),
)


def draw(case: Case, inputs: Sequence[DataInput], target: tuple[int, ...] | None) -> dict[str, torch.Tensor]:
    """Draw the inputs, y and weights, all float64 numbers that are exact in float32.

    Args:
        target: shape of y for one sample, or (-classes,) where y is labels.
    """
    rng = np.random.default_rng(case.seed)
    out: dict[str, torch.Tensor] = {}
    for i in inputs:
        x = rng.standard_normal((case.batch, *i.shape)) * case.scale
        x = np.round(x) if case.tied else x
        if case.degenerate:
            x[0], x[1] = 0, 1
        if case.flat:
            x[0], x[1] = 0, x[1].flat[0]
        step = i.below - 1 if i.below and case.ends else 1
        drawn = rng.integers(0, i.below, x.shape) if i.below else x.astype(np.float32).astype(np.float64)
        drawn = drawn // max(step, 1) * step if i.below else drawn
        if i.below and case.whole:
            drawn[-2], drawn[-1] = 0, i.below - 1
        out[i.name] = torch.from_numpy(drawn)
    weights = rng.uniform(0.1, 1, case.batch).astype(np.float32).astype(np.float64)
    if case.batch > 2 and not case.flat:
        weights[0] = 0
    if case.degenerate:
        weights[:2] = 0
    if case.whole == "silent":
        weights[-2:] = 0
    out["weights"] = torch.from_numpy(weights)
    return out | {"y": draw_target(rng, case.batch, target)}


def draw_target(rng: np.random.Generator, batch: int, target: tuple[int, ...] | None) -> torch.Tensor:
    """Draw y: labels, or numbers between 0 and 1."""
    if target is not None and len(target) == 1 and target[0] < 0:
        return torch.from_numpy(rng.integers(0, -target[0], batch))
    return torch.from_numpy(rng.uniform(0, 1, (batch, *(target or ()))).astype(np.float32).astype(np.float64))
