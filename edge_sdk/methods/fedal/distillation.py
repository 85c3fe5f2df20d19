"""Arithmetic on logits: softmax with a temperature, Kullback-Leibler terms and their gradients, consensus targets.

Rows are inputs, columns classes. A divergence K(a, b) has its target first: sum_k a_k log(a_k / b_k). Targets are
constants: no gradient goes through them.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Tensor

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.integer]

Logits = Annotated[npt.NDArray[np.floating], Tensor(("?", "?"))]
"""One node's outputs for a batch: B inputs, K classes. A state may also hold none."""

Stack = Annotated[npt.NDArray[np.floating], Tensor(("?", "?", "?"))]
"""Logits of several nodes, or of several batches."""


def log_softmax(f: Floats, temperature: float = 1.0) -> Floats:
    """log psi(f, E), rows of (..., K)."""
    z = f / f.dtype.type(temperature)
    z = z - z.max(-1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(-1, keepdims=True)))


def softmax(f: Floats, temperature: float = 1.0) -> Floats:
    """psi(f, E)_k = exp(f_k / E) / sum_k' exp(f_k' / E)."""
    return np.asarray(np.exp(log_softmax(f, temperature)))


def divergence(q: Floats, f: Floats, temperature: float = 1.0) -> Floats:
    """K(q, psi(f, E)) of each row."""
    q = np.asarray(q)
    known = np.where(q > 0, q, 1)
    return np.asarray((q * (np.log(known) - log_softmax(f, temperature))).sum(-1))


def divergence_gradient(q: Floats, f: Floats, temperature: float = 1.0) -> Floats:
    """Gradient of K(q, psi(f, E)) in f, each row its own: (psi(f, E) - q) / E."""
    return np.asarray((softmax(f, temperature) - q) / f.dtype.type(temperature))


def cross_entropy(y: Labels, f: Floats) -> tuple[float, Floats]:
    """Mean of -log psi(f, 1)_y over rows, and its gradient in f, each row its own (not divided by their number)."""
    logs = log_softmax(f)
    gradient = np.exp(logs)
    gradient[np.arange(len(y)), y] -= 1
    return -float(logs[np.arange(len(y)), y].mean()), gradient


def mean_of(stack: Floats) -> Floats:
    """fbar: mean logits over nodes, (D, B, K) -> (B, K), added up in double precision and in the given order."""
    return np.asarray(stack.astype(np.float64).mean(0), stack.dtype)


def median_of(stack: Floats) -> Floats:
    """The median of the logits of each input and class over nodes, (D, B, K) -> (B, K)."""
    return np.asarray(np.median(stack.astype(np.float64), axis=0), stack.dtype)


def of_others(mean: Floats, count: int, own: Floats) -> Floats:
    """Eq. (5) from what is broadcast: fbar_{-n} = (N fbar - f_n) / (N - 1)."""
    n = mean.dtype.type(count)
    return np.asarray((n * mean - own) / (n - 1))


def gaps(stack: Floats, temperature: float = 1.0) -> Floats:
    """Assumption V.1: zeta_n = mean over inputs of K(p_n, mean over m of p_m), (D,): probabilities, not logits."""
    p = softmax(stack, temperature)
    mean = p.mean(0)
    tiny = np.finfo(p.dtype).tiny
    return np.asarray((p * (np.log(np.maximum(p, tiny)) - np.log(np.maximum(mean, tiny)))).sum(-1).mean(-1))


def clipped(gradient: Floats, norm: float) -> Floats:
    """Each row, no longer than `norm`."""
    lengths = np.linalg.norm(gradient, axis=-1, keepdims=True)
    return np.asarray(gradient * np.minimum(1, norm / np.maximum(lengths, np.finfo(gradient.dtype).tiny)))
