"""A replay of a model with dropout: the same run drops the same values, and another seed drops others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.system.test_replay_of_data import auscult

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")

NET = """
from torch import nn


def make():
    return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 2))
"""
RUN = ("breast-cancer", "--hospitals", 2, "--devices", 1, "--rounds", 2, "--set", "eta_l=0.1")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same model with dropout and without."""
    folder = tmp_path_factory.mktemp("bundles")
    (folder / "net.py").write_text(NET)
    paths = {dropout: folder / f"{dropout}.bundle" for dropout in ("keep", "off")}
    for dropout, path in paths.items():
        given = ("--input", 30, "--seed", 3, "--dropout", dropout, "-o", path)
        auscult("bundle", "compile", f"{folder / 'net.py'}:make", *given)
    return paths


def trained(bundle: Path, out: Path, *more: object) -> np.ndarray:
    auscult("replay", *RUN, "--method", "fedavg", "--bundle", bundle, "--out", out, *more)
    with np.load(out / "model.npz") as saved:
        return np.concatenate(
            [saved[name].reshape(-1) for name in sorted(saved.files) if saved[name].dtype.kind == "f"]
        )


@pytest.mark.long
def test_a_repeated_run_ends_with_the_same_model_to_the_bit(bundles: dict[str, Path], tmp_path: Path) -> None:
    first, again = (trained(bundles["keep"], tmp_path / name) for name in ("first", "again"))
    without = trained(bundles["off"], tmp_path / "without")
    assert first.tobytes() == again.tobytes() and np.isfinite(first).all()
    assert first.shape == without.shape and not np.array_equal(first, without)


@pytest.mark.long
def test_a_method_that_trains_on_outputs_refuses_it(bundles: dict[str, Path], tmp_path: Path) -> None:
    given = ("--method", "fedal", "--bundle", bundles["keep"], "--out", tmp_path / "o")
    done = auscult("replay", *RUN[:-2], *given, code=1)
    assert "compile it with --dropout off" in done.stderr
