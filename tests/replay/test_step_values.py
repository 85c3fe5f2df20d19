"""Replays of values at steps: what is asked for, neighbours, ready samples, a run with its tables, a simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.step_values import StepValues
from edge_sdk.model.tasks.task import Values
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.neighbours.output_models import look_for_output_models
from edge_sdk.replay.traces.heart import write_heart_traces
from tests.layers import check_refused, save_bundle
from tests.step_values import TASK, draw

ASKED = {"task": "step_values", "target": "heart_rate", "unit": "bpm", "window": 64}
SAID = ("--target", "heart_rate", "--window", "64", "--stride", "64")
PULSE = StepValues(("bpm",), (), (40.0,), (180.0,), 4)


@pytest.fixture(scope="module")
def heart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of generated traces, and in it a bundle for windows of 64 samples of 4 steps."""
    nn = pytest.importorskip("torch", reason="a bundle is compiled here").nn
    folder = tmp_path_factory.mktemp("heart") / "traces"
    write_heart_traces(folder, devices=3, minutes=2)
    save_bundle(folder / "flat.bundle", nn.Sequential(nn.AvgPool1d(16), nn.Conv1d(4, 1, 1)), "flat", (4, 64),
                "masked_squared_error", PULSE)  # fmt: skip
    return folder


# What is asked for ----------------------------------------------------------------------------------------------
def test_a_cohort_of_values_at_steps(heart: Path) -> None:
    found = form_cohort(str(heart), 2, 0, ASKED | {"range": ("40,180",)})
    assert found.task == StepValues(("bpm",), ("heart_rate",), (40.0,), (180.0,), 8), "an eighth of the samples"
    assert found.classes == ("heart_rate",) and found.shapes == {"x": (4, 64)}
    assert "heart_rate (bpm, 40 to 180) at each of 8 steps" in found.summary
    assert found.signal is not None and found.signal.channels == ("ppg", "ax", "ay", "az")
    plain = form_cohort(str(heart), 2, 0, {"target": "heart_rate"}).task
    assert isinstance(plain, Values) and not plain.steps


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--steps", "8"), "--steps 8: bundle flat predicts heart_rate (bpm, 40 to 180) at each of 4 steps"),
        (("--task", "value"), "values have --target"),
        (("--task", "steps"), "(values at each step are --task step_values)"),
        (("--unit", "Hz"), "--unit Hz: bundle flat predicts"),
        (("--labels", "a,b"), "--task step_values with --labels a,b: each step has numbers"),
        (("--labelled", "5"), "each step has the values of its column; leave --labelled and --ask out"),
        (("--steps", "65"), "steps = 65: a window of 64 samples has 1 to 64 steps"),
        (("--settle", "trees=9"), "task step_values: run.settle"),
        (("--bits", "4", "--secret"), "task step_values: secret sums have no place for errors"),
        (("--augment", "shift=0.1"), "a window that is moved in time has something else at its steps"),
        (("--method", "fedal", "--public", "32"), "task step_values: method fedal"),
    ],
)
def test_what_does_not_fit_is_said_before_a_process_starts(
    heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], words: str
) -> None:
    check_refused(heart, tmp_path / "out", (*SAID, *more), words, capsys)


def test_a_column_of_the_values_has_to_be_named(heart: Path) -> None:
    with pytest.raises(UsageError, match="say which columns have the values of steps, --target NAME"):
        form_cohort(str(heart), 1, 0, {"task": "step_values"})
    with pytest.raises(UsageError, match="samples of data sets have no steps"):
        form_cohort("breast-cancer", 1, 0, {"task": "step_values"})


def ready(folder: Path, labels: Any) -> Path:
    """Samples of two devices, with these labels."""
    folder.mkdir()
    for k in range(2):
        x = draw(len(labels), k)[0]
        np.savez(folder / f"d{k}.npz", x=x, labels=labels, held_out_x=x, held_out_labels=labels)
    return folder


def test_ready_samples_have_numbers_or_texts(tmp_path: Path) -> None:
    y = np.array([[60.0, 70.0, np.nan], [80.0, 61.0, 62.0]])
    one = form_cohort(str(ready(tmp_path / "a", y)), 1, 0, {"task": "step_values", "unit": "bpm"}).task
    assert one == StepValues(("bpm",), ("value",), (60.0,), (80.0,), 3)
    asked = {"task": "step_values", "target": "rate,level", "range": ("40,180", "0,9")}
    texts = np.array(["60 1||70 2", "|61 3|", ""])
    assert form_cohort(str(ready(tmp_path / "b", texts)), 1, 0, asked).task == StepValues(
        ("", ""), ("rate", "level"), (40.0, 0.0), (180.0, 9.0), 3
    )
    with pytest.raises(UsageError, match="a label of 3 steps of rate, level"):
        form_cohort(str(tmp_path / "b"), 1, 0, asked | {"steps": 2})
    with pytest.raises(UsageError, match=r"a label of 1\.5 steps of rate, level"):
        form_cohort(str(tmp_path / "a"), 1, 0, asked)
    with pytest.raises(UsageError, match="no label has a step whose values are known"):
        form_cohort(str(ready(tmp_path / "c", y * np.nan)), 1, 0, {"task": "step_values"})


