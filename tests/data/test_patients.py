"""What a hospital holds of its devices' patients: read again as written, refused where it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.data.patients import Patients, patients_of, rows_of, store_patients
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError

X, LABELS, DEVICES = np.arange(6, dtype=np.float32).reshape(3, 2), np.array(["a", "b", "a"]), np.array(["p", "q", "p"])
GOOD = {"x": X, "labels": LABELS, "device": DEVICES}


def written(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_what_is_stored_is_read_again(tmp_path):
    one = Patients(Samples(X, tuple(LABELS.tolist())), tuple(DEVICES.tolist()), X[:1], ("q",), X[1:], ("p", "q"))
    other = patients_of(store_patients(tmp_path / "h.npz", one))
    assert (other.train.x == X).all() and (other.held_out == X[:1]).all()
    assert (other.train.labels, other.devices, other.held_out_devices) == (one.train.labels, one.devices, ("q",))
    assert (other.validation == X[1:]).all() and other.validation_devices == ("p", "q")
    assert {d: rows.tolist() for d, rows in rows_of(other.devices).items()} == {"p": [0, 2], "q": [1]}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X, "labels": LABELS}, "has no array device"),
        (GOOD | {"device": DEVICES[:2]}, "3 rows but 2 names of devices"),
        (GOOD | {"device": np.arange(3)}, "labels are int64"),
        (GOOD | {"held_out_x": X}, "has no array held_out_device"),
        (GOOD | {"held_out_x": X[:, :1], "held_out_device": DEVICES}, "only N may differ"),
        (GOOD | {"held_out_x": X * np.float32(np.nan), "held_out_device": DEVICES}, "row 0"),
        (GOOD | {"validation_x": X}, "has no array validation_device"),
        (GOOD | {"validation_x": X[:, :1], "validation_device": DEVICES}, "validation .3, 1., x .3, 2.: only N"),
        (GOOD | {"held_out_labels": LABELS}, "array held_out_labels is none of"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, arrays, said):
    with pytest.raises(UsageError, match=said):
        patients_of(written(tmp_path / "h.npz", **arrays))


def test_a_file_of_before_has_no_validation_part(tmp_path):
    assert len(patients_of(written(tmp_path / "h.npz", **GOOD)).validation) == 0


def test_a_device_of_another_hospital(tmp_path):
    with pytest.raises(UsageError, match="q is no device of this hospital; there are: p, r"):
        patients_of(written(tmp_path / "h.npz", **GOOD)).check_devices(["p", "r"])
