"""Einsum with a letter twice in one operand, as in `bii->bi`: its diagonal, before the product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def repeats(equation: str) -> bool:
    """True for an equation in which an operand has a letter twice; dots stand for axes without one."""
    terms = equation.partition("->")[0].replace("...", "").replace(" ", "").split(",")
    return any(len({*term}) < len(term) for term in terms)


def sum_products_of_diagonals(equation: str, operands: Sequence[torch.Tensor], *, path: Any = None) -> Any:
    """`torch.einsum` of the diagonals; an equation without repeated letters is left to the exporter."""
    if not repeats(equation):
        return NotImplemented
    before, arrow, after = equation.replace(" ", "").partition("->")
    if not arrow:  # all letters that are there once, in the order of the alphabet
        after = "".join(sorted(c for c in {*before} - {","} if before.count(c) == 1))
    terms, values = [], []
    for term, x in zip(before.split(","), operands, strict=True):
        term, x = take_diagonals(term, x)
        terms.append(term)
        values.append(x)
    return torch.einsum(f"{','.join(terms)}->{after}", *values)


def take_diagonals(term: str, x: torch.Tensor) -> tuple[str, torch.Tensor]:
    """An operand with each letter once: two axes of n numbers are one of n * n, of which every (n + 1)th is taken."""
    while len({*term}) < len(term):
        second = next(k for k, c in enumerate(term) if c in term[:k])
        first = term.index(term[second])
        rest = [k for k in range(len(term)) if k not in (first, second)]
        size = x.shape[first]
        x = x.permute(*rest, first, second).flatten(-2)[..., :: size + 1]
        term = "".join(term[k] for k in (*rest, first))
    return term, x
