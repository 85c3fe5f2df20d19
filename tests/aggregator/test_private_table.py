"""What a [private] table makes, for which methods, and what it says of mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from aggregator.private_model import table as private
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.nodes.configuration.private_table import Private
from tests.aggregator import private_models
from tests.aggregator.private_models import (
    LABELS,
    Teacher,
    X,
    write_files,
)


@pytest.mark.parametrize("kind", ["crd", "kd", f"{private_models.__file__}:mine"])
def test_settings_make_a_regulariser(bundle, teacher, tmp_path, kind):
    found = private.regulariser_of(write_files(tmp_path, teacher, regulariser=kind), bundle, 3, "cpu")
    pull = found(bundle.theta0, 0, found.first())
    assert pull.gradient.dtype == np.float32 and pull.gradient.shape == (bundle.layout.size,)
    assert found.first().dtype == np.float32 and np.isfinite(pull.value) and pull.gradient.any()


def test_lambda_zero_opens_no_file(bundle, monkeypatch):
    monkeypatch.setattr(torch, "load", None)
    nothing = Private(weight=0.0, regulariser="crd", model=Path("/nowhere"), data=Path("/nowhere"))
    assert private.regulariser_of(nothing, bundle, 0, "cpu") is None
    assert private.give_regulariser(METHODS["augfl"].env, None) == {}


def test_methods_are_given_what_they_have_room_for(bundle, tmp_path):
    stateful = private.regulariser_of(write_files(tmp_path, Teacher()), bundle, 3, "cpu")
    frozen = private.regulariser_of(write_files(tmp_path, Teacher(), options={"heads": "frozen"}), bundle, 3, "cpu")
    assert set(private.give_regulariser(METHODS["augfl"].env, stateful)) == {"regulariser", "memory"}
    (smooth,) = private.give_regulariser(METHODS["fedslr"].env, frozen).values()
    assert np.array_equal(smooth(bundle.theta0), frozen(bundle.theta0, 0, frozen.first()).gradient)
    with pytest.raises(UsageError, match="does not keep what the regulariser learns"):
        private.give_regulariser(METHODS["fedslr"].env, stateful)
    with pytest.raises(UsageError, match="no room for a regulariser"):
        private.give_regulariser(METHODS["fedavg"].env, frozen)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"regulariser": "ckd"}, "one of l2, crd, kd, or one's own"),
        ({"weight": -1.0}, "weight = -1"),
        ({"every": "day"}, "pass or batch"),
        ({"batch": 1}, "at least 2"),
        ({"model": None}, "model is missing"),
        ({"data": Path("/nowhere.npz")}, "there is no such file"),
        ({"options": {"tua": 1}}, "tua is no setting, did you mean tau"),
        ({"options": {"tau": 0.0}}, "tau = 0"),
        ({"options": {"heads": "no"}}, "heads = 'no'"),
        ({"features": "neck"}, "no such layer; there are body, head"),
        ({"architecture": ""}, "does not say its architecture"),
        ({"architecture": f"{private_models.__file__}:Nobody"}, "has no Nobody"),
        ({"architecture": "nowhere:Net"}, "No module named"),
        ({"architecture": "Net"}, "no such model in the zoo"),
        ({"arguments": {"width": 9}}, "size mismatch"),
    ],
)
def test_mistakes_are_told_by_name(bundle, teacher, tmp_path, change, said):
    with pytest.raises(UsageError, match=said):
        private.regulariser_of(write_files(tmp_path, teacher, **change), bundle, 3, "cpu")


def test_data_that_does_not_fit(bundle, teacher, tmp_path):
    for arrays, said in (
        ({"x": X[:, :3]}, r"x is float32 \(23, 3\)"),
        ({"y": LABELS}, "x is missing"),
        ({"x": X * np.nan}, "not finite"),
        ({"x": X, "y": LABELS[:4]}, "expected 23 integers"),
    ):
        settings = write_files(tmp_path, teacher)
        np.savez(tmp_path / "data.npz", **arrays)
        with pytest.raises(UsageError, match=said):
            private.regulariser_of(settings, bundle, 3, "cpu")
