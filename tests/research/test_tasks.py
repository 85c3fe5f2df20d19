"""Fleets and runs of values and of sets of labels, from arrays to scores, tables and comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edge_sdk as auscult
from edge_sdk.data.samples import read_samples
from edge_sdk.research.comparisons.frames import curve_rows, device_rows
from tests.label_sets import compile_findings
from tests.research.test_results import check_html
from tests.values import compile_linear

X = np.random.default_rng(0).normal(size=(60, 3))
RATES = 100 + X @ np.array([20.0, -10.0, 5.0])
NAMES = ("af", "pvc", "noise")
QUICK = dict(rounds=3, hospitals=2, plain=True, progress=False)


def fleet_of(y, **options) -> auscult.Fleet:
    return auscult.Fleet.from_arrays({"ann": (X, y), "bob": (X[::-1], y[::-1]), "eve": (-X, y)}, **options)


def sets() -> list[list[str]]:
    return [[name for name, there in zip(NAMES, row, strict=True) if there] for row in X > 0]


def stored(fleet: auscult.Fleet, name: str = "ann"):
    return read_samples(Path(fleet.data) / f"{name}.npz")


# What y is ------------------------------------------------------------------------------------------------------
def test_floats_are_values_and_the_last_of_them_are_held_out() -> None:
    fleet = fleet_of(RATES, unit="bpm", range=[(40, 180)])
    assert "value (bpm, 40 to 180)" in fleet.summary
    found = stored(fleet)
    assert found.held_out.labels == tuple(RATES[-12:].tolist()) and found.train.labels == tuple(RATES[:36].tolist())
    whole = fleet_of(RATES.round(), predict="rate")
    assert "rate (" in whole.summary and stored(whole).train.labels[0] == RATES[0].round()
    assert "classes" in fleet_of(np.abs(RATES).round()).summary, "whole numbers are classes, as before"
    two = fleet_of(np.stack([RATES, X[:, 0]], 1), predict=["rate", "level"], unit=["bpm", ""])
    assert "rate (bpm, " in two.summary and "level (" in two.summary and len(stored(two).train.labels[0]) == 2


def test_booleans_and_lists_of_names_are_sets() -> None:
    by_columns, by_names = fleet_of(X > 0, labels=NAMES), fleet_of(sets())
    assert by_columns.options == {"labels": NAMES} and by_names.options == {"labels": "all"}
    assert by_columns.data == by_names.data and "several labels (af, pvc, noise)" in by_columns.summary
    texts = {label for part in (stored(by_names).train, stored(by_names).held_out) for label in part.labels}
    assert "none" in texts and any("+" in text for text in texts)
    assert "several labels (af, noise, pvc)" in repr(by_names)


@pytest.mark.parametrize("kind", [int, np.uint8, float, list])
def test_columns_of_0_and_1_are_sets_as_booleans_are(kind: type) -> None:
    found = (X > 0).astype(int).tolist() if kind is list else (X > 0).astype(kind)
    assert fleet_of(found, labels=NAMES).data == fleet_of(X > 0, labels=NAMES).data


@pytest.mark.parametrize(
    ("y", "options", "words"),
    [
        (X[:, 0] > 0, {"task": "reconstruction", "abnormal": True}, "True is no name; expected names"),
        ((X > 0) * 2, {"labels": NAMES}, "has 2, expected 0 or 1 for af, pvc, noise"),
        ((X > 0) * 1, {"labels": ["af"]}, "y is int64 (60, 3), expected (N, 1): af"),
        (X > 0, {}, "y is bool (60, 3), expected names for its columns, labels="),
        (X > 0, {"labels": ["af"]}, "y is bool (60, 3), expected (N, 1): af"),
        (X, {}, "values are named, predict="),
        (X, {"predict": "rate"}, "y is float64 (60, 3), expected numbers (N,): rate"),
        (RATES, {"labels": ["af"]}, "expected a set of names, or a text such as 'af+pvc'"),
        (RATES, {"labels": ["af"], "predict": "rate"}, "a model predicts values or labels"),
        (np.where(X[:, 0] > 1, np.nan, RATES), {}, "is not finite"),
        ([["af+pvc"]] * 60, {}, "y[0]: a label called 'af+pvc'"),
        (np.arange(60) % 2, {"unit": "bpm"}, "from_arrays: unit is of values"),
    ],
)
def test_what_is_neither_is_named(y, options, words: str) -> None:
    with pytest.raises(auscult.UsageError) as refused:
        auscult.Fleet.from_arrays({"ann": (X, y)}, **options)
    assert words in str(refused.value)


def test_rare_sets_are_divided_together() -> None:
    """Of a set with a sample or two no part would have one: they are divided as one stratum."""
    y = [["af"]] * 30 + [["af", name] for name in "abcdefghij"]
    found = stored(auscult.Fleet.from_arrays({"ann": (X[:40], y)}))
    assert [sum(label != "af" for label in part.labels) for part in (found.train, found.held_out)] == [6, 2]


def test_a_table_of_values_and_one_of_readings(tmp_path: Path) -> None:
    table = {"subject": ["a"] * 30 + ["b"] * 30, "p": X[:, 0], "q": X[:, 1], "rate": RATES, "level": X[:, 2]}
    assert "rate (" in auscult.Fleet.from_frame(table, predict="rate").summary
    both = auscult.Fleet.from_frame(table, predict=["rate", "level"], unit="bpm,")
    assert stored(both, "a").train.x.shape[1:] == (2,) and "rate (bpm, " in both.summary
    n = 1500
    walk = np.random.default_rng(0).normal(size=2 * n).round(3)
    readings = {"subject": np.repeat(["a", "b"], n), "t": np.tile(np.arange(n) / 32, 2), "ax": walk, "rate": walk + 70}
    fleet = auscult.Fleet.from_frame(readings, time="t", predict="rate", unit="bpm", window=32, stride=32)
    assert "rate (bpm, " in fleet.summary and "32 Hz" in fleet.summary


# Runs -----------------------------------------------------------------------------------------------------------
RATE = dict(predict="rate", unit="bpm", range=[(40, 180)])


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network, which is compiled once."""
    pytest.importorskip("torch", reason="a network is compiled")
    return compile_linear(tmp_path_factory.mktemp("linear") / "linear.bundle")


