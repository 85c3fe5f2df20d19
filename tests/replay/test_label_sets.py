"""Replays of sets of labels: traces, none and unlabelled, what is refused before a process starts, scores, a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.cut import Cut
from edge_sdk.data.cutting import cut_samples
from edge_sdk.data.data_table import cut_unlabelled
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.several_labels import SeveralLabels
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.comparison import FinishedRun, check_alike
from edge_sdk.replay.labels.asked import asked_labels
from edge_sdk.replay.labels.scores import metrics_of, score_labels, summarise_labels, with_macro_f1
from edge_sdk.replay.labels.tables import label_table
from edge_sdk.replay.metrics.statistics import score_in, shares_in
from edge_sdk.replay.neighbours.output_models import look_for_output_models
from edge_sdk.replay.traces.rhythms import RATE, write_rhythm_traces
from tests.label_sets import FINDINGS, draw, write_cells
from tests.layers import check_refused, check_same_bytes, write_with_bundle

pytest.importorskip("torch", reason="a bundle is compiled here")


@pytest.fixture(scope="module")
def rhythms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of generated traces, and in it a bundle for windows of 128 samples."""
    folder = tmp_path_factory.mktemp("rhythms") / "traces"
    return write_with_bundle(folder, write_rhythm_traces, 4, (1, 128), "binary_cross_entropy", FINDINGS)


# The generator --------------------------------------------------------------------------------------------------
def test_beats_are_irregular_where_the_column_says_af_and_noise_is_where_it_says_noise(tmp_path: Path) -> None:
    write_rhythm_traces(tmp_path, devices=8, minutes=6)
    spread: dict[str, list[float]] = {"none": [], "af": [], "noise": []}
    rough: dict[str, list[float]] = {"none": [], "af": [], "noise": []}
    for file in sorted(tmp_path.glob("*.csv")):
        trace = read_trace(file)
        assert trace.channels == ("ecg",) and trace.rate_hz == pytest.approx(RATE, rel=1e-3)
        runs = np.flatnonzero(np.diff(trace.codes)) + 1
        for part in np.split(np.arange(len(trace.codes)), runs):
            name = trace.classes[trace.codes[part[0]]] if trace.codes[part[0]] >= 0 else ""
            if name in spread and len(part) > 15 * RATE:
                x = trace.values[part, 0].astype(float)
                rough[name].append(float(np.median(np.abs(np.diff(x)))))
                top = (x[1:-1] > x[:-2]) & (x[1:-1] >= x[2:]) & (x[1:-1] > 0.55 * np.quantile(x, 0.995))
                beats = np.flatnonzero(top)
                steps = np.diff(beats[np.concatenate([[True], np.diff(beats) > 0.25 * RATE])])
                spread[name].append(float(steps.std() / steps.mean()))
    assert min(map(len, spread.values())) >= 3
    assert np.median(spread["af"]) > 0.15 > 0.1 > np.median(spread["none"]), "intervals from beat to beat"
    assert np.median(rough["noise"]) > 3 * np.median(rough["none"])


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    check_same_bytes(write_rhythm_traces, tmp_path, "rhythm-01.csv")


# What is in the data --------------------------------------------------------------------------------------------
def test_none_is_a_set_and_an_empty_cell_is_no_label(tmp_path: Path) -> None:
    file = write_cells(tmp_path / "a.csv", ["af|pvc", "none", "", "af", "none", "pvc | AF", "", "af"])
    data = Cut(trace=file, label="labels", window=10, stride=10, separator="|")
    found, loose = cut_samples(data), cut_unlabelled(data)
    labels = [*found.train.labels, *found.held_out.labels]
    assert len(loose) == 10 and len(labels) == 30 and labels.count("none") == 10
    y = FINDINGS.targets(labels, (), "a")
    assert y.sum(0).tolist() == [20, 10, 0]
    with pytest.raises(UsageError, match="no label may have a '\\+'"):
        cut_samples(Cut(trace=write_cells(tmp_path / "b.csv", ["af+pvc"]), label="labels", separator="|"))
    with pytest.raises(UsageError, match="separator = 'x'"):
        Cut(trace=file, separator="x")


