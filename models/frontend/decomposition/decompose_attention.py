"""Attention with a mask or a bias, or without an axis of heads, spelled out.

A row whose mask leaves nothing to attend to is 0, and has a gradient of 0. So it is in torch. The exporter would write
a softmax over nothing but -inf, which is no number, and whose gradient makes all others no numbers, also where the
sample weighs 0. And it would lay the result out otherwise in memory than torch has when it noted a reshape of it as a
view, which then fails.
"""

from __future__ import annotations

import math
from typing import Any

import torch

aten = torch.ops.aten
HIDDEN = float("-inf")
HEADED = 4
"""Axes of attention in several heads, the only one that the exporter writes."""


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q k' scale + mask) v; with heads and no mask, or with grouped heads, it is left to the exporter."""
    if dropout_p or enable_gqa or (query.dim() == HEADED and (attn_mask is None or is_causal)):
        return NotImplemented
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = (query * root) @ (key.transpose(-2, -1) * root)
    if attn_mask is None:
        return torch.softmax(scores, -1) @ value
    follows = follows_batch(attn_mask)
    bias, empty = settle_empty_rows(attn_mask, query) if follows else (as_numbers(attn_mask, query), None)
    found = torch.softmax(scores + bias, -1) @ value
    return found if empty is None else found.masked_fill(empty, 0.0)


def settle_empty_rows(mask: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask as numbers that are added to scores, with zeros in rows that hide everything; and which rows these are.

    Args:
        mask: (..., q, k), True where something is seen, or numbers. like: a tensor of the numbers' type.
    """
    mask = as_numbers(mask, like)
    empty = mask.amax(-1, keepdim=True) == HIDDEN
    return mask.masked_fill(empty, 0.0), empty


def as_numbers(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What is added to the scores: 0 where a mask of truth values shows something, else -inf; numbers as they are."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask.logical_not(), HIDDEN)


def follows_batch(mask: torch.Tensor) -> bool:
    """Is a mask of the samples' own? Rows of another one are not empty, or the gate says so."""
    return any(isinstance(d, torch.SymInt) for d in mask.shape)


def has_mask(node: torch.fx.Node) -> bool:
    """True for attention with a mask or a bias."""
    return isinstance(node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None), torch.fx.Node)


def has_heads(node: torch.fx.Node) -> bool:
    """True for attention of tensors (batch, heads, steps, width)."""
    query: Any = node.args[0]
    return bool(query.meta["val"].dim() == HEADED)


ATTENTION = {aten.scaled_dot_product_attention.default: attend}