# Neighbours -----------------------------------------------------------------------------------------------------
def test_the_neighbours_find_what_can_be_found() -> None:
    pytest.importorskip("sklearn", reason="neighbours are of scikit-learn")

    def part(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = draw(count, seed)
        y[np.random.default_rng([seed, 2]).random(count) < 0.3, :, 1] = np.nan
        return x, TASK.targets(y.reshape(count, -1), (), "a")

    parts = {name: (part(60, k), part(30, k + 9), part(60, k + 18)) for k, name in enumerate("ab")}
    written = [{"device": name, "sums": {}, "newcomer": False} for name in parts]
    told, rows = look_for_output_models(TASK, lambda n: parts[n], written, 40, 0, lambda text: None)  # type: ignore[arg-type, return-value]
    assert told["chosen"] == "linear" and {*told["kinds"]} == {"trees", "linear"}
    for name, found in rows.items():
        known = (parts[name][2][1] < 1e29).all(1).sum()
        for model in ("alone", "alone_linear", "pooled"):
            assert found[model]["samples"] == known
            errors = TASK.errors(found[model], float(known))
            assert errors["rate"].rmse < 6 < errors["rate"].rmse + 5 and errors["level"].rmse < 0.8


# A whole run ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("warm_nodes")
def test_a_replay_over_a_broker(heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    more = ("--hospitals", "1", "--method", "fedavg", "--rounds", "2", "--plain", "--no-local-only", "--no-neighbours")
    fixed = ("replay", str(heart), "--bundle", str(heart / "flat.bundle"), *SAID, *more, "--out", str(out))
    assert main([*fixed]) == 0, "the bundle says the task and its steps"
    told = capsys.readouterr().out
    assert "heart_rate (bpm, 40 to 180) at each of 4 steps: `global` and `personal` are mean absolute errors" in told
    result = json.loads((out / "result.json").read_text())
    assert result["values"]["task"]["steps"] == 4 and result["values"]["task"]["units"] == ["bpm"]
    found, mean = ([d["errors"][m]["heart_rate"] for d in result["devices"]] for m in ("global", "mean"))
    assert all(0 < e["mae"] <= e["rmse"] < 140 for e in (*found, *mean))
    final = next(line for line in result["curve"] if line.get("final"))
    assert final["sums"]["test_samples"] == 4 * sum(d["held_out"] for d in result["devices"]), "steps are counted"
    assert final["errors"]["test_global"]["heart_rate"] == pytest.approx(np.mean([e["mae"] for e in found]), rel=1e-4)
    assert "MAE" in (out / "report.html").read_text()
    assert main(["compare", str(out), str(out)]) == 0 and "heart_rate" in capsys.readouterr().out


def test_a_simulation_has_these_tables(heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--bundle", str(heart / "flat.bundle"), "--hospitals", "1", "--method", "fedavg", "--rounds", "2")
    asked = ("--predict", *SAID[1:])
    assert main(["simulate", str(heart), *asked, *more, "--no-neighbours", "--out", str(tmp_path / "out")]) == 0
    assert "heart_rate (bpm)" in capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["devices"][0]["errors"]["global"]["heart_rate"]["mae"] > 0 and result["values"]["task"]["steps"] == 4


# Tuning ---------------------------------------------------------------------------------------------------------
def test_tuning_finds_settings_by_the_error_at_steps(
    heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the column has gaps: their steps count for nobody."""
    pytest.importorskip("optuna", reason="the search needs optuna")
    folder = tmp_path / "gaps"
    folder.mkdir()
    for path in sorted(heart.glob("*.csv")):
        rows = path.read_text().splitlines()
        rows[400:900] = [row.rpartition(",")[0] + "," for row in rows[400:900]]
        (folder / path.name).write_text("\n".join(rows) + "\n")
    file, asked = tmp_path / "tuned.toml", ("--bundle", str(heart / "flat.bundle"), "--task", "step_values", *SAID)
    options = ("--method", "fedavg", "--rounds", "2", "--budget", "2", "--hospitals", "1", "-o", str(file))
    assert main(["tune", str(folder), *asked, *options, "--set", "batch=16"]) == 0
    said = capsys.readouterr()
    assert "fedavg: mean absolute error" in said.out and "bpm on validation (2 trials)" in said.out
    assert "the best trial's models are off by" in said.out
    assert "heart_rate has no number in 500 of" in said.out and "nan" not in said.out
    assert "[run.settings]" in file.read_text()
