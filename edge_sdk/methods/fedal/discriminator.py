"""FedAL's discriminator: which device has made this output distribution? An MLP K - 32 - 256 - N on psi(f, E).

Its payoff for a vector of device n is U_n = log softmax(h(psi(f, E), w))_n, at most 0, and -log N for a guess. The
softmax is over the devices that are there: who is away is no candidate, and when the last of the others is away there
is nothing to guess. So the game's value stays between -log(number of those there) and 0 while devices come and go.

    v = (dh/dp)^T (e_n - softmax(h)),  g_n = dU_n/df = (p * v - p (p . v)) / E,  so sum_k g_{n,k} = 0

The paper's (74), (75) use the scalar 1 - h_n in place of e_n - softmax(h), which is no gradient of U_n.
`KERNELS` is this file; the aggregator may be given its twin on its own hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.fedal.distillation import Floats, Labels, log_softmax, softmax

Mask = npt.NDArray[np.bool_]
Widths = tuple[int, ...]
AscentKernel = Callable[[Vector, Widths, Floats, Labels, Mask, float], Vector]
FeedbackKernel = Callable[[Vector, Widths, Floats, Labels, Mask, float], tuple[Floats, Floats, Mask]]


@dataclass(frozen=True)
class DiscriminatorKernels:
    """`ascent` and `feedback`, or their twins: the same names, arguments and numbers."""

    ascent: AscentKernel
    feedback: FeedbackKernel


def size(widths: Widths) -> int:
    """Number of parameters of a discriminator with these layers."""
    return sum((a + 1) * b for a, b in pairwise(widths))


def initial(random: np.random.Generator, widths: Widths, dtype: npt.DTypeLike) -> Vector:
    """Weights and biases uniform within 1 / sqrt(fan in): each layer's (outputs, inputs), then its biases."""
    parts = [random.uniform(-1 / sqrt(a), 1 / sqrt(a), (a + 1) * b) for a, b in pairwise(widths)]
    return np.concatenate(parts).astype(dtype)


def layers(w: Vector, widths: Widths) -> list[tuple[Floats, Floats]]:
    """(weights (outputs, inputs), biases) of each layer, sharing w's memory."""
    found, at = [], 0
    for a, b in pairwise(widths):
        found.append((w[at : at + a * b].reshape(b, a), w[at + a * b : at + (a + 1) * b]))
        at += (a + 1) * b
    return found


def activations(w: Vector, widths: Widths, p: Floats) -> list[Floats]:
    """What enters each layer, and the last one's result h(p, w), (rows, N)."""
    found, stages = [p], layers(w, widths)
    for i, (weights, bias) in enumerate(stages):
        z = found[-1] @ weights.T + bias
        found.append(np.maximum(z, 0) if i + 1 < len(stages) else z)
    return found


def among(w: Vector, widths: Widths, who: Labels, there: Mask) -> tuple[Vector, Widths, Labels]:
    """The game of those devices alone that are there: parameters, widths, and whose each row is.

    The softmax goes over those that are there. The others' outputs count for nothing, and nothing changes their rows
    of the last layer; of ten thousand devices, of which a hundred are there, computing them took nearly all the time.
    """
    if there.all():
        return w, widths, who
    at, (a, b) = size(widths[:-1]), widths[-2:]
    weights, bias = w[at : at + a * b].reshape(b, a)[there], w[at + a * b :][there]
    return np.concatenate([w[:at], weights.ravel(), bias]), (*widths[:-1], len(bias)), (np.cumsum(there) - 1)[who]


def among_all(gradient: Vector, widths: Widths, there: Mask) -> Vector:
    """A gradient in the parameters of `among` as one in all: zero for the rows of those that are not there."""
    if there.all():
        return gradient
    at, (a, b) = size(widths[:-1]), widths[-2:]
    found, cut = np.zeros(size(widths), gradient.dtype), at + a * int(there.sum())
    found[:at] = gradient[:at]
    found[at : at + a * b].reshape(b, a)[there] = gradient[at:cut].reshape(-1, a)
    found[at + a * b :][there] = gradient[cut:]
    return found


def residual(logs: Floats, who: Labels) -> Floats:
    """dU/dh of each row: e_n - softmax(h)."""
    e = -np.exp(logs)
    e[np.arange(len(who)), who] += 1
    return np.asarray(e)


def ascent(w: Vector, widths: Widths, f: Floats, who: Labels, there: Mask, temperature: float) -> Vector:
    """Gradient in w of (8), the mean payoff over all rows.

    Args:
        w: (size(widths),). f: (rows, K), logits. who: (rows,), whose. there: (N,). temperature: E.
    """
    own, few, whose = among(w, widths, who, there)
    kept = activations(own, few, softmax(f.astype(w.dtype), temperature))
    back = residual(log_softmax(kept[-1]), whose) / w.dtype.type(len(who))
    parts: list[Floats] = []
    stages = layers(own, few)
    for i in reversed(range(len(stages))):
        parts = [(back.T @ kept[i]).ravel(), back.sum(0), *parts]
        back = (back @ stages[i][0]) * (kept[i] > 0)
    return among_all(np.concatenate(parts), widths, there)


def feedback(
    w: Vector, widths: Widths, f: Floats, who: Labels, there: Mask, temperature: float
) -> tuple[Floats, Floats, Mask]:
    """What each row earns, and how that changes with its logits.

    Returns:
        U (rows,); g (rows, K), the derivative of each row's own U in its own logits, not divided by anything; and
        whether the discriminator gives the row to its device.
    """
    own, few, whose = among(w, widths, who, there)
    p = softmax(f.astype(w.dtype), temperature)
    kept = activations(own, few, p)
    logs = log_softmax(kept[-1])
    back, stages = residual(logs, whose), layers(own, few)
    for i in reversed(range(len(stages))):
        back = back @ stages[i][0]
        back = back * (kept[i] > 0) if i else back
    g = (p * back - p * (p * back).sum(1, keepdims=True)) / w.dtype.type(temperature)
    return logs[np.arange(len(who)), whose], g, np.asarray(logs.argmax(1) == whose)


KERNELS = DiscriminatorKernels(ascent, feedback)
