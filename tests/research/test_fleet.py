"""Fleets of what people have: which samples are held out, labels, tables, recordings, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import edge_sdk as auscult
from edge_sdk.data.samples import read_samples
from edge_sdk.errors import UsageError
from edge_sdk.label_names import in_order
from edge_sdk.model.inputs import check_input
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.research.fleets.parts import split_rows

X, Y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2


def stored(fleet, name):
    from pathlib import Path

    return read_samples(Path(fleet.data) / f"{name}.npz")


def test_the_last_of_each_class_are_held_out_and_those_before_are_for_choices():
    found = stored(auscult.Fleet.from_arrays({"ann": (X, Y)}), "ann")
    assert found.train.x.dtype == np.float32
    assert found.held_out.x[:, 0].tolist() == [32, 34, 36, 38]
    assert found.validation.x[:, 0].tolist() == [24, 26, 28, 30]
    assert found.train.x[:, 0].tolist() == list(range(0, 24, 2))
    assert found.train.labels[:3] == ("0", "1", "0")


def test_a_split_of_ones_own_stays():
    found = stored(auscult.Fleet.from_arrays({"ann": (X[:15], Y[:15], X[15:], Y[15:])}, validation=0), "ann")
    assert found.held_out.x.tolist() == X[15:].tolist() and found.validation is None and len(found.train) == 15


@pytest.mark.parametrize("validation", [0, 0.2])
def test_a_cohort_knows_whether_there_are_samples_to_choose_by(validation):
    fleet = auscult.Fleet.from_arrays({"ann": (X, Y)}, validation=validation)
    assert form_cohort(fleet.data, 3, 0, fleet.options).chooses == (validation > 0)


@pytest.mark.parametrize("count", range(1, 12))
def test_all_parts_have_their_share_of_every_class(count):
    labels = ["a"] * count + ["b"] * 30
    train, test, chosen = split_rows(labels, 0.2, 0.2)
    assert sorted([*train, *test, *chosen]) == list(range(count + 30))
    sizes = [sum(labels[i] == "a" for i in part) for part in (train, test, chosen)]
    assert sizes[0] >= 1 and sizes[1] >= (count > 1) and sizes[2] >= (count > 2)


def test_numbers_keep_their_order_as_classes_and_are_written_as_they_were_given():
    y = np.arange(24) % 12
    fleet = auscult.Fleet.from_arrays({"ann": (np.ones((24, 3)), y)})
    assert fleet.form().classes == tuple(map(str, range(12)))
    assert {*stored(fleet, "ann").train.labels} == {*map(str, range(12))}
    x = np.ones((24, 3, 12))
    fleet = auscult.Fleet.from_arrays({"ann": (x, np.tile([0, 7, 12], (24, 1)))}, task="steps")
    assert fleet.form().classes == ("0", "7", "12")
    assert in_order(["12", "7", "walk"]) == ["12", "7", "walk"], "texts are in the order of texts"


def test_labels_that_differ_in_spaces_and_case_are_one_class_as_in_recordings(tmp_path):
    words = ["walk", "Walk", " walk ", "sit"] * 5
    with pytest.warns(UserWarning, match="labels: ' walk ' is 'walk', 'WALK' is 'walk', 'Walk' is 'walk'"):
        fleet = auscult.Fleet.from_arrays({"ann": (X, words), "bob": (X, ["WALK", "walk"] * 10)})
    assert fleet.form().classes == ("sit", "walk")
    assert len(stored(fleet, "ann").held_out) == 4, "a share of each class, however it is written"
    rows = [f"{n / 10},{n},{words[n // 30 % 20]}" for n in range(600)]
    (tmp_path / "ann.csv").write_text("\n".join(["time,ax,activity", *rows]))
    assert auscult.Fleet.from_traces(tmp_path, window=10, stride=10).form().classes == ("sit", "walk")


@pytest.mark.parametrize("nothing", [None, float("nan"), "", " ", "nan"])
def test_a_sample_without_a_label_is_said_to_be_one(nothing):
    with pytest.raises(UsageError, match=r"device bob: y\[3\] is .*, a sample without a label: leave such samples out"):
        auscult.Fleet.from_arrays({"ann": (X, ["a", "b"] * 10), "bob": (X, ["a", "b", "a", nothing] * 5)})
    with pytest.raises(UsageError, match=r"device ann: y\[3\] is"):
        auscult.Fleet.from_arrays({"ann": (X, np.array([0, 1, 0, "" if nothing == " " else None] * 5, object))})


def test_where_windows_need_no_label_nothing_is_none():
    x = np.random.default_rng(0).normal(size=(20, 2, 12))
    for given in ({"task": "reconstruction"}, {"labels": "all"}):
        y = [{"a"}, {"b"}, None, float("nan")] * 5 if "labels" in given else ["a", "b", None, float("nan")] * 5
        found = stored(auscult.Fleet.from_arrays({"ann": (x, y)}, **given), "ann")
        assert {*found.train.labels, *found.held_out.labels} == {"a", "b", ""}
    steps = np.array([["a", None, "b"]] * 20, object)
    assert auscult.Fleet.from_arrays({"ann": (x, steps)}, task="steps").form().classes == ("a", "b")


@pytest.mark.parametrize("kind", ["uint8", "int8", "int64", "uint64", "bool"])
def test_whole_numbers_are_floats(kind):
    x = (np.arange(60).reshape(20, 3) % 2).astype(kind)
    found = stored(auscult.Fleet.from_arrays({"ann": (x, Y)}), "ann")
    assert found.train.x.dtype == np.float32 and found.train.x.max() == 1


def test_whole_numbers_that_are_not_exact_are_refused_with_the_device():
    x = np.zeros((20, 3), np.int64)
    x[3, 1] = -(2**24) - 1
    with pytest.raises(UsageError, match=r"device bob: x is int64 and has -16777217; .* x.astype\('float32'\)"):
        auscult.Fleet.from_arrays({"ann": (X, Y), "bob": (x, Y)})


def test_an_input_of_integers_takes_the_whole_numbers_of_a_file_of_floats():
    declared = {"name": "ids", "dtype": "int64", "shape": [2], "below": 5}
    assert check_input(declared, np.array([[0, 4]], np.float32)).tolist() == [[0, 4]]
    for wrong in (0.5, 5.0, -1.0, np.nan, np.inf):
        with pytest.raises(UsageError, match="ids"):
            check_input(declared, np.array([[0, wrong]], np.float32))


def test_the_same_arrays_are_the_same_folder():
    assert auscult.Fleet.from_arrays({"a": (X, Y)}).data == auscult.Fleet.from_arrays({"a": (X.copy(), Y)}).data
    assert auscult.Fleet.from_arrays({"a": (X, Y)}).data != auscult.Fleet.from_arrays({"a": (X, 1 - Y)}).data


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ({}, "no device; expected"),
        ([(X, Y)], "devices is a list; expected {name: \\(x, y\\), ...}"),
        ({"ann": (X, Y, X)}, r"device ann: expected \(x, y\) or"),
        ({"ann": (X, Y[:3])}, "device ann: 20 samples and 3 labels"),
        ({"ann": (X[:0], Y[:0])}, "device ann: no samples; leave it out"),
        ({"ann": (X.ravel(), Y)}, r"device ann: x is float64 \(40,\), expected numbers \(N, \.\.\.\)"),
        ({"ann": (X.astype(str), Y)}, "device ann: x is <U"),
        ({"ann": (X, -Y)}, "device ann: y has -1; a class is a whole number, 0 or more, or a text"),
        ({"ann": (X, Y + 1j)}, "device ann: y is complex128; a class is"),
        ({"ann": (X, np.eye(20))}, r"device ann: y is of shape \(20, 20\)"),
        ({"ann": (X, Y), "bob": (X[:, :1], Y)}, r"device bob: a sample is \(1,\), of ann it is \(2,\)"),
        ({"ann/bob": (X, Y)}, "device name"),
        ({"ann": (np.full((20, 2), np.nan), Y)}, "not finite"),
        ({"ann": (X[:1], Y[:1])}, "device ann: nothing is held out of 1 samples"),
    ],
)
def test_arrays_that_cannot_be_used_are_named(devices, words):
    with pytest.raises(auscult.UsageError, match=words):
        auscult.Fleet.from_arrays(devices)


def test_a_table_of_samples():
    table = {"subject": ["a"] * 10 + ["b"] * 10, "activity": ["sit", "walk"] * 10, "p": X[:, 0], "q": X[:, 1]}
    fleet = auscult.Fleet.from_frame(table)
    assert "2 devices" in repr(fleet) and "2 classes" in repr(fleet)
    assert stored(fleet, "b").train.x[0].tolist() == [20.0, 21.0]


def test_a_table_of_readings_is_cut_into_windows():
    n = 2000
    table = {
        "who": np.repeat(["a", "b"], n),
        "t": np.tile(np.arange(n) / 32, 2),
        "ax": np.random.default_rng(0).normal(size=2 * n).round(3),
        "what": np.tile(np.repeat(["sit", "walk", "sit", "walk"], n // 4), 2),
    }
    fleet = auscult.Fleet.from_frame(table, by="who", label="what", time="t", window=32, stride=32)
    assert repr(fleet) == "Fleet of 2 devices in 2 hospitals, 2 classes, 32 Hz (from a table of readings)"
    with pytest.raises(auscult.UsageError, match="window is for recordings"):
        auscult.Fleet.from_frame(table, by="who", label="what", window=32)


def test_a_fleet_tells_whom_it_leaves_out_and_of_gaps_in_what_is_predicted():
    n = 400
    rate = np.tile(60.0 + np.arange(n) / 10, 3)
    rate[n + 100 : n + 200] = np.nan
    rate[2 * n :] = np.nan
    table = {
        "who": np.repeat(["ann", "bob", "eve"], n),
        "t": np.tile(np.arange(n) / 10, 3),
        "ppg": rate * 0,
        "rate": rate,
    }
    table["ppg"] = np.random.default_rng(0).normal(size=3 * n).round(3)
    fleet = auscult.Fleet.from_frame(table, by="who", predict="rate", unit="bpm", time="t", window=20, stride=20)
    assert repr(fleet).endswith("10 Hz (from a table of readings; 1 left out, see its notes)")
    assert any("skipped eve: none of its 20 windows has a label" in note for note in fleet.notes)
    assert any(note.startswith("bob: rate has no number in 100 of 400 rows") for note in fleet.notes)


@pytest.mark.parametrize(
    ("more", "words"),
    [({"by": "patient"}, "no column 'patient'; there are"), ({"label": "p"}, "column 'activity' is <U")],
)
def test_columns_that_cannot_be_used_are_named(more, words):
    table = {"subject": ["a", "b"], "activity": ["sit", "walk"], "p": [1.0, 2.0]}
    with pytest.raises(auscult.UsageError, match=words):
        auscult.Fleet.from_frame(table, **more)


def test_generated_people_and_a_folder_of_them():
    fleet = auscult.Fleet.synthetic(devices=2, minutes=2)
    assert "2 devices" in fleet.summary
    assert auscult.Fleet.from_traces(fleet.data, window=32).summary == fleet.summary
    with pytest.raises(auscult.UsageError, match="nowhere is no folder"):
        auscult.Fleet.from_traces("nowhere")


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
def test_a_sample_that_is_not_finite_is_named_with_its_device(wrong):
    x, y = np.zeros((20, 3)), np.arange(20) % 2
    x[7, 1] = wrong
    with pytest.raises(auscult.UsageError, match=r"device bob: x\[7\] has a value that is not finite"):
        auscult.Fleet.from_arrays({"ann": (np.zeros((20, 3)), y), "bob": (x, y)})


def test_windows_whose_axes_look_changed_are_warned_of():
    """(N, time, channels) is what many loaders give; read as 64 channels of 3 samples it trains without a word."""
    y = np.tile([0, 1], 20)
    with pytest.warns(UserWarning, match=r"\(N, 64, 3\) is taken for windows of 64 channels, 3 samples of time"):
        auscult.Fleet.from_arrays({"ann": (np.zeros((40, 64, 3)), y)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in ((40, 3, 64), (40, 22, 100), (40, 8), (40, 1, 28, 28), (40, 2, 8)):
            auscult.Fleet.from_arrays({"ann": (np.ones(shape), y)})


def test_names_and_labels_that_would_become_one_are_refused():
    with pytest.raises(UsageError, match="two devices are called 1, one by a number and one by a text"):
        auscult.Fleet.from_arrays({1: (X, Y), "1": (X, Y)})
    with pytest.raises(UsageError, match="labels '7' and '07' are one number"):
        auscult.Fleet.from_arrays({"ann": (X, np.array(["7", "07", "12", "12"] * 5))})
