"""The version of the latest rollout at a hospital: for who comes late, and only as the run has signed it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.contract.run import ROLLOUT, Run
from edge_sdk.methods.rollout.messages import VersionTaken
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.hospital.bundles import make_shelf
from edge_sdk.nodes.hospital.lanes import VERSION, find_version, keep_version
from edge_sdk.nodes.kernels.rollout import hash_model

FILE = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
BUNDLE = read_bundle(FILE)


def run_of(theta: np.ndarray) -> Run:
    return Run(id="roll", method=ROLLOUT, bundle=BUNDLE.sha256, settings={"theta": hash_model(theta)})


def test_a_version_is_found_as_it_came_and_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    theta, data = BUNDLE.theta0 * 2, np.frombuffer(FILE.read_bytes(), np.uint8)
    assert find_version(run_of(theta), tmp_path) is None and not caplog.messages
    keep_version(make_shelf(FILE, {}, tmp_path), tmp_path, VersionTaken(data, theta))
    found = find_version(run_of(theta), tmp_path)
    assert found is not None and found.bundle.tobytes() == data.tobytes() and found.theta.tobytes() == theta.tobytes()
    assert find_version(run_of(BUNDLE.theta0), tmp_path) is None and "another model came" in caplog.messages[-1]
    (tmp_path / VERSION).write_bytes(b"PK damaged")
    assert find_version(run_of(theta), tmp_path) is None and "no NPZ file that can be read" in caplog.messages[-1]
