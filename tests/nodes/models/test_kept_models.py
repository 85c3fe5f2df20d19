"""The file of models that a device keeps: whole, or not believed."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.nodes.models.kept_models import KeptModels, load, save

THETA = np.arange(500, dtype=np.float32)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    assert load(path) == KeptModels()
    save(path, KeptModels({"personal": THETA}, {"samples": 3.0}, True))
    found = load(path)
    assert found.scores == {"samples": 3.0} and found.finished
    np.testing.assert_array_equal(found.models["personal"], THETA)


@pytest.mark.parametrize("where", [0, 60, 900, 2200, -40, -1])
def test_a_damaged_file_is_put_aside_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture, where: int) -> None:
    path = tmp_path / "r.npz"
    save(path, KeptModels({"personal": THETA}, {"samples": 3.0}, True))
    content = bytearray(path.read_bytes())
    content[where] ^= 0x55
    path.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        found = load(path)
    if found.models:  # a byte that means nothing, such as one of a date
        np.testing.assert_array_equal(found.models["personal"], THETA)
        return
    assert found == KeptModels() and not path.exists()
    assert (tmp_path / "r.npz.damaged").read_bytes() == content
    assert "r.npz.damaged" in caplog.text


@pytest.mark.parametrize("size", [0, 1, 100, 1500, 2300])
def test_a_file_that_is_cut_is_put_aside(tmp_path: Path, size: int) -> None:
    path = tmp_path / "r.npz"
    save(path, KeptModels({"personal": THETA}, {"samples": 3.0}, True))
    path.write_bytes(path.read_bytes()[:size])
    assert load(path) == KeptModels() and not path.exists()
