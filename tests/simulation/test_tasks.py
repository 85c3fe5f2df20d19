"""Simulations of models that predict values or sets of labels: against replays, with many clients, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from edge_sdk import cli
from edge_sdk.data.samples import Samples, store_samples
from edge_sdk.nodes.models import kept_models
from edge_sdk.replay.traces.heart import write_heart_traces
from edge_sdk.replay.traces.rhythms import write_rhythm_traces
from edge_sdk.replay.traces.synth import write_traces
from edge_sdk.replay.tuning.alone import look_on_validation, verdict_line
from edge_sdk.replay.tuning.memory import play as play_in_memory
from edge_sdk.replay.tuning.memory import prepare as prepare_in_memory
from edge_sdk.replay.tuning.scores import in_words, name_of
from edge_sdk.replay.tuning.study import Trial
from edge_sdk.replay.tuning.tune import Found, Search
from tests.label_sets import FINDINGS, compile_findings, samples
from tests.layers import write_with_bundle
from tests.reconstructions import compile_waves
from tests.reconstructions import samples as waves
from tests.simulation.jobs import job_of, no_kernels, play
from tests.system.test_replay_of_data import auscult
from tests.values import RATE, compile_linear, draw

WHOLE = ("--hospitals", "2", "--method", "fedavg", "--rounds", "3", "--seed", "5", "--plain")
RUN = (*WHOLE, "--no-neighbours")
DEVICES = 3


def rates(count: int, seed: int) -> Samples:
    x, y = draw(count, seed)
    return Samples(x, tuple(y.tolist()))


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of samples that are ready, "value", "labels" and "windows", and beside each a bundle for it."""
    folder = tmp_path_factory.mktemp("ready")
    for name, make in (("value", rates), ("labels", samples)):
        for k in range(DEVICES):
            store_samples(folder / name / f"d{k}.npz", make(60, k), make(30, k + 20), make(20, k + 40))
    compile_linear(folder / "value.bundle")
    compile_findings(folder / "labels.bundle")
    for k in range(DEVICES):
        parts = waves(60, 4, k), waves(30, 6, k + 20), waves(20, 2, k + 40)
        store_samples(folder / "windows" / f"d{k}.npz", *parts)
    compile_waves(folder / "windows.bundle")
    return folder


ASKED = {"windows": ("--abnormal", "spike")}
OPTIONS = {"windows": {"abnormal": "spike"}}
KEYS = {"value": "values", "labels": "labels", "windows": "anomalies"}


def simulated(data: Path, out: Path, *more: str, run: tuple[str, ...] = RUN) -> dict:
    assert cli.main(["simulate", str(data), *run, "--out", str(out), *more]) == 0
    return json.loads((out / "result.json").read_text())


def scores_of(result: dict) -> dict:
    """All that a result says of scores: what devices' models reach, means over devices, and curves."""
    kept = ["hospital", "held_out", "metrics", "macro_f1", "errors", "by_label", "accuracy", "anomalies"]
    if "anomalies" not in result:  # there a simulation counts the windows that are trained on, a device all that it has
        kept += ["samples", "validation", "classes", "labels"]
    devices = [{key: d.get(key) for key in ("device", *kept)} for d in result["devices"]]
    lines = [
        {key: line.get(key) for key in ("kind", "sums", "errors", "macro_f1", "labels")} for line in result["curve"]
    ]
    whole = {
        key: result.get(key)
        for key in ("values", "labels", "anomalies", "macro_f1", "score", "auc", "statistics", "classes")
    }
    return {**whole, "devices": devices, "curve": lines}


