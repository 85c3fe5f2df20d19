"""Fleets of windows without labels and of windows with a class at each step, from arrays to scores and comparisons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edge_sdk as auscult
from edge_sdk.data.samples import Samples, SplitSamples, read_samples, store_samples
from edge_sdk.research.comparisons.frames import curve_rows, device_rows, share_rows
from edge_sdk.research.fleets.fleet import Fleet
from tests import reconstructions, step_values, steps
from tests.research.test_results import check_html
from tests.research.test_simulate import figures
from tests.warm import auscult as auscult_command

X = {name: reconstructions.draw(60, k) for k, name in enumerate(("ann", "bob", "eve"))}
QUICK: dict[str, Any] = dict(rounds=2, hospitals=2, plain=True, neighbours=0, progress=False)
SPIKES = np.array([""] * 50 + ["spike"] * 10)


def stored(fleet: Fleet, name: str = "ann") -> SplitSamples:
    return read_samples(Path(fleet.data) / f"{name}.npz")


# What arrays are ------------------------------------------------------------------------------------------------
def test_windows_need_no_labels_and_the_last_ones_are_held_out() -> None:
    fleet = Fleet.from_arrays(X, task="reconstruction", quantile=0.9)
    assert "the window itself (alarms above the 0.9 quantile of errors)" in fleet.summary
    found, x = stored(fleet), X["ann"]
    assert np.array_equal(found.train.x, x[:36]) and np.array_equal(found.held_out.x, x[48:])
    assert found.validation is not None and np.array_equal(found.validation.x, x[36:48])
    assert {*found.train.labels, *found.held_out.labels} == {""}
    same = [Fleet.from_arrays(form, task="reconstruction", quantile=0.9).data
            for form in ({n: (x,) for n, x in X.items()}, {n: (x, None) for n, x in X.items()})]  # fmt: skip
    assert same == [fleet.data] * 2
    own = stored(Fleet.from_arrays({n: (x[:40], None, x[40:], None) for n, x in X.items()}, task="forecast"))
    assert len(own.train) == 32 and np.array_equal(own.held_out.x, x[40:])


def test_all_that_is_abnormal_is_held_out() -> None:
    devices = {name: (x, np.roll(SPIKES, 30)) for name, x in X.items()}
    fleet = Fleet.from_arrays(devices, task="forecast", abnormal=["Spike"], horizon=3)
    assert "its last 3 values" in fleet.summary or "3" in fleet.summary
    found = stored(fleet)
    assert [label for label in found.held_out.labels if label] == ["spike"] * 10 and len(found.held_out) == 20
    assert found.validation is not None and {*found.train.labels, *found.validation.labels} == {""}
    assert np.array_equal(found.held_out.x[:10], X["ann"][20:30]), "in their order"


def test_a_class_at_each_step_is_a_number_or_a_text() -> None:
    x, codes = steps.draw(40)
    unknown = codes.copy()
    unknown[3] = -1
    names = [*steps.TASK.names, ""]
    texts = np.array(names)[unknown]
    by_numbers = Fleet.from_arrays({"ann": (x, unknown)}, task="steps", labels=steps.TASK.names)
    by_texts = Fleet.from_arrays({"ann": (x, texts.tolist())}, task="steps", labels=list(steps.TASK.names))
    assert by_numbers.data == by_texts.data and by_numbers.form().task == steps.TASK
    assert stored(by_numbers).train.labels[3] == "||" and stored(by_numbers).train.labels[0] == "|".join(texts[0])
    plain = Fleet.from_arrays({"ann": (x, codes * 6), "bob": (x, codes)}, task="steps")
    assert plain.form().task.names == ("0", "1", "2", "6", "12"), "numbers keep their order"
    assert "one class of 5 at each of 3 steps" in plain.summary


Y = steps.draw(40)[1]
STEPS_X = steps.draw(40)[0]


@pytest.mark.parametrize(
    ("arrays", "options", "words"),
    [
        ((STEPS_X, Y[:, 0]), {"task": "steps"}, "y is int64 (40,), expected (40, steps), a class at each of 1 to 12"),
        ((STEPS_X, np.zeros((40, 13), int)), {"task": "steps"}, "y is int64 (40, 13), expected (40, steps)"),
        ((STEPS_X, Y.astype(float)), {"task": "steps"}, "y is float64 (40, 3), expected (40, steps)"),
        (STEPS_X, {"task": "steps"}, "y is object (), expected (40, steps)"),
        ((STEPS_X, Y - 2), {"task": "steps"}, "y has -2 to 0, expected 0 or more, or -1 where nobody knows"),
        ((STEPS_X, Y), {"task": "steps", "labels": ["a", "b"]}, "y has 0 to 2, expected 0 to 1 of a, b"),
        ((STEPS_X, Y[:9]), {"task": "steps"}, "40 samples and 9 labels"),
        ((STEPS_X[:, 0], Y), {"task": "steps"}, "x is float32 (40, 12); for task steps expected (N, channels, time)"),
        (
            (STEPS_X, np.array([["a", 2.5, "b"]] * 40, object)),
            {"task": "steps"},
            "y has 2.5, expected texts, or '' where nobody",
        ),
        (STEPS_X[:, 0], {"task": "forecast"}, "for task forecast expected (N, channels, time)"),
        (STEPS_X, {}, "device ann: x without y, expected (x, y) or (x, y, x_test, y_test); windows without labels are"),
        ((STEPS_X, None, STEPS_X), {"task": "forecast"}, "3 arrays, expected (x, y) or (x, y, x_test, y_test) or x al"),
        ((STEPS_X, Y), {"task": "forecast"}, "y is of shape (40, 3), expected (N,)"),
        ("ann.npz", {"task": "forecast"}, "0 arrays, expected"),
        (
            (STEPS_X[:2], ["a", "a"]),
            {"task": "forecast", "abnormal": "a"},
            "nothing is to train on of 2 windows, 2",
        ),
        (STEPS_X, {"task": "steps", "horizon": 3}, "no option horizon of task steps; it is of task forecast"),
        (STEPS_X, {"task": "forecast", "horizen": 3}, "no option horizen of task forecast"),
        (STEPS_X, {"task": "forecast", "unit": "bpm"}, "no option unit of task forecast"),
        (STEPS_X, {"task": "forecast", "labels": ["a"]}, "no option labels of task forecast; it is of task steps"),
        ((STEPS_X, Y[:, 0]), {"quantile": 0.9}, "no option quantile; it is of task reconstruction or forecast"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(arrays: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(auscult.UsageError) as refused:
        Fleet.from_arrays({"ann": arrays}, **options)
    assert words in str(refused.value)


# Runs -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network, which is compiled once."""
    pytest.importorskip("torch", reason="a network is compiled")
    return reconstructions.compile_waves(tmp_path_factory.mktemp("waves") / "waves.bundle")