def test_a_cohort_of_labels(rhythms: Path) -> None:
    found = form_cohort(str(rhythms), 2, 0, {"labels": "all"})
    assert found.classes == ("af", "noise", "pvc") and "several labels (af, noise, pvc)" in found.summary
    named = form_cohort(str(rhythms), 2, 0, {"labels": "af,pvc,noise"})
    assert named.task == FINDINGS and named.classes == FINDINGS.names
    assert form_cohort(str(rhythms), 2, 0, {}).task is None, "nobody has asked for sets"
    assert asked_labels("af,flutter", ["none", "af"]) == SeveralLabels(("af", "flutter")), "a label nobody has"
    with pytest.raises(UsageError, match="'af\\+' in the label column is no set"):
        asked_labels("af", ["af+"])
    with pytest.raises(UsageError, match="the data have 'walk', which is no set of these; expected '\\+' between"):
        asked_labels("af,pvc", ["af", "walk"])
    with pytest.raises(UsageError, match="no label occurs in the data"):
        asked_labels("all", ["none"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--labels", "af,pvc"), "--labels af,pvc: the data have"),
        (("--labels", "pvc,af,noise"), "--labels pvc,af,noise: bundle flat predicts several labels (af, pvc, noise)"),
        (("--labels", "none,af"), "is no label"),
        (("--target", "ecg"), "no channel beside ecg"),
        (("--labelled", "5", "--ask", "2"), "--ask with --labels af,pvc,noise: questions are for the names of classes"),
        (
            ("--settle", "trees=9"),
            "task labels: run.settle: forests tell classes apart",
        ),
        (("--method", "fedal", "--public", "32"), "task labels: method fedal"),
        (("--labels", "af", "--target", "ecg"), "--target ecg with --labels af"),
    ],
)
def test_what_does_not_fit_is_said_before_a_process_starts(
    rhythms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], words: str
) -> None:
    check_refused(rhythms, tmp_path / "out", ("--window", "128", *more), words, capsys)


# Scores ---------------------------------------------------------------------------------------------------------
def sums_of(seed: int, count: int = 60, wrong: float = 1.0) -> dict[str, float]:
    x, there = draw(count, seed)
    z = x + np.random.default_rng(seed + 999).normal(0, wrong, x.shape)
    return {"samples": float(count), **FINDINGS.judged(there.astype(np.float32), z)}


def result_of() -> dict[str, Any]:
    written = []
    for k, name in enumerate("abcd"):
        test = {
            "mean": sums_of(k, wrong=99),
            "local": sums_of(k, wrong=2),
            "global": sums_of(k),
            "personal": sums_of(k, wrong=0.1),
        }
        more = {"hospital": "h", "samples": 5, "held_out": 60, "classes": 4, "newcomer": name == "d"}
        written.append({"device": name, "sums": {"test": test, "validation": {"personal": sums_of(k + 9)}}, **more})
    rows = {d["device"]: {"alone": d["sums"]["test"]["local"]} for d in written}
    devices = score_labels(written, FINDINGS, rows)
    return {"devices": devices, **summarise_labels(devices, FINDINGS)}


def test_devices_weigh_the_same_and_labels_are_of_all_windows_together() -> None:
    found = result_of()
    assert score_in(found) == "macro_f1" and shares_in(found)["personalised"] > shares_in(found)["global"]
    assert {*found["macro_f1"]} == {"majority", "local", "global", "personalised", "alone"}
    own = [d["macro_f1"]["global"] for d in found["devices"] if not d["newcomer"]]
    assert found["macro_f1"]["global"] == pytest.approx(np.mean(own))
    af = found["labels"]["models"]["global"]["af"]
    assert af["tp"] + af["fp"] + af["fn"] + af["tn"] == 180, "newcomers are not in it"
    assert found["labels"]["macro_f1"]["global"] == pytest.approx(
        np.mean([one["f1"] for one in found["labels"]["models"]["global"].values()])
    )
    table = label_table(found)
    assert "AUROC" in table and table.count("noise") == 4 and "+-" in table


def test_thresholds_of_the_validation_part_have_a_column_of_their_own() -> None:
    low = {"samples": 200.0, **FINDINGS.judged(*(lambda x, y: (y.astype(np.float32), x - 2))(*draw(200, 1)))}
    usual, chosen = metrics_of(low, None, FINDINGS), metrics_of(low, low, FINDINGS)
    assert usual["chosen_f1"] == usual["macro_f1"] == chosen["macro_f1"] < 0.3 < 0.8 < chosen["chosen_f1"]


