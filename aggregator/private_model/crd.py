"""Contrastive representation distillation. Y. Tian, D. Krishnan, P. Isola: "Contrastive Representation Distillation",
ICLR 2020; AugFL, section V.

Heads map the features c of the pretrained model and s of the devices' to one space; there
    u(c, s) = f_c(c) . f_s(s) / tau,    h(c, s) = e^u / (e^u + N / |D_s|) = sigmoid(z),    z = u - log(N / |D_s|)
    R_h = -E_pos[log h] - N E_neg[log(1 - h)] = E[softplus(-z_pos) + sum over N negatives of softplus(z_neg)]
A pair is positive if both features are of the same sample. Where |D_s| is much larger than N, nearly all pairs begin as
positive, and R_h is steep: the public code of this loss has N times the mean of e^u at the start in place of N / |D_s|,
so that h begins at 1 / (N + 1). Both are here (`constant`).

Negatives are the other samples of a batch, or are drawn from a bank of all samples' features. With a bank each sample
is compared from both sides: its s with others' c, which are known exactly, and its c with others' s as they last were;
R_h is the mean of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

from aggregator.private_model.checkpoint import ModelOutputs
from aggregator.private_model.regulariser import ComparedBatch
from edge_sdk.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class CrdOptions:
    """The options of regulariser "crd" in a [private] table.

    Attributes:
        tau: temperature.
        dim: size of the common space; 0: features are compared as they are, without heads, if both have the same size.
        negatives: "batch", or "bank".
        count: N, from a bank; no more than there are other samples.
        constant: "data": N / |D_s|, as printed; "first": N times the mean of e^u over some pairs at the first model.
        others: which samples may be negatives: all other ones ("instance"), or those of another class ("class").
        heads: "frozen" as they are drawn, which makes R_h a fixed function of theta, or "trained" on the same loss.
        head_rate: step size of their training.
        head_steps: batches of a round that they learn on. Above 1, all but the last ones, which R_h is taken of, are
            drawn for them alone. With one batch a round heads hardly move within some hundred rounds.
        momentum: share of a bank's old features in the new ones.
    """

    tau: float = 0.07
    dim: int = 128
    negatives: str = "batch"
    count: int = 16384
    constant: str = "first"
    others: str = "instance"
    heads: str = "trained"
    head_rate: float = 0.01
    head_steps: int = 1
    momentum: float = 0.5

    def __post_init__(self) -> None:
        for key in ("tau", "head_rate", "count"):
            if not getattr(self, key) > 0:
                raise UsageError(f"{key} = {getattr(self, key)}: a number above 0")
        for key, known in (
            ("negatives", ("batch", "bank")),
            ("constant", ("data", "first")),
            ("others", ("instance", "class")),
            ("heads", ("frozen", "trained")),
        ):
            if getattr(self, key) not in known:
                raise UsageError(f"{key} = {getattr(self, key)!r}: one of {', '.join(known)}")
        if self.dim < 0 or not 0 <= self.momentum < 1:
            raise UsageError(f"dim = {self.dim}, momentum = {self.momentum}: 0 or more; from 0 to below 1")
        if self.head_steps < 1 or (self.head_steps > 1 and (self.heads == "frozen" or self.dim == 0)):
            raise UsageError(f"head_steps = {self.head_steps}: 1 or more, and above 1 only for heads that are trained")


# Equations ------------------------------------------------------------------------------------------------------
def contrast(positive: Tensor, negative: Tensor, allowed: Tensor, count: int, unit: float) -> Tensor:
    """Mean over anchors of softplus(-z_pos) + N E_neg[softplus(z_neg)].

    Args:
        positive: (B,) u. negative: (B, K) u. allowed: (B, K) which of these are negatives.
        count: N. unit: 1 / |D_s|, or what stands in its place.
    """
    shift = log(count * unit)
    mean = (F.softplus(negative - shift) * allowed).sum(1) / allowed.sum(1).clamp(min=1)
    return (F.softplus(shift - positive) + count * mean).mean()


def in_batch(c: Tensor, s: Tensor, y: Tensor | None, tau: float, unit: float) -> Tensor:
    """R_h of one batch: anchor c_j, positive s_j, negatives all other s_i (of another class, where y is given).

    Args:
        c, s: (B, dim), of length 1.
    """
    u = c @ s.T / tau
    other = ~torch.eye(len(u), dtype=torch.bool, device=u.device) if y is None else y[:, None] != y[None, :]
    return contrast(u.diagonal(), u, other, len(u) - 1, unit)


# Heads ----------------------------------------------------------------------------------------------------------
Head = tuple[Tensor, Tensor] | None
"""Weight (dim, features) and bias (dim,); None where features are compared as they are."""


def heads_size(teacher: int, student: int, dim: int) -> int:
    """Numbers of both heads, for features of these sizes."""
    return dim * (teacher + student + 2)


def heads_in(vector: Tensor, teacher: int, student: int, dim: int) -> tuple[Head, Head]:
    """f_c and f_s from one vector."""
    if dim == 0:
        return None, None
    parts = torch.split(vector, [dim * teacher, dim, dim * student, dim])
    return (parts[0].reshape(dim, -1), parts[1]), (parts[2].reshape(dim, -1), parts[3])


def project(head: Head, features: Tensor) -> Tensor:
    """In the common space, (B, dim), of length 1."""
    return F.normalize(features if head is None else F.linear(features, *head), dim=1)


def first_heads(teacher: int, student: int, dim: int, seed: int) -> Tensor:
    """Uniform within 1 / sqrt(inputs), as torch's linear layers begin; float64, the same on any device."""
    random = torch.Generator().manual_seed(seed)
    drawn = torch.rand(heads_size(teacher, student, dim), generator=random, dtype=torch.float64) * 2 - 1
    cut = dim * (teacher + 1)
    return torch.cat([drawn[:cut] * teacher**-0.5, drawn[cut:] * student**-0.5])


