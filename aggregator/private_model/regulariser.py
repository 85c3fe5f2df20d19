"""The aggregator's regulariser lambda R_h(theta, theta_p): its value and its gradient at a global model.

A regulariser is a loss on batches of the aggregator's own data, seen through both models (`ComparedBatch`); this file
takes its mean over the data and differentiates it. The pretrained model is frozen, so its outputs are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from aggregator.private_model.checkpoint import ModelOutputs
from aggregator.private_model.torch_graph import TorchGraph
from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.augfl.settings import Pull

ORDER, NEGATIVES, HEADS, LESSONS = 31, 32, 33, 34  # purposes of randomness


@dataclass(frozen=True)
class ComparedBatch:
    """What a loss is given.

    Attributes:
        student: of the devices' model, differentiable in theta.
        teacher: of the pretrained model.
        y: (B,) labels; None where the data has none.
        rows: (B,) which samples of the data these are.
        random: for this batch in this round.
    """

    student: ModelOutputs
    teacher: ModelOutputs
    y: Tensor | None
    rows: Tensor
    random: np.random.Generator


class Loss(Protocol):
    """R_h on a batch. What it learns (`memory`, a vector) is handed from batch to batch and from round to round."""

    @property
    def trains(self) -> bool:
        """`after` wants the gradient in the memory."""

    @property
    def lessons(self) -> int:
        """Batches of each round that only the memory learns on, before R_h is taken."""

    def first(self) -> Tensor:
        """The memory before anything has been learnt."""

    def value(self, batch: ComparedBatch, memory: Tensor) -> Tensor:
        """R_h, a number that can be differentiated in theta and, if it trains, in the memory."""

    def after(self, batch: ComparedBatch, memory: Tensor, slope: Tensor | None) -> Tensor:
        """The memory after this batch. `slope`: the gradient of R_h in the memory, if it trains."""


@dataclass(frozen=True)
class Stateless:
    """A loss that is a function of a batch."""

    of: Callable[[ComparedBatch], Tensor]
    trains: bool = False
    lessons: int = 0

    def first(self) -> Tensor:
        return torch.zeros(0)

    def value(self, batch: ComparedBatch, memory: Tensor) -> Tensor:
        return self.of(batch)

    def after(self, batch: ComparedBatch, memory: Tensor, slope: Tensor | None) -> Tensor:
        return memory


@dataclass(frozen=True, kw_only=True)
class KdOptions:
    """`temperature` of both models' outputs."""

    temperature: float = 4.0


def kd(options: KdOptions) -> Loss:
    """G. Hinton, O. Vinyals, J. Dean, 2015: T^2 KL(softmax(teacher / T) || softmax(student / T))."""
    t = options.temperature

    def of(batch: ComparedBatch) -> Tensor:
        wanted, found = batch.teacher.logits / t, batch.student.logits / t
        return t**2 * F.kl_div(found.log_softmax(1), wanted.log_softmax(1), reduction="batchmean", log_target=True)

    return Stateless(of)


@dataclass(frozen=True, kw_only=True)
class Batching:
    """The batches in which the data is gone through.

    Attributes:
        batch: samples of one.
        every: "pass": the mean over all batches, whose order is drawn once; "batch": one batch, drawn in each round.
    """

    batch: int = 128
    every: str = "pass"
    seed: int = 0