def with_spikes() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {}
    for name, x in X.items():
        own = x.copy()
        own[50:, 0, 3] += 1.5
        found[name] = own, SPIKES
    return found


@pytest.fixture(scope="module")
def spikes(waves: Path) -> auscult.Results:
    fleet = Fleet.from_arrays(with_spikes(), task="reconstruction", abnormal="spike")
    return auscult.simulate(fleet, "fedavg", model=waves, seeds=2, **QUICK)


def of_the_command(folder: Path, out: Path, *more: str) -> dict[str, Any]:
    """What `auscult simulate` prints of a folder of samples."""
    line = ["simulate", str(folder), "--rounds", "2", "--hospitals", "2", "--plain", "--no-neighbours", "--json", *more]
    done = auscult_command(*line, "--out", out)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_figures_are_those_of_the_command_to_the_bit(spikes: auscult.Results, waves: Path, tmp_path: Path) -> None:
    """Of files that somebody has written as the command wants them: what is abnormal is held out, as of traces."""
    for name, (x, y) in with_spikes().items():
        parts = [Samples(x[rows], tuple(y[rows].tolist())) for rows in (slice(30), slice(40, None), slice(30, 40))]
        store_samples(tmp_path / "in" / f"{name}.npz", *parts)
    asked = ("--task", "reconstruction", "--abnormal", "spike", "--method", "fedavg", "--bundle", str(waves))
    found = of_the_command(tmp_path / "in", tmp_path / "out", *asked)
    found["data"]["name"] = spikes.results[0]["data"]["name"]  # the folder
    assert figures(spikes.results[0]) == figures(found) and found["anomalies"]["models"]["global"]["auroc"] is not None


def test_windows_have_errors_and_alarms(spikes: auscult.Results, tmp_path: Path) -> None:
    own = [one["anomalies"]["models"]["personalised"]["error"] for one in spikes.results]
    assert spikes.scores["personalised"]["error"] == pytest.approx(np.mean(own))
    assert 0 <= spikes.scores["global"]["auroc"] <= 1
    with pytest.raises(auscult.UsageError, match=r"run\.scores has their errors"):
        _ = spikes.accuracy
    assert "means over 3 devices" in repr(spikes) and "alarms a day" in repr(spikes)
    latex = spikes.latex()
    assert r"AUROC" in latex and r"\,\%" in latex and "personalised" in latex
    check_html(spikes._repr_html_())
    rows = device_rows("run", spikes.results)
    one = next(row for row in rows if row["model"] == "personalised" and row["device"] == "ann")
    assert one["error"] == spikes.results[0]["devices"][0]["anomalies"]["personalised"]["error"]
    assert {row["round"] for row in curve_rows("run", spikes.results) if row["model"] == "global"} == {0, 1, 2}
    kept = auscult.load(spikes.save(tmp_path / "kept"))
    assert kept.scores == spikes.scores
    check_html((tmp_path / "kept" / "report.html").read_text())
    assert "device ann" in repr(spikes.devices["ann"])
    assert spikes.devices["ann"].predict(X["ann"][:2])[0] is not None


