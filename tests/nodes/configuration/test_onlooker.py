"""Runs that a device without samples can look on at: those that leave a model which predicts as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.methods import METHODS
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.onlooker import assemble_onlooker

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
NOT_WHOLE = {"fedper", "fedrep", "fedbn", "hsgd", "fedal", "fedslr+fedal", "fedslr-b+fedal"}
"""Methods whose devices have parts or models of their own, without which what they share predicts nothing."""


@pytest.mark.parametrize("method", METHODS)
def test_who_looks_on_gets_no_model_that_lacks_a_part(method: str) -> None:
    bundle = read_bundle(WRIST)
    classes = tuple(f"c{i}" for i in range(bundle.manifest["classes"]))
    run = Run(id="r", method=method, bundle=bundle.sha256, classes=classes)
    found = assemble_onlooker(run, bundle.layout, bundle.theta0)
    assert (found is None) == (method in NOT_WHOLE) and (found is None or found.looks_on)
