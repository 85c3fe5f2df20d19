"""Singular value thresholding of many layers without full decompositions, each result with a bound on its error.

Three ways, from the cheapest on; what a cheap one cannot show to be right is done by the next, and counted:

subspace    Layers that had low rank in the model of before. Iterations from its right factors give triplets
            (a_i, s_i, b_i) with x b_i = s_i a_i. Let r_i = x^T a_i - s_i b_i. Then x - sum a_i r_i^T has exactly these
            triplets, and beside them only R = (I - A A^T) x. If |R| <= threshold, what is kept is the exact result
            for that matrix, and thresholding is nonexpansive: the error is at most sqrt(sum |r_i|^2), which is made
            smaller than FLOAT32 times the largest value for each triplet. That |R| <= threshold is shown, not
            estimated: threshold^2 I - R^T R, less all that rounding can come to, has a Cholesky factorisation.
gram        Layers that are at least TALL times as long as wide: the eigenvectors of x^T x in float64. An eigenvalue is
            off by at most short * 2^-52 * s_1^2, so a kept value by at most that over twice the threshold.
full        Everything else: a singular value decomposition in the layer's own float type, as kernels.svt has it.

Matrices of float64 are always decomposed in full: the first two ways are as good as float32, not better.

Source of the iterations: N. Halko, P.-G. Martinsson, J. Tropp, "Finding Structure with Randomness", SIAM Review 2011.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import acosh, ceil, log

import numpy as np
import torch

from edge_sdk.algebra.prox import Svd
from edge_sdk.algebra.vectors import Vector

Tensor = torch.Tensor
Triplets = tuple[Tensor, Tensor, Tensor]
"""(a, s, b) as of prox.svt."""
FLOAT32 = 1e-6
"""Error of a float32 decomposition, in largest singular values, that the other ways must stay below."""
TALL = 1.5
SMALL = 64
"""Layers with a shorter side are decomposed in full: that takes less than the checks would."""
MOST = 0.2
"""Share of the shorter side up to which a rank is low."""
NOTHING = 1e-5
"""Singular values of the model of before that are rounding, in largest ones."""
LOOKS = 3
"""Times that a subspace is looked at before it is given up."""
DEGREE, STRETCH = 15, 3
"""Most iterations between two looks, and after how many of them directions are made orthogonal again."""
WAYS = ("subspace", "gram", "full", "given up")


@dataclass
class FastSvt:
    """A kernel `svt` for all layers of a model.

    It remembers nothing between two calls but counts: the result is a function of its arguments, as a role needs it.

    Attributes:
        device: "cpu" or "cuda".
        counts: how many layers were done in which of WAYS; "given up": a subspace that was shown to be right too late.
    """

    device: str = "cpu"
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))

    def __call__(self, x: Vector, threshold: float) -> Svd:
        """The decomposition of one matrix of which nothing is known: as kernels.svt."""
        return self.layer(x, threshold, None)

    def layers(self, matrices: Mapping[str, Vector], threshold: float, near: Mapping[str, Vector]) -> dict[str, Svd]:
        """The decompositions of all layers, by name; `near`: these layers of the model of before."""
        return {name: self.layer(x, threshold, near.get(name)) for name, x in matrices.items()}

    def layer(self, x: Vector, threshold: float, near: Vector | None) -> Svd:
        """The decomposition of one layer."""
        tensor = torch.tensor(x, device=self.device)
        found = self.by_gram(tensor, threshold) or self.by_subspace(tensor, threshold, near)
        if found is None:
            self.counts["full"] += 1
            u, values, vt = torch.linalg.svd(tensor, full_matrices=False)
            found = thresholded(u, values, vt, threshold)
        a, s, b = (part.to(tensor.dtype).cpu().numpy() for part in found)
        return a, s, b

    def by_subspace(self, x: Tensor, threshold: float, near: Vector | None) -> Triplets | None:
        """The result from the right factors of `near`; None: it has no low rank, or nothing could be shown of it."""
        short = min(x.shape)
        if near is None or x.dtype != torch.float32 or short < SMALL or threshold <= 0:
            return None
        base = right_factors(torch.tensor(near, device=self.device), int(MOST * short))
        if base is None:
            return None
        found = converge(x, widened(base, base.shape[1] + max(8, short // 48)), threshold)
        if found is not None:
            (a, s, b), below = found
            if rest_vanishes(x, a, threshold, below):
                self.counts["subspace"] += 1
                return a, s - threshold, b
        self.counts["given up"] += 1
        return None

    def by_gram(self, x: Tensor, threshold: float) -> Triplets | None:
        """The result from the eigenvectors of the smaller Gram matrix; None: it would not pay or not be exact."""
        short = min(x.shape)
        if x.dtype != torch.float32 or max(x.shape) < TALL * short or threshold <= 0:
            return None
        wide = x.shape[0] < x.shape[1]
        tall = (x.T if wide else x).double()
        squares, vectors = torch.linalg.eigh(gram(tall))
        largest = float(squares[-1].clamp(min=0))
        if short * 2.0**-52 * largest > 2 * threshold * FLOAT32 * largest**0.5:
            return None
        kept = squares > threshold**2
        s, right = squares[kept].flip(0).sqrt(), vectors[:, kept].flip(1)
        left = tall @ right / s
        self.counts["gram"] += 1
        a, b = (right, left) if wide else (left, right)
        return a, s - threshold, b


def thresholded(a: Tensor, s: Tensor, bt: Tensor, threshold: float) -> Triplets:
    """What a full decomposition keeps."""
    rank = int((s > threshold).sum())
    return a[:, :rank], s[:rank] - threshold, bt[:rank].T


def right_factors(near: Tensor, most: int) -> Tensor | None:
    """An orthonormal basis (columns, r) of the rows of a matrix of rank r; None: its rank is above `most`."""
    for width in (most // 4, most // 2, most):
        image = near @ random_directions(near.shape[1], width, near.device)
        rows = near.T @ torch.linalg.qr(image)[0]
        squares, turn = torch.linalg.eigh(gram(rows.double()))
        kept = squares > (NOTHING * float(squares[-1].clamp(min=0).sqrt())) ** 2
        if not bool(kept[0]):
            s = squares[kept].sqrt()
            base: Tensor = (rows.double() @ turn[:, kept] / s).float()
            return base
    return None


def random_directions(rows: int, columns: int, device: torch.device) -> Tensor:
    """Normal numbers, the same for the same shape."""
    generator = torch.Generator().manual_seed(rows * 65537 + columns)
    return torch.randn(rows, columns, generator=generator).to(device)


def widened(base: Tensor, width: int) -> Tensor:
    """The directions of before, and random ones."""
    return torch.cat([base, random_directions(base.shape[0], width - base.shape[1], base.device)], 1)


def converge(x: Tensor, base: Tensor, threshold: float) -> tuple[Triplets, float] | None:
    """Triplets above the threshold whose residuals together are small enough, and the largest value that was found
    below it; None: they do not become so in time.

    Args:
        base: (columns, k), directions to begin with.
    """
    base = torch.linalg.qr(x.T @ (x @ base))[0]
    for look in range(LOOKS):
        exactly = look > 0  # the first one only says how far there is to go
        base, a, s, right, error = ritz(x.double() if exactly else x, base, threshold)
        kept, allowed = a.shape[1], FLOAT32 * float(s[0]) * a.shape[1] ** 0.5
        if not 0 < kept < len(s):
            return None  # there may be more above the threshold than directions
        if exactly and error <= allowed:
            return (a, s[:kept], right), float(s[kept])
        cut = float(s[kept])
        pace = acosh(max(2 * (float(s[kept - 1]) / cut) ** 2, 2 + 1e-9) - 1)
        degree = max(1, ceil(log(2 * error / allowed) / pace))
        if degree > DEGREE:
            return None  # values on both sides of the threshold lie too near to each other
        for start in range(0, degree, STRETCH):
            base = filtered(x, base, min(STRETCH, degree - start), cut)
    return None


def ritz(x: Tensor, base: Tensor, threshold: float) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """The best triplets of a subspace, and by how much those above the threshold are none.

    Returns:
        All right factors (columns, k) in float32; a, all values s, b of those that are kept; the error.
    """
    base = base.to(x.dtype)
    image = x @ base
    squares, turn = torch.linalg.eigh(gram(image))
    s, turn = squares.clamp(min=0).flip(0).sqrt(), turn.flip(1)
    kept = int((s > threshold).sum())
    right = base @ turn
    a = image @ turn[:, :kept] / s[:kept]
    error = x.T @ a - right[:, :kept] * s[:kept]
    return right.float(), a, s, right[:, :kept], float(error.norm())


def filtered(x: Tensor, base: Tensor, degree: int, cut: float) -> Tensor:
    """An orthonormal basis of T(x^T x) base, with the Chebyshev polynomial that is small on values up to `cut`."""
    scale = 2 / cut**2
    before, now = base, scale * (x.T @ (x @ base)) - base
    for _ in range(degree - 1):
        before, now = now, 2 * (scale * (x.T @ (x @ now)) - now) - before
    found: Tensor = torch.linalg.qr(now)[0]
    return found


def rest_vanishes(x: Tensor, left: Tensor, threshold: float, expected: float = 0.0) -> bool:
    """True if R = (I - A A^T) x is shown to have no singular value above the threshold.

    The bounds on rounding are those of worst cases, for any order of additions: a product of matrices is off by at most
    size * unit * |R|_F^2, and a matrix D of which a Cholesky factorisation exists is positive but for sum of
    unit * (j + 2) * D_jj, j from 1 on (Rump, "Verification of positive definiteness", BIT 2006, theorem 2.3). R is
    float32; where that sum is too much for it, the factorisation is made in float64.

    Args:
        expected: its largest value, as far as is known: what is too near for float32 is not tried in it.
    """
    unit, size, a = 2.0**-24, 1.01 * (max(x.shape) + 2), left.float()
    rest = x - a @ (a.T @ x)
    off = unit * (a.shape[1] + size) * float(x.norm())
    room = (threshold - off) ** 2 - size * unit * float(rest.norm()) ** 2
    if threshold <= off or room <= 0:
        return False
    squares = gram(rest)
    diagonal = room - squares.diagonal().double()
    places = torch.arange(3, len(diagonal) + 3, dtype=torch.float64, device=x.device)
    for kind, last in ((torch.float32, 2.0**-24), (torch.float64, 2.0**-53)):
        shift = 1.01 * last * float(places @ diagonal.abs())
        if room - shift <= expected**2:
            continue
        below = -squares.to(kind)
        below.diagonal().copy_(diagonal - shift)
        if int(torch.linalg.cholesky_ex(below)[1]) == 0:
            return True
    return False


def gram(x: Tensor) -> Tensor:
    """x^T x. On a CPU by numpy, which sees that the result is symmetric and computes half of it."""
    if x.is_cuda:
        return x.T @ x
    array = x.numpy()
    return torch.from_numpy(np.asarray(array.T @ array))
