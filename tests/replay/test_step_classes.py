"""Replays of steps: generated nights, what is asked for, neighbours, ready samples, a run with its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.samples import Samples
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.evaluation.reports import share_name
from edge_sdk.model.tasks.step_classes import StepClasses
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.labels.asked import asked_steps
from edge_sdk.replay.labels.scores import score_labels, summarise_labels
from edge_sdk.replay.labels.tables import label_table
from edge_sdk.replay.metrics.statistics import columns_with
from edge_sdk.replay.neighbours.output_models import look_for_output_models
from edge_sdk.replay.neighbours.step_models import step_features
from edge_sdk.replay.traces.sleep import STAGES, write_sleep_traces
from tests.layers import check_same_bytes
from tests.steps import TASK, draw

WINDOW = ("--task", "steps", "--label", "stage", "--window", "96", "--stride", "48", "--steps", "16")


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nights of three people."""
    folder = tmp_path_factory.mktemp("nights") / "traces"
    write_sleep_traces(folder, devices=3, minutes=700)
    return folder


# The generator --------------------------------------------------------------------------------------------------
def test_nights_are_as_their_stages_say(nights: Path) -> None:
    every = dict[str, list[np.ndarray]]()
    for file in sorted(nights.glob("*.csv")):
        trace = read_trace(file, label="stage")
        assert trace.channels == ("move", "heart") and {*trace.classes} == {*STAGES}
        assert (np.diff(trace.time) > 3600).sum() == 1, "two nights, and a day between"
        assert 0.01 < (trace.codes < 0).mean() < 0.07
        for code, name in enumerate(trace.classes):
            own = trace.values[trace.codes == code] - [0.0, np.median(trace.values[:, 1])]
            every.setdefault(name, []).append(own)
    move = {name: np.mean([own[:, 0].mean() for own in some]) for name, some in every.items()}
    heart = {name: np.mean([own[:, 1].mean() for own in some]) for name, some in every.items()}
    assert move["wake"] > 3 * move["light"] > 3 * move["deep"]
    assert heart["wake"] > heart["rem"] > heart["light"] > heart["deep"]


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    check_same_bytes(write_sleep_traces, tmp_path, "sleep-01.csv")


