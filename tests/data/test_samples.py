"""Samples that a device's own file holds: all that is wrong with one is said where it enters."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.data.samples import Samples, Stored, samples_of, store_samples
from edge_sdk.errors import UsageError
from edge_sdk.nodes.service_files import DeviceFile
from edge_sdk.nodes.settings import read_toml

X, LABELS = np.arange(6, dtype=np.float32).reshape(3, 2), np.array(["a", "b", "a"])


def written(path, **arrays):
    np.savez(path, **arrays)
    return Stored(path)


def test_what_is_stored_is_read_again(tmp_path):
    train, held_out = Samples(X, ("a", "b", "a")), Samples(X[:1], ("b",))
    for one, other in zip(
        samples_of(Stored(store_samples(tmp_path / "d.npz", train, held_out))), (train, held_out), strict=True
    ):
        assert (one.x == other.x).all() and one.labels == other.labels


def test_without_held_out_samples_there_are_none(tmp_path):
    _, held_out = samples_of(written(tmp_path / "d.npz", x=X, labels=LABELS))
    assert len(held_out) == 0 and held_out.x.shape == (0, 2)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X}, "has no array labels"),
        ({"x": X, "labels": LABELS, "y": X}, "array y is none of x, labels"),
        ({"x": X, "labels": LABELS, "held_out_x": X}, "has no array held_out_labels"),
        ({"x": X.astype(float), "labels": LABELS}, "x is float64"),
        ({"x": X[:2], "labels": LABELS}, "2 rows but 3 labels"),
        ({"x": X, "labels": np.arange(3)}, "labels are int64"),
        ({"x": X / np.float32(np.inf) * np.float32(np.nan), "labels": LABELS}, "row 0"),
        ({"x": X[:0], "labels": LABELS[:0]}, "nothing to train on"),
        ({"x": X, "labels": LABELS, "held_out_x": X[:, :1], "held_out_labels": LABELS}, "only N may differ"),
        ({"x": X, "labels": LABELS.astype(object)}, "no NPZ file that can be read"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, arrays, said):
    with pytest.raises(UsageError, match=said):
        samples_of(written(tmp_path / "d.npz", **arrays))


def test_a_settings_file_names_a_trace_or_samples(tmp_path):
    (tmp_path / "b").touch()
    samples = written(tmp_path / "d.npz", x=X, labels=LABELS).samples
    head = 'name = "d"\nhospital = "h"\nbroker = "mqtt://127.0.0.1"\nbundle = "b"\ndirectory = "."\n[data]\n'
    path = tmp_path / "d.toml"
    path.write_text(f'{head}samples = "d.npz"')
    assert read_toml(path, DeviceFile).data == Stored(samples)
    for table, said in (
        ('samples = "no.npz"', "data.samples = .*there is no such file"),
        ('trace = "d.npz"\nwindow = 0', "window = 0"),
        ("samples = 3", "data.samples = 3: expected a path"),
        ('samples = "d.npz"\nwindow = 3', "data.window is no setting"),
    ):
        path.write_text(head + table)
        with pytest.raises(UsageError, match=said):
            read_toml(path, DeviceFile)