@pytest.mark.parametrize("task", ["value", "labels", "windows"])
def test_devices_of_a_replay_reach_what_they_reach_there(ready: Path, tmp_path: Path, task: str) -> None:
    """The replay has processes and a broker (`tests/simulation/test_job.py` has the same of classes, in memory). Of
    values also what devices reach alone, by their network and by the strongest neighbour, is the same."""
    pytest.importorskip("sklearn", reason="neighbours are of scikit-learn")
    asked, whole = ("--bundle", str(ready / f"{task}.bundle"), *ASKED.get(task, ())), task != "labels"
    run = WHOLE if whole else RUN
    found = simulated(ready / task, tmp_path / "simulated", *asked, run=run)
    alone = () if whole else ("--no-local-only",)
    auscult("replay", ready / task, *run, *asked, *alone, "--out", tmp_path / "replayed")
    expected = json.loads((tmp_path / "replayed" / "result.json").read_text())
    assert scores_of(found) == scores_of(expected)
    models = {*found[KEYS[task]]["models"]}
    assert {"global", "personalised"} <= models and ({"local", "alone", "pooled"} <= models) == whole
    assert (tmp_path / "simulated" / "report.html").read_text().count("<svg") >= 3


def test_devices_that_settle_on_values_reach_what_they_reach_in_a_replay(ready: Path, tmp_path: Path) -> None:
    phase = ("--settle", "steps=[0,40]", "--settle", "local_steps=[60]", "--settle", "local_weights=[0.5]")
    more = ("--bundle", str(ready / "value.bundle"), *phase)
    found = simulated(ready / "value", tmp_path / "simulated", *more)
    auscult("replay", ready / "value", *RUN, *more, "--no-local-only", "--out", tmp_path / "replayed")
    expected = json.loads((tmp_path / "replayed" / "result.json").read_text())
    assert scores_of(found) == scores_of(expected) and found["chosen"] == expected["chosen"]
    assert found["chosen"]["weight"] == 0.5 and 0 < found["chosen"]["correct"] < found["chosen"]["samples"]
    assert "of the range on validation samples" in (tmp_path / "simulated" / "report.html").read_text()


@pytest.mark.parametrize("task", ["value", "labels", "windows"])
def test_what_the_tuner_plays_is_what_is_simulated(ready: Path, tmp_path: Path, task: str) -> None:
    """Judged by minus the error in halves of the range, or by macro-F1; neighbours by the same."""
    more = {
        "data": str(ready / task),
        "method": "fedavg",
        "options": OPTIONS.get(task, {}),
        "bundle": (ready / f"{task}.bundle",),
    }
    found = play(job_of(tmp_path / "a", **more, rounds=2))
    line = next(line for line in reversed(found["curve"]) if line.get("final"))
    fleet = prepare_in_memory(job_of(tmp_path / "b", **more, rounds=2).replay, no_kernels, print)
    judged = play_in_memory(fleet, {})
    name, told = name_of(fleet.task), in_words(fleet.task, judged.accuracy)
    if task == "value":
        error = line["errors"]["global"]["value"]
        assert judged.accuracy == pytest.approx(-error / 70) and (name, told) == (
            "mean absolute error",
            f"{error:.4g} bpm",
        )
    elif task == "windows":
        assert judged.accuracy == pytest.approx(-line["errors"]["global"]["window"]) and name == "mean squared error"
        assert float(told) == pytest.approx(-judged.accuracy, rel=1e-3)
    else:
        assert judged.accuracy == pytest.approx(line["macro_f1"]["global"]) and name == "macro-F1" and "%" in told
    pytest.importorskip("sklearn", reason="neighbours are of scikit-learn")
    seen = look_on_validation(fleet, 40, 0, print)
    assert {*seen["rows"]["alone"]} == {"d0", "d1", "d2"} and seen["told"]["state"] == "computed"
    search = Search(job=job_of(tmp_path / "c", **more).replay, file=tmp_path / "found.toml")
    best = Trial(
        1, {}, judged.accuracy, devices=dict.fromkeys(("d0", "d1", "d2"), judged.accuracy), score=name, shown=told
    )
    said = verdict_line(Found(search=search, best=best, trials=[best]), seen)
    assert {"value": "bpm", "labels": "macro-F1", "windows": "pca alone"}[
        task
    ] in said and "on the validation samples" in said