def test_models_that_chose_no_thresholds_have_no_such_column() -> None:
    metrics = result_of()["devices"][0]["metrics"]
    assert "chosen_f1" not in metrics["alone"] and "chosen_f1" in metrics["personalised"]


def test_lines_of_metrics_get_macro_f1() -> None:
    line = {"kind": "round", "round": 1, "sums": {"devices": 2.0, "global_f1": 1.5, "global_accuracy": 1.0}}
    assert with_macro_f1(line, FINDINGS)["macro_f1"] == {"global": 0.75} and with_macro_f1(line, None) is line
    nothing = {"sums": {}, "labels": {"global": {"af": {"f1": None}}}}
    assert with_macro_f1(nothing, FINDINGS)["macro_f1"] == {"global": 1.0}, "nothing was there, and nothing predicted"
    masked = {"sums": {"devices": 2.0}, **FINDINGS.fleet_scores({f"global_{n}": v for n, v in sums_of(1).items()})}
    assert 0.5 < with_macro_f1(masked, FINDINGS)["macro_f1"]["global"] < 1


def test_runs_of_other_scores_are_not_compared() -> None:
    runs = [FinishedRun(name, [{"score": score}]) for name, score in (("a", "accuracy"), ("b", "macro_f1"))]
    with pytest.raises(UsageError, match="b is judged by macro-F1, a by accuracy"):
        check_alike(runs)


def test_the_neighbours_find_what_can_be_found() -> None:
    pytest.importorskip("sklearn", reason="neighbours are of scikit-learn")
    parts = {
        name: tuple((x, y.astype(np.float32)) for x, y in (draw(80, k), draw(40, k + 9), draw(400, k + 18)))
        for k, name in enumerate("abc")
    }
    parts["a"][0][1][:, 2] = 0  # a device on which a label never occurs
    written = [{"device": name, "sums": {}, "newcomer": False} for name in parts]
    told, rows = look_for_output_models(FINDINGS, lambda n: parts[n], written, 40, 0, lambda text: None)  # type: ignore[arg-type, return-value]
    assert told["chosen"] == "linear" and told["samples"] == 120
    for name, found in rows.items():
        for model in ("alone", "alone_linear", "pooled"):
            f1 = [one["f1"] for one in FINDINGS.by_label(found[model]).values()]
            assert min(f1[:2]) > 0.8 and (f1[2] > 0.6 or (name == "a" and model != "pooled"))


# A whole run ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("warm_nodes")
def test_a_replay_over_a_broker(rhythms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    fixed = ("replay", str(rhythms), "--bundle", str(rhythms / "flat.bundle"), "--window", "128", "--stride", "64")
    more = ("--hospitals", "1", "--method", "ditto", "--rounds", "2", "--plain", "--no-local-only", "--out", str(out))
    assert main([*fixed, *more]) == 0
    told = capsys.readouterr().out
    assert "`global` and `personal` are macro-F1" in told and "macro-F1, test samples" in told
    result = json.loads((out / "result.json").read_text())
    assert result["score"] == "macro_f1" and result["classes"] == ["af", "pvc", "noise"]
    assert {"global", "personalised", "alone", "pooled", "majority"} <= {*result["macro_f1"]}
    held_out = sum(d["held_out"] for d in result["devices"])
    for scores in result["labels"]["models"]["personalised"].values():
        assert scores["tp"] + scores["fp"] + scores["fn"] + scores["tn"] == held_out
    final = next(line for line in result["curve"] if line.get("final"))
    assert final["labels"]["test_personal"]["af"] == result["labels"]["models"]["personalised"]["af"], (
        "what the fleet adds up is what its devices have"
    )
    page = (out / "report.html").read_text()
    assert "<h2>Labels</h2>" in page and "Macro-F1 per device" in page and "Macro-F1 on validation samples" in page
    assert main(["compare", str(out), str(out), "--report", str(tmp_path / "compare.html")]) == 0
    assert "macro-F1" in capsys.readouterr().out and "macro-F1 in rounds" in (tmp_path / "compare.html").read_text()
