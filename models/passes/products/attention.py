"""Rewrites attention, as torch exports it, so that each head works on its own.

Heads lie side by side in a row, but a product wants them one after the other. Split and Concat move such small pieces
two to three times faster than Transpose, so each head is cut out and attends on its own, and their results are put
side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads, select_needed
from edge_sdk.models.ir.shapes import Dim, Shape, at_batch, divide, multiply

MOST_HEADS = 16  # with more, the many small operators cost more than they save
MOVES = ("Reshape", "Transpose")
QUERY, KEY = (0, 2, 1, 3), (0, 2, 3, 1)  # permutations of (B, T, heads, d) for the products


@dataclass(frozen=True)
class Attention:
    """One attention: y = softmax(factor q k') v for each head.

    Attributes:
        roots: q, k and v, (rows, E) each, rows by sample and time. stacked: (rows, 3, E), their one source, or "".
        times: steps of q, k and v. y: the result. inside: values that nobody else may read.
    """

    roots: tuple[str, str, str]
    stacked: str
    factor: float
    heads: int
    times: tuple[int, int, int]
    y: str
    inside: frozenset[str]


def fuse_attention(g: OnnxGraph, keep: Collection[str]) -> None:
    """Rewrite every attention in a graph with arranged views, in place."""
    finder, made = Finder(g, keep), False
    for found in [a for n in list(g.nodes) if n.op == "Softmax" and (a := finder.find_around(n))]:
        at = next(i for i, n in enumerate(g.nodes) if found.y in n.outputs)
        after, g.nodes[at:], made = g.nodes[at + 1 :], [], True
        g.where = finder.makers[found.y].where
        write_attention(g, found)
        g.nodes += after
    g.where = ""
    if made:
        g.nodes = select_needed(g, keep)


class Finder:
    """Finds attentions in a graph.

    Attributes:
        makers, users: value -> the node that makes it, the nodes that read it.
    """

    def __init__(self, g: OnnxGraph, keep: Collection[str]) -> None:
        self.g, self.keep = g, keep
        self.makers = {o: n for n in g.nodes for o in n.outputs}
        self.users: dict[str, list[OnnxNode]] = {}
        for n in g.nodes:
            for i in list_reads(n):
                self.users.setdefault(i, []).append(n)

    def find_around(self, softmax: OnnxNode) -> Attention | None:
        """The attention that a Softmax belongs to, or None."""
        g, scores = self.g, self.makers.get(softmax.inputs[0])
        chain = self.follow(softmax, ("MatMul", "Transpose", "Reshape"))
        if scores is None or scores.op != "MatMul" or not chain or g.rank(softmax.outputs[0]) != 4:
            return None
        if softmax.attributes.get("axis", -1) not in (-1, 3) or chain[1].attributes.get("perm") != [0, 2, 1, 3]:
            return None
        inside = frozenset(o for n in (scores, softmax, *chain[:2]) for o in n.outputs)
        if inside & set(self.keep) or len(self.users[scores.outputs[0]]) != 1:
            return None
        (q, first), (k, second) = (self.strip_factor(i) for i in scores.inputs)
        heads, y = g.shape(softmax.outputs[0])[1], chain[2].outputs[0]
        if not isinstance(heads, int) or heads > MOST_HEADS:
            return None
        found = [self.find_rows(v, turn) for v, turn in ((q, QUERY), (k, KEY), (chain[0].inputs[1], QUERY))]
        if any(f is None for f in found):
            return None
        roots, times = zip(*found, strict=True)
        if (multiply(g.shape(y)[:-1]), g.shape(y)[-1]) != g.shape(roots[0]):
            return None
        return Attention(roots, self.find_stack(roots), first * second, heads, times, y, inside)

    def follow(self, n: OnnxNode, ops: Sequence[str]) -> list[OnnxNode]:
        """The chain of nodes with these operators in which each is the only reader of the one before; [] if none."""
        chain = []
        for op in ops:
            readers = self.users.get(n.outputs[0], [])
            if len(readers) != 1 or readers[0].op != op or readers[0].inputs[0] != n.outputs[0]:
                return []
            n = readers[0]
            chain.append(n)
        return chain

    def strip_factor(self, name: str) -> tuple[str, float]:
        """A value as (another, the number that it is multiplied with)."""
        n = self.makers.get(name)
        if n is not None and n.op == "Mul" and n.inputs[1] in self.g.constants:
            number = self.g.constants[n.inputs[1]]
            if number.size == 1:
                return n.inputs[0], float(number.reshape(()))
        return name, 1.0

    def find_rows(self, name: str, turn: Sequence[int]) -> tuple[str, int] | None:
        """For a value (B, T, heads, d) permuted by `turn`: the (rows, E) that it is a view of, and T."""
        moves: list[OnnxNode] = []
        root = name
        while root in self.makers and self.makers[root].op in MOVES:
            moves.insert(0, self.makers[root])
            root = moves[0].inputs[0]
        g, shape = self.g, self.g.shape(name)
        batch, time, heads, depth = (shape[turn.index(i)] for i in range(4))
        if not isinstance(time, int) or g.shape(root) != (multiply((batch, time)), multiply((heads, depth))):
            return None
        seen = number_places(g.shape(root))
        for n in moves:
            size = at_batch(g.shape(n.outputs[0]), 2)
            seen = seen.reshape(size) if n.op == "Reshape" else seen.transpose(n.attributes["perm"])
        plain = number_places((batch, time, heads, depth)).transpose(turn)
        return (root, time) if np.array_equal(seen, plain) else None

    def find_stack(self, roots: Sequence[str]) -> str:
        """The value of which the roots are the entries 0, 1 and 2 of axis 1, if nobody else reads it; else ""."""
        makers = [n for r in roots if (n := self.makers.get(r)) and n.op == "Gather" and n.attributes.get("axis") == 1]
        if len(makers) != len(roots):
            return ""
        source = makers[0].inputs[0]
        index = [self.g.constants.get(n.inputs[1], np.zeros(2)).tolist() for n in makers]
        alone = len(self.users[source]) == 3 and all(len(set(n.inputs[:1]) | {source}) == 1 for n in makers)
        return source if alone and index == [0, 1, 2] else ""


def number_places(shape: Sequence[Dim]) -> np.ndarray:
    """An array of that shape, for two samples, with a number of its own in each place."""
    size = at_batch(tuple(shape), 2)
    return np.arange(np.prod(size)).reshape(size)


def write_attention(g: OnnxGraph, a: Attention) -> None:
    """Append the attention head by head, with its backward pass."""
    sources = (a.stacked,) if a.stacked else a.roots
    if a.stacked:
        pieces = cut_heads(g, a.stacked, 3 * a.heads, a.times[0])
        q, k, v = (pieces[i * a.heads : (i + 1) * a.heads] for i in range(3))
    else:
        q, k, v = (cut_heads(g, r, a.heads, t) for r, t in zip(a.roots, a.times, strict=True))
    scores = [g.scale(g.matmul(one, g.swap_last(other)), a.factor) for one, other in zip(q, k, strict=True)]
    weights = [g.unary("Softmax", s, axis=-1) for s in scores]
    made = [g.matmul(w, one) for w, one in zip(weights, v, strict=True)]
    g.op("Reshape", g.concat(made, 2), g.ints((-1, *g.sample_shape(a.y))), shape=g.shape(a.y), output=a.y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str]:
        gy = g.reshape(gy, g.shape(a.roots[0]))
        adjoints, slopes = cut_heads(g, gy, a.heads, a.times[0]), write_softmax_slopes(g, gy, a)
        found = [write_head_adjoints(g, a.factor, *h) for h in zip(adjoints, slopes, q, k, v, weights, strict=True)]
        parts = [list(p) for p in zip(*found, strict=True)]
        if a.stacked:
            return [join_heads(g, [h for p in parts for h in p], g.shape(a.stacked))]
        return [join_heads(g, p, g.shape(r)) for p, r in zip(parts, a.roots, strict=True)]

    g.custom_gradients[a.y] = CustomGradient(sources, backward)


def write_softmax_slopes(g: OnnxGraph, gy: str, a: Attention) -> list[str]:
    """sum(gw w) over the keys for each head, (B, T, 1); it equals sum(gy y), a sum over the shorter rows of y."""
    rows, size = g.shape(gy)[0], g.sample_shape(gy)[0]
    each = g.mul(gy, g.reshape(a.y, (rows, size)))
    sums = g.sum(g.reshape(each, (rows, a.heads, size // a.heads)), [2])
    return cut_heads(g, sums, a.heads, a.times[0])


def write_head_adjoints(
    g: OnnxGraph, factor: float, gy: str, slope: str, q: str, k: str, v: str, weights: str
) -> tuple[str, ...]:
    """Adjoints of q, k and v of one head."""
    scores = g.mul(weights, g.sub(g.matmul(gy, g.swap_last(v)), slope))
    gq, gk = g.matmul(scores, k), g.matmul(g.swap_last(scores), q)
    return g.scale(gq, factor), g.scale(gk, factor), g.matmul(g.swap_last(weights), gy)


def cut_heads(g: OnnxGraph, rows: str, pieces: int, time: int) -> list[str]:
    """Cut (rows, pieces d) into pieces of (B, T, d)."""
    many, size = g.shape(rows)[0], prod(g.sample_shape(rows))
    batch, depth = divide(many, time), size // pieces
    whole, shapes = g.reshape(rows, (batch, time, size)), [(batch, time, depth)] * pieces
    return list(g.ops("Split", whole, g.ints([depth] * pieces), shapes=shapes, axis=2))


def join_heads(g: OnnxGraph, pieces: Sequence[str], shape: Shape) -> str:
    """Put pieces (B, T, d) side by side, in the given shape."""
    return g.reshape(g.concat(pieces, 2), shape)
