"""The weights with which Resize makes each position of its output from those of its input, along one axis.

After the specification of ONNX: operator Resize, versions 18 and 19.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edge_sdk.models.ir.errors import UnsupportedPattern

Positions = np.ndarray

# name -> the place in the input of each position of the output, from (position, factor, input size, output size)
PLACES: dict[str, Callable[[Positions, float, int, int], Positions]] = {
    "half_pixel": lambda at, factor, size, made: (at + 0.5) / factor - 0.5,
    "pytorch_half_pixel": lambda at, factor, size, made: (at + 0.5) / factor - 0.5 if made > 1 else 0.0 * at,
    "asymmetric": lambda at, factor, size, made: at / factor,
    "align_corners": lambda at, factor, size, made: at * ((size - 1) / max(made - 1, 1)),
}
ROUNDINGS: dict[str, Callable[[Positions], Positions]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
}


def make_matrix(factor: float, sizes: tuple[int, int], attributes: Mapping[str, Any], where: str = "") -> np.ndarray:
    """The weights (output size, input size).

    Args:
        factor: output size per input size, as the node gives it; 0: the quotient of the sizes.
        attributes: of the node.

    Raises:
        UnsupportedPattern: an attribute asks for something else.
    """
    size, made = sizes
    mode, place = attributes.get("mode", "nearest"), attributes.get("coordinate_transformation_mode", "half_pixel")
    if place not in PLACES or attributes.get("antialias", 0) or attributes.get("exclude_outside", 0):
        raise UnsupportedPattern(f"Resize {mode} with {place}, antialias or exclude_outside", where, "leave these out")
    at = PLACES[place](np.arange(made, dtype=np.float64), factor or made / size, size, made)
    if mode == "nearest":
        taps = ROUNDINGS[attributes.get("nearest_mode", "round_prefer_floor")](at)[:, None]
        weights = np.ones_like(taps)
    else:
        taps, weights = (
            weigh_linear(at) if mode == "linear" else weigh_cubic(at, attributes.get("cubic_coeff_a", -0.75))
        )
    matrix = np.zeros((made, size))
    rows = np.broadcast_to(np.arange(made)[:, None], taps.shape)
    np.add.at(matrix, (rows, np.clip(taps, 0, size - 1).astype(int)), weights)
    return matrix


def weigh_linear(at: Positions) -> tuple[np.ndarray, np.ndarray]:
    """The two neighbours of each place, and their weights: (n, 2) each."""
    low = np.floor(at)
    share = at - low
    return np.stack([low, low + 1], 1), np.stack([1 - share, share], 1)


def weigh_cubic(at: Positions, a: float) -> tuple[np.ndarray, np.ndarray]:
    """The four neighbours of each place, and their weights by Keys' kernel with the coefficient `a`: (n, 4) each."""
    low = np.floor(at)
    taps = np.stack([low - 1, low, low + 1, low + 2], 1)
    d = np.abs(taps - at[:, None])
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return taps, np.where(d <= 1, near, far)
