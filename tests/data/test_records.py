"""Samples of several inputs, and of integers: joined, stored, read again; what is wrong with them is said."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.data.data_table import samples_of
from edge_sdk.data.samples import Samples, Stored, store_samples
from edge_sdk.errors import UsageError

IDS, AGE = np.arange(12).reshape(3, 4), np.ones((3, 2), np.float32)
LABELS = ("a", "b", "a")


def test_inputs_become_records_of_which_rows_can_be_chosen():
    samples = Samples.of_inputs({"ids": IDS, "age": AGE}, LABELS)
    assert len(samples) == 3 and samples.x.dtype.names == ("ids", "age")
    some = Samples(samples.x[[2, 0]], ("a", "a"))
    assert (some.x["ids"] == IDS[[2, 0]]).all() and some.x["age"].dtype == np.float32


def test_records_are_stored_and_read_again(tmp_path):
    train, rest = (
        Samples.of_inputs({"ids": IDS, "age": AGE}, LABELS),
        Samples.of_inputs({"ids": IDS, "age": AGE}, LABELS),
    )
    path = store_samples(tmp_path / "d.npz", train, rest, Samples(rest.x[1:], LABELS[1:]))
    with np.load(path) as file:
        assert {"x.ids", "x.age", "held_out_x.ids", "validation_x.age", "labels"} <= {*file}
    found = samples_of(Stored(path))
    assert (found.train.x["ids"] == IDS).all() and (found.held_out.x["age"] == AGE).all()
    assert found.validation is not None and (found.validation.x["ids"] == IDS[1:]).all()


def test_integers_alone(tmp_path):
    np.savez(tmp_path / "d.npz", x=IDS, labels=np.array(LABELS))
    found = samples_of(Stored(tmp_path / "d.npz"))
    assert found.train.x.dtype == IDS.dtype and found.held_out.x.shape == (0, 4)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"ids": IDS, "age": AGE[:2]}, r"inputs ids, age: \[3, 2\] samples"),
        ({"ids": IDS, "age": AGE.astype(float)}, "age is float64"),
        ({"ids": IDS, "age": np.array([[1, np.nan]] * 3, np.float32)}, "row 0 of age has a value that is not finite"),
        ({"ids": np.float32(1)}, r"expected an array \(N, \.\.\.\)"),
        ({}, r"expected an array \(N, \.\.\.\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, said):
    with pytest.raises(UsageError, match=said):
        Samples.of_inputs(inputs, LABELS)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": IDS, "x.ids": IDS}, "there is x and x.ids"),
        ({"x.ids": IDS, "x.age": AGE[:1]}, r"inputs age, ids: \[1, 3\] samples"),
        ({"x.ids": IDS, "held_out_x.age": AGE, "held_out_labels": np.array(LABELS)}, "held_out_x is .*age"),
        ({"x.ids": IDS, "held_out_x": IDS, "held_out_labels": np.array(LABELS)}, "held_out_x is of shape"),
        ({"x.ids": np.array([["a"] * 2] * 3)}, "ids is <U1"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, arrays, said):
    path = tmp_path / "d.npz"
    np.savez(path, labels=np.array(LABELS), **arrays)
    with pytest.raises(UsageError, match=rf"(?s)d\.npz.*{said}"):
        samples_of(Stored(path))
