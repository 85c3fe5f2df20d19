"""The file of a model that a rollout brings: what is none is refused in a sentence, whatever it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.errors import UsageError
from edge_sdk.nodes.kernels.rollout import read_model

LAYOUT = layout_of(("head.weight", (2, 3), "linear"), ("head.bias", (2,), "bias"))
WEIGHT, BIAS = np.arange(6.0).reshape(2, 3), np.array([7.0, 8.0])


def test_parameters_are_read_by_their_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{"head.bias": BIAS.astype(np.int64), "head.weight": WEIGHT})
    found = read_model(tmp_path / "a.npz", LAYOUT)
    assert found.dtype == np.float32 and found.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """Once one array alone, and damage in one that is packed, were errors of Python's own."""
    path = tmp_path / "model.npz"
    for array in (np.zeros(8), np.array([object()])):
        with path.open("wb") as file:
            np.save(file, array)
        with pytest.raises(UsageError, match=r"^model .*no NPZ file"):
            read_model(path, LAYOUT)
    many = np.random.default_rng(0).normal(size=(100, 30))
    np.savez_compressed(path, **{"head.weight": many})
    data = bytearray(path.read_bytes())
    data[200:300] = bytes(100)
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"^model .*no NPZ file"):
        read_model(path, LAYOUT)


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (WEIGHT.T, "has not the parameters"),
        (WEIGHT + 1j, "has not the parameters"),
        (WEIGHT.astype(str), "has not the parameters"),
        (WEIGHT * np.nan, "numbers that are not finite"),
    ],
)
def test_other_parameters_are_refused(tmp_path: Path, weight: np.ndarray, said: str) -> None:
    np.savez(tmp_path / "a.npz", **{"head.weight": weight, "head.bias": BIAS})
    with pytest.raises(UsageError, match=said):
        read_model(tmp_path / "a.npz", LAYOUT)
