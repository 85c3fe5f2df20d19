"""The distance of two gradients: in each tensor, relative to what can be expected of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edge_sdk.algebra.vectors import Slot

SEMANTIC_LIMIT = 1e-6
# a tensor with smaller entries than this, relative to the whole gradient, is measured against the whole gradient
NOISE = 1e-6
# where torch's float64 has lost more than six digits itself
NOISE_FACTOR = 30
NOISE_LIMIT = 1e-4

Errors = Callable[[], np.ndarray]


def measure_slots(
    got: np.ndarray,
    want: np.ndarray,
    slots: Sequence[Slot],
    find_rounding: Errors,
    find_noise: Errors,
    least: float = 0.0,
) -> dict[str, float]:
    """Name -> error of each tensor of a gradient (n,).

    Args:
        least: the size of the whole gradient, if that is larger than what `want` has.
        find_rounding: torch's own float32 error (n,), positive. find_noise: its own float64 error. Both take as long
            as a gradient, and are asked for only where they may matter.
    """
    whole = max(float(np.abs(want).max(initial=0)), least)
    errors = {s.name: measure_slot(got, want, s, whole) for s in slots}
    if is_within(errors):
        return errors
    rounding = find_rounding()
    errors = {s.name: measure_slot(got, want, s, whole, rounding) for s in slots}
    if is_within(errors):
        return errors
    noise = find_noise()
    return {s.name: excuse(errors[s.name], got, want, s, noise) for s in slots}


def is_within(errors: Mapping[str, float]) -> bool:
    """True if every error is at most SEMANTIC_LIMIT; no NaN is."""
    return all(e <= SEMANTIC_LIMIT for e in errors.values())


def measure_slot(
    got: np.ndarray, want: np.ndarray, slot: Slot, whole: float, rounding: np.ndarray | None = None
) -> float:
    """The largest difference in one tensor, relative to its largest entry; `whole` is the largest of all of `want`.

    Where a gradient is 0 but for rounding (that of a bias before a norm), its entries are no scale. What torch loses
    there in float32, `rounding` (n,), tells how large the numbers were that cancelled; it is the scale if it is larger.
    """
    own = float(np.abs(want[slot.span]).max(initial=0))
    lost = float(np.abs(rounding[slot.span]).max(initial=0)) if rounding is not None else 0.0
    scale = max(own, NOISE * whole, min(2 * lost, whole) if np.isfinite(lost) else 0.0, 1e-30)
    return float(np.abs(got[slot.span] - want[slot.span]).max(initial=0) / scale)


def excuse(error: float, got: np.ndarray, want: np.ndarray, slot: Slot, noise: np.ndarray) -> float:
    """The error of one tensor; the limit at most, where no float64 could come nearer.

    Two values that batch normalisation makes of a batch of two can lie so near each other that a gradient behind them
    keeps six digits in float64, and none in float32. Such a difference is no fault of a rule, which has other cases to
    be right in: it may be NOISE_FACTOR times what the last bit of each parameter does to torch's own gradient, as long
    as that is less than NOISE_LIMIT of the tensor.
    """
    difference = float(np.abs(got[slot.span] - want[slot.span]).max(initial=0))
    allowed = NOISE_FACTOR * float(np.abs(noise[slot.span]).max(initial=0))
    own = float(np.abs(want[slot.span]).max(initial=0))
    return min(error, SEMANTIC_LIMIT) if difference <= min(allowed, NOISE_LIMIT * own) else error


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """|got - want| / |want| in the L2 norm."""
    return float(np.linalg.norm(got - want)) / max(float(np.linalg.norm(want)), 1e-30)