# The mean over the data ----------------------------------------------------------------------------------------
class Distilled:
    """lambda R_h for a loss on batches: (theta, round, memory) -> Pull. The same for the same arguments.

    Args:
        student: the devices' model. teacher: outputs of the pretrained one for all of x.
        x: (N, *input). y: (N,) or None.
        weight: lambda.
    """

    def __init__(
        self,
        student: TorchGraph,
        teacher: ModelOutputs,
        loss: Loss,
        x: Tensor,
        y: Tensor | None,
        *,
        weight: float,
        batching: Batching,
    ) -> None:
        self.student, self.teacher, self.loss, self.x, self.y = student, teacher, loss, x, y
        self.weight, self.batch, self.every, self.seed = weight, batching.batch, batching.every, batching.seed
        self.order = np.random.default_rng([self.seed, ORDER]).permutation(len(x))
        self.latest: tuple[bytes, int, Pull] | None = None

    def first(self) -> Vector:
        return np.asarray(self.loss.first().cpu().numpy())

    def __call__(self, theta: Vector, round: int, memory: Vector) -> Pull:
        """A round is closed twice where an evaluation follows it, so the latest answer is kept."""
        key = theta.tobytes() + memory.tobytes()
        if self.latest is None or self.latest[:2] != (key, round):
            self.latest = key, round, self.pull(theta, round, memory)
        return self.latest[2]

    def pull(self, theta: Vector, round: int, memory: Vector, chosen: Sequence[np.ndarray] | None = None) -> Pull:
        """`chosen`: rows of each batch, where it is not those of the round."""
        at = torch.tensor(theta).to(self.student.device, self.student.dtype)
        held = torch.tensor(memory).to(at)
        held = self.taught(at, held, round) if chosen is None else held
        total, gradient, value = 0, torch.zeros_like(at), 0.0
        for i, rows in enumerate(chosen or self.batches(round)):
            one, slope, held = self.step(at, held, rows, np.random.default_rng([self.seed, round, NEGATIVES, i]))
            total, value, gradient = total + len(rows), value + len(rows) * one, gradient + len(rows) * slope
        scale = self.weight / total
        found = (scale * gradient).cpu().numpy().astype(theta.dtype)
        return Pull(found, scale * value, held.cpu().numpy())

    def taught(self, theta: Tensor, memory: Tensor, round: int) -> Tensor:
        """The memory after the lessons of a round."""
        for i in range(self.loss.lessons):
            random = np.random.default_rng([self.seed, round, LESSONS, i])
            rows = random.choice(len(self.x), min(self.batch, len(self.x)), replace=False)
            memory = self.step(theta, memory, rows, random)[2]
        return memory

    def batches(self, round: int) -> list[np.ndarray]:
        """Rows of each. A last one of a single sample is left out: it has nothing to differ from."""
        if self.every == "batch":
            random = np.random.default_rng([self.seed, round, ORDER])
            return [random.choice(len(self.x), min(self.batch, len(self.x)), replace=False)]
        parts = [self.order[i : i + self.batch] for i in range(0, len(self.order), self.batch)]
        return [p for p in parts if len(p) > 1]

    def step(
        self, theta: Tensor, memory: Tensor, rows: np.ndarray, random: np.random.Generator
    ) -> tuple[float, Tensor, Tensor]:
        """R_h on one batch, its gradient, and the memory after it."""
        at, theta = torch.from_numpy(rows).to(theta.device), theta.detach().requires_grad_()
        memory = memory.detach().requires_grad_(self.loss.trains)
        student = ModelOutputs(*self.student(theta, self.x[at]))
        batch = ComparedBatch(student, self.teacher[at], None if self.y is None else self.y[at], at, random)
        value = self.loss.value(batch, memory)
        wanted = [theta, memory] if self.loss.trains else [theta]
        slopes = torch.autograd.grad(value, wanted)
        after = self.loss.after(batch, memory.detach(), slopes[1] if self.loss.trains else None)
        return value.item(), slopes[0], after


@dataclass(frozen=True)
class SquaredDistance:
    """lambda ||theta - theta_p||^2, in numpy."""

    weight: float
    theta_p: Vector

    def first(self) -> Vector:
        return np.zeros(0, np.float32)

    def __call__(self, theta: Vector, round: int, memory: Vector) -> Pull:
        gap = theta - self.theta_p.astype(theta.dtype)
        return Pull(2 * self.weight * gap, float(self.weight * (gap @ gap)), memory)
