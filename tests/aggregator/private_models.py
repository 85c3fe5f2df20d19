"""A small pretrained model, the devices' model and the aggregator's data, for tests of the regularisers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from aggregator.private_model.checkpoint import compute_outputs
from aggregator.private_model.crd import Crd, CrdOptions, heads_in
from aggregator.private_model.regulariser import Batching, ComparedBatch, Distilled, KdOptions, Stateless, kd
from aggregator.private_model.torch_graph import TorchGraph
from edge_sdk.nodes.configuration.private_table import Private

SAMPLES, INPUTS, CLASSES, TEACHER, STUDENT = 23, 5, 3, 6, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(SAMPLES, INPUTS)).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, SAMPLES)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(INPUTS, STUDENT), nn.Linear(STUDENT, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


class Teacher(nn.Module):
    def __init__(self, width=TEACHER):
        super().__init__()
        self.body, self.head = nn.Linear(INPUTS, width), nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def distil(bundle, teacher, loss, every="pass", weight=0.7, batch=8):
    """A regulariser with this loss, in float64."""
    student = TorchGraph(bundle, dtype=torch.float64)
    x, y = torch.tensor(X, dtype=torch.float64), torch.tensor(LABELS)
    said = compute_outputs(teacher.double(), "", x, 8)
    first = student(student.constant(bundle.theta0), x[:8])[0]
    made = loss(said, y, first) if callable(loss) else loss
    return Distilled(student, said, made, x, y, weight=weight, batching=Batching(batch=batch, every=every, seed=3))


def make_crd(**options):
    return lambda said, y, first: Crd(CrdOptions(**options), said, y, first, 5)


LOSSES = {
    "crd, frozen heads": make_crd(heads="frozen", dim=3, tau=0.5, constant="data"),
    "crd, trained heads": make_crd(heads="trained", dim=3, tau=0.5),
    "crd, other classes": make_crd(heads="frozen", dim=3, tau=0.5, others="class"),
    "crd, bank": make_crd(heads="frozen", dim=3, tau=0.5, negatives="bank", count=15, constant="data"),
    "crd, bank, trained": make_crd(heads="trained", dim=3, tau=0.5, negatives="bank", count=15, others="class"),
    "kd": kd(KdOptions(temperature=2.0)),
    "own": Stateless(lambda batch: (batch.student.logits - batch.teacher.logits).square().mean()),
}


def normalise(x):
    """Rows of length 1."""
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def split_heads(vector, dim):
    """f_c and f_s of one vector."""
    return heads_in(vector, TEACHER, STUDENT, dim)


def save(module, directory=None):
    """Write a checkpoint and return its path."""
    path = Path(directory or tempfile.mkdtemp()) / "model.pt"
    torch.save(module.float().state_dict(), path)
    return path


def write_files(directory, teacher, **more):
    """Write the aggregator's data and a checkpoint, and return the [private] table that names them."""
    np.savez(directory / "data.npz", x=X, y=LABELS)
    given = {"weight": 0.7, "model": save(teacher, directory), "architecture": f"{__file__}:Teacher",
             "data": directory / "data.npz", "batch": 8}  # fmt: skip
    return Private(**{**given, **more})


def mine(batch: ComparedBatch) -> torch.Tensor:
    """A user's own regulariser."""
    return (batch.student.logits - batch.teacher.logits).abs().mean()
