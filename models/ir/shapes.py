"""Shapes of values. Every dimension is a number, or a multiple of the one symbol, the batch size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from edge_sdk.models.ir.errors import UnsupportedPattern


@dataclass(frozen=True)
class BatchDim:
    """A dimension of `times` x the batch size."""

    times: int = 1


Dim = int | BatchDim
Shape = tuple[Dim, ...]


def broadcast(a: Shape, b: Shape) -> Shape:
    """The shape of elementwise arithmetic on two values, by numpy's rules."""
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def multiply(dims: Iterable[Dim]) -> Dim:
    """The size of axes that are merged into one.

    Raises:
        UnsupportedPattern: two of them depend on the batch.
    """
    dims = list(dims)
    number = prod(d for d in dims if isinstance(d, int))
    batches = [d.times for d in dims if isinstance(d, BatchDim)]
    if len(batches) > 1:
        raise UnsupportedPattern("two dimensions that depend on the batch are merged")
    return BatchDim(number * batches[0]) if batches else number


def divide(size: Dim, by: int) -> Dim:
    """The size of each piece of an axis that is cut into `by` pieces."""
    return BatchDim(size.times // by) if isinstance(size, BatchDim) else size // by


def divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b, or None where that is not a whole dimension."""
    if isinstance(b, BatchDim):
        return a.times // b.times if isinstance(a, BatchDim) and a.times % b.times == 0 else None
    if isinstance(a, BatchDim):
        return BatchDim(a.times // b) if b and a.times % b == 0 else None
    return a // b if b and a % b == 0 else None


def add_up(dims: Iterable[Dim]) -> Dim:
    """The size of axes that are put one after the other.

    Raises:
        UnsupportedPattern: some depend on the batch and others do not.
    """
    dims = list(dims)
    numbers = [d for d in dims if isinstance(d, int)]
    if len(numbers) == len(dims):
        return sum(numbers)
    if not numbers:
        return BatchDim(sum(d.times for d in dims if isinstance(d, BatchDim)))
    raise UnsupportedPattern("a concatenation of the batch with something else")


def as_numbers(dims: Iterable[Dim], what: str = "an operation", where: str = "") -> tuple[int, ...]:
    """The dimensions as plain numbers.

    Args:
        what: the operation that needs them, for the error. where: path of its torch module.

    Raises:
        UnsupportedPattern: one of them is the batch.
    """
    dims = tuple(dims)
    numbers = tuple(d for d in dims if isinstance(d, int))
    if len(numbers) < len(dims):
        advice = "samples of a batch must not depend on each other"
        raise UnsupportedPattern(f"{what} over the batch axis", where, advice)
    return numbers


def as_number(dim: Dim, what: str = "an operation", where: str = "") -> int:
    """One dimension as a plain number; raises as `as_numbers` does."""
    return as_numbers((dim,), what, where)[0]


def at_batch(shape: Shape, batch: int) -> tuple[int, ...]:
    """The shape for one batch size."""
    return tuple(d.times * batch if isinstance(d, BatchDim) else d for d in shape)


def reshape_sizes(shape: Sequence[Dim]) -> list[int]:
    """The shape as ONNX's Reshape takes it: -1 for the dimension that depends on the batch."""
    return [d if isinstance(d, int) else -1 for d in shape]
