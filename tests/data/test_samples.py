"""Samples that a device's own file holds: all that is wrong with one is said where it enters."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of
from edge_sdk.data.samples import Samples, Stored, store_samples
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.replay.traces.synth import write_traces

X, LABELS = np.arange(6, dtype=np.float32).reshape(3, 2), np.array(["a", "b", "a"])


def written(path, **arrays):
    np.savez(path, **arrays)
    return Stored(path)


def test_what_is_stored_is_read_again(tmp_path):
    train, held_out, chosen = Samples(X, ("a", "b", "a")), Samples(X[:1], ("b",)), Samples(X[1:], ("a", "b"))
    found = samples_of(Stored(store_samples(tmp_path / "d.npz", train, held_out, chosen)))
    for one, other in ((found.train, train), (found.held_out, held_out), (found.validation, chosen)):
        assert (one.x == other.x).all() and one.labels == other.labels
    assert samples_of(Stored(store_samples(tmp_path / "e.npz", train, held_out))).validation is None
    empty = Samples(X[:0], ())
    found = samples_of(Stored(store_samples(tmp_path / "f.npz", train, held_out, empty))).validation
    assert found is not None and len(found) == 0


def test_without_held_out_samples_there_are_none(tmp_path):
    held_out = samples_of(written(tmp_path / "d.npz", x=X, labels=LABELS)).held_out
    assert len(held_out) == 0 and held_out.x.shape == (0, 2)


def test_a_device_brings_its_trace_to_the_rate_of_the_others(tmp_path):
    random, words = np.random.default_rng(1), ["walk", "sit", "walk", "sit", "walk"]
    rows = [f"{i / 16},{random.normal():.3f},{words[i // 400]}" for i in range(2000)]
    (tmp_path / "a.csv").write_text("\n".join(["time,ax,activity", *rows]))
    found = samples_of(Cut(tmp_path / "a.csv", rate_hz=32, classes=("Walk", "sit")))
    as_recorded = samples_of(Cut(tmp_path / "a.csv"))
    assert len(found.train) > 1.8 * len(as_recorded.train) and "16 Hz made 32 Hz" in found.told
    assert {*found.train.labels} <= {"Walk", "sit"} and as_recorded.told == ""
    with pytest.raises(UsageError, match="16 Hz, not 32"):
        samples_of(Cut(tmp_path / "a.csv", rate_hz=32, strict=True))
    with pytest.raises(UsageError, match="rate_hz"):
        Cut(tmp_path / "a.csv", rate_hz=-1)


def test_a_trace_in_three_parts(tmp_path):
    write_traces(tmp_path, devices=1, seed=3, minutes=20)
    trace = tmp_path / "synth-01.csv"
    two, three = samples_of(Cut(trace, held_out=0.2)), samples_of(Cut(trace, held_out=0.2, validation=0.2))
    assert two.validation is None and three.validation is not None
    assert (two.held_out.x == three.held_out.x).all(), "the test part does not depend on the validation part"
    assert len(three.train) + len(three.validation) == len(two.train)
    parts = [{row.tobytes() for row in part.x} for part in (three.train, three.validation, three.held_out)]
    assert not parts[0] & parts[1] and not parts[1] & parts[2] and not parts[0] & parts[2]


@pytest.mark.parametrize(("validation", "held_out"), [(-0.1, 0.2), (0.8, 0.2), (float("nan"), 0.2)])
def test_shares_leave_something_to_train_on(validation, held_out):
    with pytest.raises(UsageError, match="leave something to train on"):
        Cut("x.csv", held_out=held_out, validation=validation)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X}, "has no array labels"),
        ({"x": X, "labels": LABELS, "y": X}, "array y is none of x, labels, held_out_x"),
        ({"x": X, "labels": LABELS, "held_out_x": X}, "has no array held_out_labels"),
        ({"x": X, "labels": LABELS, "validation_labels": LABELS}, "has no array validation_x"),
        ({"x": X, "labels": LABELS, "validation_x": X[:, :1], "validation_labels": LABELS}, "validation_x is of shape"),
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


@pytest.mark.parametrize("kind", [bool, np.int64, np.uint8, np.float32])
def test_a_matrix_of_0_and_1_with_names_is_sets_of_labels(tmp_path, kind):
    matrix = np.array([[1, 0], [0, 0], [1, 1]])
    found = samples_of(
        written(
            tmp_path / "d.npz",
            x=X,
            labels=matrix.astype(kind),
            held_out_x=X[:1],
            held_out_labels=matrix[:1].astype(kind),
            label_names=np.array(["pvc", "af"]),
        )
    )
    assert found.train.labels == ("pvc", "none", "af+pvc")
    assert found.held_out.labels == ("pvc",)


@pytest.mark.parametrize(
    ("labels", "names", "words"),
    [
        ([[1, 0], [0, 2], [1, 1]], ["af", "pvc"], "row 1 of labels has 2, expected 0 or 1"),
        ([[1, 0], [0, 0], [1, 1]], ["af"], r"labels are int64 \(3, 2\), expected \(3, 1\)"),
        ([[1, 0], [0, 0], [1, 1]], ["af", "AF"], "label_names = af, AF: expected different"),
        ([[1, 0], [0, 0], [1, 1]], ["af", "none"], "'none'"),
        ([[1, 0], [0, 0], [1, 1]], [1, 2], "label_names is int64"),
        ([[1, 0], [0, 0], [1, 1]], None, "label_names"),
        (["af", "none", "af+pvc"], ["af", "pvc"], r"labels are <U6 \(3,\), expected \(3, 2\)"),
    ],
)
def test_what_is_no_such_matrix_is_refused(tmp_path, labels, names, words):
    more = {} if names is None else {"label_names": np.array(names)}
    with pytest.raises(UsageError, match=words):
        samples_of(written(tmp_path / "d.npz", x=X, labels=np.array(labels), **more))