# The loss -------------------------------------------------------------------------------------------------------
class Crd:
    """R_h as a `Loss`. Its memory: both heads, if they are trained, then the bank of features, if there is one.

    Args:
        teacher: outputs of the pretrained model for all the data.
        y: labels of the data; None: there are none.
        student: (B, d), features of the devices' first model for the first samples.
        seed: of the heads and of the bank.
    """

    def __init__(
        self, options: CrdOptions, teacher: ModelOutputs, y: Tensor | None, student: Tensor, seed: int
    ) -> None:
        self.o, self.teacher, self.y, self.seed = options, teacher.features, y, seed
        self.samples, self.sizes = len(self.teacher), (self.teacher.shape[1], student.shape[1], options.dim)
        if options.dim == 0 and student.shape[1] != self.teacher.shape[1]:
            raise UsageError(f"dim = 0: features of {self.teacher.shape[1]} and {student.shape[1]} numbers need heads")
        if options.others == "class" and y is None:
            raise UsageError("others = 'class': the aggregator's data has no y")
        self.frozen = first_heads(*self.sizes, seed).to(self.teacher)
        self.trains = options.heads == "trained" and options.dim > 0
        self.lessons = options.head_steps - 1
        self.width = options.dim or student.shape[1]
        self.unit = 1 / self.samples if options.constant == "data" else self.mean_of_first(student)

    def mean_of_first(self, student: Tensor) -> float:
        """The mean of e^u over pairs of different samples, at the first model."""
        head_c, head_s = heads_in(self.frozen, *self.sizes)
        u = project(head_c, self.teacher[: len(student)]) @ project(head_s, student).T / self.o.tau
        return float(u[~torch.eye(len(u), dtype=torch.bool, device=u.device)].exp().mean())

    def first(self) -> Tensor:
        """The bank begins anywhere: nothing is known of the student yet."""
        heads = self.frozen if self.trains else self.frozen[:0]
        if self.o.negatives == "batch":
            return heads
        random = torch.Generator().manual_seed(self.seed)
        bank = torch.randn(self.samples, self.width, generator=random, dtype=torch.float64)
        return torch.cat([heads, F.normalize(bank, dim=1).reshape(-1).to(heads)])

    def split_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Heads and bank."""
        cut = len(self.frozen) if self.trains else 0
        bank = memory[cut:]
        return memory[:cut] if self.trains else self.frozen, bank.reshape(len(bank) // self.width, self.width)

    def value(self, batch: ComparedBatch, memory: Tensor) -> Tensor:
        heads, bank = self.split_memory(memory)
        head_c, head_s = heads_in(heads, *self.sizes)
        c, s = project(head_c, batch.teacher.features), project(head_s, batch.student.features)
        if self.o.negatives == "batch":
            return in_batch(c, s, batch.y if self.o.others == "class" else None, self.o.tau, self.unit)
        drawn = self.draw_negatives(batch)
        others, allowed = project(head_c, self.teacher[drawn]), self.may_be_negatives(batch, drawn)
        positive = (c * s).sum(1) / self.o.tau
        sides = (s @ others.T, c @ bank[drawn].T)
        both = [contrast(positive, u / self.o.tau, allowed, len(drawn), self.unit) for u in sides]
        return (both[0] + both[1]) / 2

    def draw_negatives(self, batch: ComparedBatch) -> Tensor:
        """Rows of the negatives: N of all samples, the same for the whole batch."""
        rows = batch.random.choice(self.samples, min(self.o.count, self.samples - 1), replace=False)
        return torch.from_numpy(rows).to(batch.rows.device)

    def may_be_negatives(self, batch: ComparedBatch, drawn: Tensor) -> Tensor:
        """(B, N): which of these are negatives of which sample."""
        if self.o.others == "instance":
            return batch.rows[:, None] != drawn[None, :]
        assert self.y is not None  # __init__
        return self.y[batch.rows][:, None] != self.y[drawn][None, :]

    @torch.no_grad()
    def after(self, batch: ComparedBatch, memory: Tensor, slope: Tensor | None) -> Tensor:
        """The newest features into the bank, and a step of the heads."""
        heads, bank = self.split_memory(memory)
        if self.o.negatives == "bank":
            s = project(heads_in(heads, *self.sizes)[1], batch.student.features)
            mixed = self.o.momentum * bank[batch.rows] + (1 - self.o.momentum) * s
            bank = bank.index_copy(0, batch.rows, F.normalize(mixed, dim=1))
        if slope is None:
            return bank.reshape(-1)
        return torch.cat([heads - self.o.head_rate * slope[: len(heads)], bank.reshape(-1)])