def test_runs_of_windows_are_compared_device_by_device(spikes: auscult.Results, waves: Path) -> None:
    fleet = Fleet.from_arrays(with_spikes(), task="reconstruction", abnormal="spike")
    other = auscult.simulate(fleet, "ditto", model=waves, seeds=2, **QUICK)
    found = auscult.compare(spikes, other)
    d = found.differences["ditto"]["personalised"]
    own, first = (
        np.mean([[d["anomalies"]["personalised"]["error"] for d in one["devices"]] for one in run.results], axis=0)
        for run in (other, spikes)
    )
    assert d["mean"] == pytest.approx(np.mean(own - first)) and d["low"] <= d["mean"] <= d["high"] and d["devices"] == 3
    assert "against fedavg, paired over devices" in repr(found) and "error against fedavg" in found.latex()
    check_html(found._repr_html_())


def test_runs_of_steps_are_those_of_the_command(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="a network is compiled")
    bundle = steps.compile_steps(tmp_path / "steps.bundle")
    arrays = {name: steps.draw(40, k) for k, name in enumerate(("ann", "bob"))}
    fleet = Fleet.from_arrays(arrays, task="steps", labels=steps.TASK.names)
    run = auscult.simulate(fleet, "fedavg", model=bundle, **QUICK)
    told = ("--task", "steps", "--labels", "rest,walk,run", "--method", "fedavg", "--bundle", str(bundle))
    assert figures(run.results[0]) == figures(of_the_command(Path(fleet.data), tmp_path / "out", *told))
    assert run.scores["global"] == run.results[0]["macro_f1"]["global"] and "kappa" in repr(run)


def test_rows_of_steps_have_the_metrics_of_their_tables():
    metrics = {"macro_f1": 0.5, "steps_right": 0.7, "kappa": 0.2}
    rows = list(share_rows({"metrics": {"global": metrics}}))
    assert rows == [{"model": "global", **metrics}]


def test_values_at_steps_are_those_of_the_command(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="a network is compiled")
    bundle = step_values.compile_step_values(tmp_path / "curves.bundle")
    arrays = {name: step_values.draw(40, k) for k, name in enumerate(("ann", "bob"))}
    arrays["bob"][1][3:9, :, 2] = np.nan
    asked = {"predict": ["rate", "level"], "unit": ["bpm", ""], "range": [(40, 180), (0, 10)]}
    fleet = Fleet.from_arrays(arrays, task="step_values", **asked)  # type: ignore[arg-type]
    assert fleet.form().task == step_values.TASK
    run = auscult.simulate(fleet, "fedavg", model=bundle, **QUICK)
    told = ("--task", "step_values", "--predict", "rate,level", "--unit", "bpm,", "--method", "fedavg")
    told += ("--range", "40,180", "--range", "0,10")
    found = of_the_command(Path(fleet.data), tmp_path / "out", *told, "--bundle", str(bundle))
    assert figures(run.results[0]) == figures(found)
    assert run.scores["global"]["rate"] == found["values"]["models"]["global"]["rate"]["mae"]
    one = run.devices["ann"].predict(arrays["ann"][0][:1])[0]
    assert one.curve is not None and one.curve.shape == (2, 3) and "bpm" in repr(run)


CURVES_X, CURVES = step_values.draw(40)


@pytest.mark.parametrize(
    ("y", "more", "said"),
    [
        (CURVES, {}, "y is (40, 2, 3), expected (40, steps), numbers at each of 1 to 12 steps of a window"),
        (CURVES[:, 0], {"predict": ["a", "b"]}, "y is (40, 3), expected (40, 2, steps)"),
        (np.zeros((40, 13)), {}, "y is (40, 13), expected (40, steps)"),
        (np.full((40, 3), np.inf), {}, "y has infinite numbers; NaN says that nobody knows"),
        ([["a", "b"]] * 40, {}, "y is (40, 2), expected (40, steps)"),
        (CURVES[:9, 0], {}, "40 samples and 9 labels"),
        (CURVES[:, 0], {"labels": ["a"]}, "no option labels of task step_values; it is of task steps"),
        (CURVES[:, 0] * np.nan, {}, "no label has a step whose values are known"),
    ],
)
def test_arrays_that_are_no_values_of_steps_are_named(y: Any, more: dict[str, Any], said: str) -> None:
    with pytest.raises(auscult.UsageError, match=re.escape(said)):
        Fleet.from_arrays({"ann": (CURVES_X, y)}, task="step_values", **more).form()
