"""Bundles that predict sets of labels, for tests: of three numbers three findings, each by the sign of one of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.samples import Samples
from edge_sdk.model.tasks.several_labels import SeveralLabels, join_set
from tests.layers import compile_layers

FINDINGS = SeveralLabels(("af", "pvc", "noise"))


def compile_findings(path: Path, hidden: int = 0) -> Path:
    """Writes the bundle: 3 inputs, so many hidden units (0: none), 3 outputs."""
    return compile_layers(path, "findings", "binary_cross_entropy", FINDINGS, hidden)


def draw(count: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Inputs (count, 3), and which findings each has: by the sign, wrong where it is near 0."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 3)).astype(np.float32)
    return x, (x + random.normal(0, 0.2, x.shape)) > 0


def samples(count: int, seed: int = 0) -> Samples:
    x, there = draw(count, seed)
    names = np.array(FINDINGS.names)
    return Samples(x, tuple(join_set(names[row].tolist(), FINDINGS.names) for row in there))


def write_cells(path: Path, cells: list[str]) -> Path:
    """A trace of 400 samples at 10 Hz; each of the cells is the label of an equal part of them."""
    rows = [f"{n / 10},{n % 7},{cells[n * len(cells) // 400]}" for n in range(400)]
    path.write_text("time,ecg,labels\n" + "\n".join(rows) + "\n")
    return path