@pytest.fixture(scope="module")
def rates(linear: Path) -> auscult.Results:
    pytest.importorskip("sklearn", reason="the strongest neighbour needs scikit-learn")
    return auscult.simulate(fleet_of(RATES, **RATE), "fedavg", model=linear, seeds=2, neighbours=2, **QUICK)


def test_values_have_errors_in_their_units(rates: auscult.Results, tmp_path: Path) -> None:
    own = [one["values"]["models"]["personalised"]["rate"]["mae"] for one in rates.results]
    assert rates.scores["personalised"]["rate"] == pytest.approx(np.mean(own))
    with pytest.raises(auscult.UsageError, match=r"run\.scores has their mae"):
        _ = rates.accuracy
    text = repr(rates)
    assert "bpm" in rates.verdict and "rate (bpm), 3 devices" in text and "±" in text
    assert r"rate (bpm) & personalised" in rates.latex()
    check_html(rates._repr_html_())
    rows = device_rows("run", rates.results)
    one = next(row for row in rows if row["model"] == "personalised" and row["device"] == "ann")
    assert one["mae"] == rates.results[0]["devices"][0]["errors"]["personalised"]["rate"]["mae"]
    assert one["value"] == "rate" and one["unit"] == "bpm" and {"rmse", "bias"} <= {*one}
    assert {row["round"] for row in curve_rows("run", rates.results) if row["model"] == "global"} == {0, 1, 2, 3}
    assert auscult.load(rates.save(tmp_path / "kept")).scores == rates.scores
    check_html((tmp_path / "kept" / "report.html").read_text())
    predicted = rates.devices["ann"].predict(X[:2].astype("float32"))[0].value
    assert predicted.unit == "bpm" and predicted.low is not None and predicted.low < predicted.value
    assert "personalised off by" in repr(rates.devices["ann"])


def test_runs_of_values_are_compared_device_by_device(rates: auscult.Results, linear: Path) -> None:
    other = auscult.simulate(fleet_of(RATES, **RATE), "ditto", model=linear, seeds=2, neighbours=0, **QUICK)
    found = auscult.compare(rates, other)
    d = found.differences["ditto"]["personalised"]["rate"]
    own, first = (
        np.mean([[d["errors"]["personalised"]["rate"]["mae"] for d in one["devices"]] for one in run.results], axis=0)
        for run in (other, rates)
    )
    assert d["mean"] == pytest.approx(np.mean(own - first)) and d["low"] <= d["mean"] <= d["high"] and d["devices"] == 3
    assert (
        "ditto, personalised, rate: " in repr(found) and "bpm" in repr(found) and "MAE against fedavg" in found.latex()
    )
    check_html(found._repr_html_())


def test_sets_of_labels_have_macro_f1(rates: auscult.Results, tmp_path: Path) -> None:
    bundle = compile_findings(tmp_path / "findings.bundle")
    run = auscult.simulate(fleet_of(X > 0, labels=NAMES), "fedavg", model=bundle, neighbours=0, **QUICK)
    assert run.scores["global"] == run.results[0]["macro_f1"]["global"] and "macro-F1" in repr(run)
    assert {"macro_f1", "exact_match"} <= {*device_rows("run", run.results)[0]} and "macro-F1" in run.latex()
    assert 0 <= curve_rows("run", run.results)[0]["macro_f1"] <= 1
    assert run.devices["ann"].predict(X[:1].astype("float32"))[0].labels <= {*NAMES}
    check_html(run._repr_html_())
    with pytest.raises(auscult.UsageError, match=r"is judged by macro-F1, fedavg by errors of rate \(bpm\)"):
        auscult.compare(fedavg=rates, sets=run).found  # noqa: B018


def test_a_network_of_ones_own_predicts_values() -> None:
    torch = pytest.importorskip("torch", reason="it is a module of torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    run = auscult.simulate(fleet_of(RATES, **RATE), "fedavg", model=net, neighbours=0, **QUICK)
    assert run.results[0]["model"]["parameters"] == 21 and run.scores["global"]["rate"] > 0
