"""Clinical tables: the Wisconsin breast cancer data, which ship with this package, and a generated table.

W. H. Wolberg, O. L. Mangasarian, W. N. Street: "Breast Cancer Wisconsin (Diagnostic)", UCI Machine Learning Repository,
1995, doi 10.24432/C5DW2B, CC BY 4.0; the file is as scikit-learn distributes it. 569 patients; ten measures of the cell
nuclei in an image, each as mean, standard error and largest.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from edge_sdk.errors import UsageError
from edge_sdk.replay.datasets.table import Floats, Table

BREAST_CANCER = Path(__file__).parent / "breast_cancer.csv"
MEASURES = 10
"""Columns of each of the three statistics."""


def read_breast_cancer(path: Path | None = None) -> Table:
    """Reads 569 samples of 30 features. The file's first line: samples, features, names of the classes."""
    path = path or BREAST_CANCER
    try:
        with path.open(newline="") as file:
            head, *lines = csv.reader(file)
        values = np.array(lines, np.float64)
        count, features = int(head[0]), int(head[1])
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: no table of the breast cancer data: {error}") from error
    if values.shape != (count, features + 1) or features != 3 * MEASURES:
        raise UsageError(f"{path}: {values.shape} numbers, its first line says {count} samples of {features} features")
    return Table("breast-cancer", values[:, :-1].astype(np.float32), values[:, -1].astype(np.int64), (head[2], head[3]),
                 np.arange(count))  # fmt: skip


def split_by_measure(x: Floats) -> tuple[Floats, Floats]:
    """Gives the hospital radius, texture, perimeter, area and smoothness, the device the other five measures; all three
    statistics of each."""
    hospital = np.arange(x.shape[1]) % MEASURES < MEASURES // 2
    return x[:, hospital], x[:, ~hospital]


FEATURES = 38
"""Features that hospital and device have each."""
INFORMATIVE = 6
"""How many of these matter."""


def generate_table(samples: int = 2000, seed: int = 0) -> Table:
    """Generates 76 features of which 2 x 6 matter, with the size of the tables made of MIMIC-III; 30 % are of class 1.

    A latent severity s correlates the features: x = 0.5 s + noise. Then P(y = 1 | x) is the logistic function of
    x1 . a + x2 . b + x1_0 x2_0 - 1.5, where a and b are 1, -1, 1, ... on the informative features. Neither side can
    tell the classes apart as well as both together, and no linear model as well as one with the product.
    """
    random = np.random.default_rng([seed, 4])
    severity = random.normal(size=(samples, 1))
    x = 0.5 * severity + random.normal(size=(samples, 2 * FEATURES))
    signs = np.where(np.arange(INFORMATIVE) % 2, -1.0, 1.0)
    x1, x2 = x[:, :FEATURES], x[:, FEATURES:]
    logit = x1[:, :INFORMATIVE] @ signs + x2[:, :INFORMATIVE] @ signs + x1[:, 0] * x2[:, 0] - 1.5
    truth = 1 / (1 + np.exp(-logit))
    y = (random.random(samples) < truth).astype(np.int64)
    return Table("tabular", x.astype(np.float32), y, ("alive", "dead"), np.arange(samples), truth=truth)


def halve_features(x: Floats) -> tuple[Floats, Floats]:
    """Gives the hospital the first half of the features, the device the second."""
    return x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :]
