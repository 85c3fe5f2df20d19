"""Uniform random numbers that a module compares with a number: dropout by hand, as `torch.rand_like(x) < 0.9`.

Such a comparison draws zeros and ones with one probability, and so does `(0.9 + torch.rand(...)).floor()`, the older
form of stochastic depth. Whatever else is made of uniform numbers is none that devices draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
Functions = tuple[Any, ...]
UNIFORMS = (aten.rand.default, aten.rand_like.default, aten.uniform_.default)
BELOW = (aten.lt.Scalar, aten.le.Scalar)
ABOVE = (aten.gt.Scalar, aten.ge.Scalar)
SUMS = (aten.add.Tensor, aten.add_.Tensor)
FLOORS = (aten.floor.default, aten.floor_.default)
CASTS = (aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten._to_copy.default)
KEPT = (*CASTS, aten.detach.default, aten.alias.default, aten.clone.default, aten.unsqueeze.default, aten.view.default)
"""Functions that leave each number what it is, once."""
VIEWS: Functions = (
    aten.view.default,
    aten.reshape.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.permute.default,
)
VIEWS += (aten.expand.default, aten.expand_as.default, aten.transpose.int, aten.detach.default, aten.alias.default)
VIEWS += (aten.clone.default, aten.contiguous.default, aten.select.int, aten.slice.Tensor)
NEGATIONS = (aten.logical_not.default, aten.bitwise_not.default)
CHOICES = (aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
FILLS = (aten.masked_fill.Scalar, aten.masked_fill.Tensor)
PRODUCTS = (aten.mul.Tensor, aten.mul_.Tensor, aten.div.Tensor, aten.div_.Tensor)

Answer = Callable[[torch.Tensor, float], torch.Tensor]


def is_uniform(func: Any, args: Sequence[Any]) -> bool:
    """True for a function that draws uniform numbers between 0 and 1."""
    bounds = tuple(args[1:3]) if func is aten.uniform_.default else ()
    return func in UNIFORMS and (*bounds, *(0, 1)[len(bounds) :]) == (0, 1)


def find_probability(func: Any, offset: float, bound: float) -> float:
    """The probability of a 1 where uniform numbers, to which `offset` was added, are compared with `bound`."""
    below = min(max(bound - offset, 0.0), 1.0)
    return float(f"{below if func in BELOW else 1 - below:.7g}")


def is_number(value: Any) -> bool:
    """True for a number, also as torch gives it to a function of tensors."""
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.ndim == 0)


def make_halves(func: Any, like: Any, kwargs: Mapping[str, Any]) -> torch.Tensor:
    """One half in the place of each number that one of UNIFORMS would draw."""
    if func is aten.uniform_.default:
        return torch.fill_(like, 0.5)
    if func is aten.rand_like.default:
        return torch.full_like(like, 0.5, dtype=kwargs.get("dtype"))
    return torch.full(like, 0.5, dtype=kwargs.get("dtype"))


class Uniforms:
    """The uniform numbers of one pass of a module, and what is made of them.

    Attributes:
        answer: gives zeros and ones of one probability in the place of a comparison, like a tensor.
        drawn: numbers are drawn; else they are all one half, and torch's generator stays as it is.
        found: id -> numbers, and what was added to them; None: they have been compared.
    """

    def __init__(self, answer: Answer, drawn: bool) -> None:
        self.answer, self.drawn = answer, drawn
        self.found: dict[int, tuple[torch.Tensor, float | None]] = {}

    def read(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call returns, if it draws uniform numbers or compares them; NotImplemented for others."""
        if is_uniform(func, args):
            return self.keep(func(*args, **kwargs) if self.drawn else make_halves(func, args[0], kwargs), 0.0)
        numbers, offset = self.found.get(id(args[0]) if args else 0, (None, None))
        if numbers is None or offset is None:
            return NotImplemented
        if func in KEPT:
            self.found[id(numbers)] = numbers, None
            return self.keep(func(*args, **kwargs), offset)
        if func in SUMS and is_number(args[1]) and not kwargs:
            self.found[id(numbers)] = numbers, None
            return self.keep(func(*args), offset + float(args[1]))
        if func in BELOW + ABOVE and isinstance(args[1], int | float):
            self.found[id(numbers)] = numbers, None
            like = torch.empty(numbers.shape, dtype=torch.bool)
            return self.answer(like, find_probability(func, offset, float(args[1])))
        if func in FLOORS and 0 < offset < 1:
            made = self.answer(torch.empty_like(numbers), float(f"{offset:.7g}"))
            if func is aten.floor.default:
                self.found[id(numbers)] = numbers, None
                return made
            del self.found[id(numbers)]
            return numbers.copy_(made)
        return NotImplemented

    def keep(self, numbers: torch.Tensor, offset: float) -> torch.Tensor:
        """The numbers, remembered."""
        self.found[id(numbers)] = numbers, offset
        return numbers

    def have(self, *given: Any) -> bool:
        """True if a call is given some of the numbers."""
        return any(id(leaf) in self.found for leaf in tree_leaves(given))


class DrawnShares:
    """Probabilities in the place of truths that were drawn: a choice between two values becomes their mean."""

    def __init__(self) -> None:
        self.held: dict[int, torch.Tensor] = {}

    def hold(self, like: torch.Tensor, probability: float) -> torch.Tensor:
        """Probabilities in the shape of zeros and ones, which count as truths where those are none of floats."""
        if like.dtype != torch.bool:
            return torch.full_like(like, probability)
        return self.keep(torch.full(like.shape, probability, dtype=torch.get_default_dtype()))

    def keep(self, made: torch.Tensor) -> torch.Tensor:
        self.held[id(made)] = made
        return made

    def apply(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call makes of such probabilities; NotImplemented where it is given none.

        Where nothing can be said of them they are truths from 0.5 on.
        """
        if not self.held or not any(id(leaf) in self.held for leaf in tree_leaves((args, kwargs))):
            return NotImplemented
        if func in (*CHOICES, *FILLS):
            m, a, b = args if func in CHOICES else (args[1], args[2], args[0])
            return m * a + (1 - m) * b if id(m) in self.held else NotImplemented
        if func in NEGATIONS:
            return self.keep(1 - args[0])
        if func in VIEWS:
            return self.keep(func(*args, **kwargs))
        if func in PRODUCTS or (func in CASTS and kwargs.get("dtype") not in (None, torch.bool)):
            return func(*args, **kwargs)
        return func(*tree_map(self.decide, tuple(args)), **tree_map(self.decide, dict(kwargs)))

    def decide(self, leaf: Any) -> Any:
        """Truths in the place of probabilities."""
        return leaf >= 0.5 if id(leaf) in self.held else leaf