# What is asked for ----------------------------------------------------------------------------------------------
def test_classes_are_those_of_the_traces_or_those_that_are_named(nights: Path) -> None:
    found = form_cohort(str(nights), 2, 0, {"task": "steps", "label": "stage"})
    assert found.task == StepClasses(("deep", "light", "rem", "wake"), 8) and found.classes == found.task.names
    assert found.summary.endswith(", 0.2 Hz")
    assert found.signal is not None and found.signal.mean, "a network that is compiled is given standardised channels"
    named = form_cohort(str(nights), 2, 0, {"task": "steps", "label": "stage", "labels": ",".join(STAGES), "steps": 4})
    assert named.task == StepClasses(STAGES, 4)
    with pytest.raises(UsageError, match="the data have 'rem', which is none of these"):
        asked_steps("wake,light,deep", [*STAGES, ""], 4)
    with pytest.raises(UsageError, match="expected names of 2"):
        asked_steps("", ["wake", "", "Wake"], 4)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"steps": 4}, "--steps 4: it is of windows with a class or a value at each step: say --task steps"),
        ({"task": "steps", "target": "heart"}, "leave --target, --labelled and --ask out"),
        ({"task": "steps", "labelled": 5.0}, "leave --target, --labelled and --ask out"),
        ({"task": "steps", "steps": 65}, "steps = 65: a window of 64 samples has 1 to 64"),
        ({"task": "steps", "steps": 0}, "--steps 0: expected a number of steps, 1 or more"),
        ({"task": "steps", "abnormal": "wake"}, "--abnormal and --quantile are of anomalies"),
    ],
)
def test_what_does_not_go_together_is_said(nights: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        form_cohort(str(nights), 1, 0, {"label": "stage", **more})
    if more.get("task"):
        with pytest.raises(UsageError, match="samples of data sets have no steps"):
            form_cohort("breast-cancer", 1, 0, {"task": "steps"})


def ready(folder: Path, labels: list[str]) -> Path:
    """Samples of two devices, with these labels."""
    folder.mkdir()
    for k in range(2):
        x = draw(len(labels), k)[0]
        np.savez(folder / f"d{k}.npz", x=x, labels=np.array(labels), held_out_x=x, held_out_labels=np.array(labels))
    return folder


def test_ready_samples_have_texts(tmp_path: Path) -> None:
    folder = ready(tmp_path / "a", ["rest|walk|run", "", "|Walk|walk", "run||"])
    assert form_cohort(str(folder), 1, 0, {"task": "steps"}).task == StepClasses(("rest", "run", "walk"), 3)
    with pytest.raises(UsageError, match="a label of 3 steps, expected 4"):
        form_cohort(str(folder), 1, 0, {"task": "steps", "steps": 4})
    with pytest.raises(UsageError, match="a label of 3 steps, expected 2"):
        form_cohort(str(ready(tmp_path / "b", ["rest|walk", "a|b|c"])), 1, 0, {"task": "steps"})
    assert len(Samples(draw(1)[0], ("rest|walk|run",))) == 1


# Scores and neighbours ------------------------------------------------------------------------------------------
def test_a_result_has_kappa_and_counts_of_steps() -> None:
    written = []
    for k in range(2):
        codes = draw(50, k)[1]
        y = (np.arange(3)[:, None] == codes[:, None]).astype(np.float32)
        sums = TASK.judged(y, y + np.random.default_rng(k).normal(0, 1, y.shape))
        more = {"hospital": "h", "samples": 9, "held_out": 50, "classes": 3, "newcomer": False}
        written.append({"device": f"d{k}", "sums": {"test": {"global": sums}}, **more})
    devices = score_labels(written, TASK, {})
    found = {"devices": devices, **summarise_labels(devices, TASK)}
    metrics = devices[0]["metrics"]["global"]
    assert (
        [*columns_with(metrics).values()] == ["macro-F1", "steps right", "kappa"] == [*columns_with(metrics).values()]
    )
    assert metrics["kappa"] == pytest.approx((metrics["steps_right"] - 1 / 3) / (2 / 3), abs=0.05)
    table = label_table(found)
    assert "Cohen's kappa of all steps together: global 0." in table and table.count("steps") == 2
    assert sum(one["tp"] + one["fn"] for one in found["labels"]["models"]["global"].values()) == 300


def test_the_neighbours_find_what_can_be_found() -> None:
    pytest.importorskip("sklearn", reason="neighbours are of scikit-learn")

    def part(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        x, codes = draw(count, seed)
        y = (np.arange(3)[:, None] == codes[:, None]).astype(np.float32)
        y[np.random.default_rng([seed, 2]).random(count) < 0.3, :, 1] = 0  # nobody has said
        return x, y

    parts = {name: (part(40, k), part(30, k + 9), part(60, k + 18)) for k, name in enumerate("ab")}
    written = [{"device": name, "sums": {}, "newcomer": False} for name in parts]
    told, rows = look_for_output_models(TASK, lambda n: parts[n], written, 40, 0, lambda text: None)  # type: ignore[arg-type, return-value]
    assert told["state"] == "computed" and {*told["kinds"]} == {"trees", "linear"}
    for name, found in rows.items():
        known = parts[name][2][1].any(1).sum()
        for model in ("alone", "alone_linear", "alone_trees", "pooled"):
            assert found[model]["samples"] == known and TASK.badness(found[model]) < 0.15


def test_features_of_a_step_are_of_itself_and_of_what_lies_about_it() -> None:
    x = draw(5)[0]
    found = step_features(x, 3)
    assert found.shape[:2] == (5, 3) and np.isfinite(found).all()
    other = x.copy()
    other[..., 8:] += 1
    size = found.shape[2]
    changed = (np.abs(step_features(other, 3) - found) > 1e-9).any(0)
    own = next(n for n in range(1, size) if not changed[0, :n].any() and changed[2, :n].any())
    assert own and changed[1].any()


# A whole run ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("warm_nodes")
def test_a_replay_over_a_broker(nights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="a bundle is compiled here")
    out, bundle = tmp_path / "out", tmp_path / "stages.bundle"
    made = ("--input", "2,96", "--task", "steps", "--names", ",".join(STAGES), "--steps", "16", "--search", "0")
    signal = ("--rate", "0.2", "--stride", "48", "--channels", "move,heart", "--mean=1,58", "--scale=3,7")
    assert main(["bundle", "compile", "steps", *made, *signal, "-o", str(bundle)]) == 0
    more = ("--hospitals", "1", "--method", "fedavg", "--rounds", "2", "--plain", "--no-local-only", "--no-neighbours")
    fixed = ("replay", str(nights), "--bundle", str(bundle), "--label", "stage", "--window", "96", "--stride", "48")
    assert main([*fixed, *more, "--out", str(out)]) == 0, "the bundle says the task, its classes and its steps"
    told = capsys.readouterr().out
    assert "`global` and `personal` are macro-F1 of steps" in told and "Cohen's kappa of all steps together" in told
    result = json.loads((out / "result.json").read_text())
    assert result["classes"] == [*STAGES] and result["labels"]["task"]["steps"] == 16
    assert {*result["devices"][0]["labels"]} <= {*STAGES} and result["devices"][0]["classes"] == 4
    final = next(line for line in result["curve"] if line.get("final"))
    assert final["labels"]["test_personal"]["rem"] == result["labels"]["models"]["personalised"]["rem"], (
        "what the fleet adds up is what its devices have"
    )
    assert 0 < final["sums"]["test_global_loss"] / final["sums"]["test_samples"] < 5, "a mean over steps"
    written = (out / "aggregator" / "metrics.jsonl").read_text().splitlines()
    lines = [line for line in map(json.loads, written) if "sums" in line]
    assert {share_name(line) for line in lines} == {"steps right"}, "as the aggregator wrote them"
    page = (out / "report.html").read_text()
    assert "<h2>Classes of steps</h2>" in page and "kappa" in page
    assert main([*fixed, "--task", "steps", "--steps", "8", *more, "--out", str(tmp_path / "other")]) == 2
    assert "--steps 8: bundle steps predicts one class of 4 at each of 16 steps" in capsys.readouterr().err
    assert main(["compare", str(out), str(out)]) == 0
    assert "kappa" in capsys.readouterr().out


def test_a_simulation_has_these_tables(nights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="a bundle is compiled here")
    more = ("--hospitals", "1", "--method", "fedavg", "--rounds", "2", "--no-neighbours")
    assert main(["simulate", str(nights), *WINDOW, *more, "--out", str(tmp_path / "out")]) == 0
    assert "Cohen's kappa" in capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert {*result["devices"][0]["labels"]} <= {*STAGES} and result["devices"][0]["metrics"]["global"]["kappa"] <= 1