def test_clients_that_are_bootstrapped_predict_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten clients of three recorded persons; a model that is kept knows how far it is off."""
    folder = write_with_bundle(tmp_path / "heart", write_heart_traces, 2, (4, 64), "huber", RATE)
    more = ("--predict", "heart_rate", "--unit", "bpm", "--window", "64", "--clients", "10", "--cohort", "4")
    found = simulated(folder, tmp_path / "out", *more, "--bundle", str(folder / "flat.bundle"), "--keep-models")
    text = capsys.readouterr().out
    assert "mean absolute error of heart_rate in bpm, test samples" in text and "heart_rate (bpm), 10 devices" in text
    assert len(found["devices"]) == 10 and found["values"]["models"]["global"]["heart_rate"]["mae"] > 0
    first, again = found["devices"][0], found["devices"][DEVICES]
    assert first["held_out"] == again["held_out"] and first["errors"]["global"] == again["errors"]["global"]
    assert first["errors"]["personalised"] != again["errors"]["personalised"], "each trains on a resample of its own"
    kept = kept_models.load(tmp_path / "out" / "models" / "c0.npz")
    assert kept.classes == ("heart_rate",) and kept.scores["personal_squared:0"] > 0


def test_clients_that_are_bootstrapped_keep_their_mix_of_sets(tmp_path: Path) -> None:
    folder = write_with_bundle(tmp_path / "rhythms", write_rhythm_traces, 4, (1, 128), "binary_cross_entropy", FINDINGS)
    more = ("--window", "128", "--clients", "7", "--cohort", "3", "--target", "0.01,1")
    found = simulated(folder, tmp_path / "out", *more, "--bundle", str(folder / "flat.bundle"))
    devices = found["devices"]
    assert devices[0]["labels"] == devices[DEVICES]["labels"] and devices[0]["classes"] == len(devices[0]["labels"])
    assert {*devices[0]["labels"]} <= {"none", "af", "pvc", "noise", "af+pvc", "af+noise", "pvc+noise", "af+pvc+noise"}
    best = max(f1 for line in found["curve"] for f1 in line.get("macro_f1", {}).values())
    reached = {one["target"] for one in found["simulation"]["reached"]}
    assert reached == {target for target in (0.01, 1.0) if best >= target} and 0.01 in reached


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--target", "rate"), "--target rate: expected shares between 0 and 1"),
        (("--predict", "rate,level"), "--predict rate,level: task value: 1 lower"),
        (("--predict", "rate", "--unit", "Hz"), "--unit Hz: bundle linear predicts"),
        (("--target", "0.5"), "--target 0.5: shares of right samples"),
        (("--settle", "trees=9"), "task value: run.settle: forests tell classes apart"),
        (("--method", "fedal"), "task value: method fedal compares or divides outputs of classifiers"),
        (("--clients", "9"), "--clients: "),
    ],
)
def test_what_needs_classes_is_refused_before_anything_is_trained(
    ready: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], words: str
) -> None:
    data = ready / "value"
    if "fedal" in more:  # which has inputs that all know
        np.savez(data / "public.npz", x=draw(40)[0])
    given = [str(data), *RUN, "--bundle", str(ready / "value.bundle"), "--out", str(tmp_path / "out"), *more]
    assert cli.main(["simulate", *given]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
    (data / "public.npz").unlink(missing_ok=True)


def test_clients_in_any_number_have_labels(ready: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_traces(tmp_path / "traces", devices=2, seed=1, minutes=1)
    more = ("--task", "reconstruction", "--clients", "4", "--bundle", "autoencoder", "--method", "fedavg")
    assert cli.main(["simulate", str(tmp_path / "traces"), *more, "--out", str(tmp_path / "out")]) == 2
    assert "--clients: task reconstruction is for the devices of a folder" in capsys.readouterr().err
