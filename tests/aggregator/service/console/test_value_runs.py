"""Runs of models that predict values, in the console: errors in their units, wherever others have an accuracy."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.aggregator import errors_in_units
from aggregator.service.client.client import print_runs
from aggregator.service.console.run_charts import list_comparisons
from aggregator.service.models.registry import GLOBAL
from aggregator.service.runs.runs import Wanted, add_run, change_run
from edge_sdk.contract.run import Run
from edge_sdk.model.tasks.step_values import StepValues
from edge_sdk.model.tasks.task import Values
from tests.aggregator.service.conftest import CLASSES

RATE = Values(("bpm",), ("heart_rate",), (40.0,), (180.0,))
CURVE = StepValues(("bpm",), ("heart_rate",), (40.0,), (180.0,), 8)
PRESSURES = Values(("mmHg", "mmHg"), ("systolic", "diastolic"), (80.0, 40.0), (200.0, 120.0))
MAE = {"devices": 2.0, "loss": 1.0, "global_mae:0": 0.2, "personal_mae:0": 0.1}


def add(service: Any, name: str, task: Values, sums: dict[str, float]) -> str:
    """A run with three rounds behind it."""
    id = add_run(service.database, Wanted(method="ditto"), CLASSES, "test", name)
    told = errors_in_units(task, sums, Run(id="r", method="ditto"))
    lines = [
        {
            "kind": "round",
            "devices": 2,
            "sums": sums,
            "bytes_so_far": 0,
            "task": task.kind,
            "round": r + 1,
            "time": 5.0 * r,
        }
        | told
        for r in range(3)
    ]
    path = Path(service.file.directory) / "runs" / id / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return id


@pytest.fixture
def runs(service: Any) -> tuple[str, ...]:
    both = {**MAE, "global_mae:1": 0.05, "personal_mae:1": float("nan")}
    return add(service, "rate", RATE, MAE), add(service, "curve", CURVE, MAE), add(service, "bp", PRESSURES, both)


def test_every_place_has_the_errors_in_their_units(service: Any, browse: Any, runs: tuple[str, ...]) -> None:
    browser = browse("operator")
    for id in runs:
        change_run(service.database, id, "stop", "test")
    for address in ("/", "/runs", f"/compare?run={runs[0]}&run={runs[1]}", *(f"/runs/{id}" for id in runs[:2])):
        page = browser.get(address).text
        assert "7 bpm" in page and "3.5 bpm" in page and "mean absolute error" in page.lower(), address
    assert "6 mmHg, 1 mmHg" in browser.get("/runs").text and "3 mmHg, NaN mmHg" in browser.get("/runs").text
    run = browser.get(f"/runs/{runs[0]}").text
    assert "Errors are means over devices" in run and "ccurac" not in run
    assert '<td class="n">7</td>' in run, "the table of rounds"


def test_what_is_compared_is_errors(browse: Any, runs: tuple[str, ...]) -> None:
    page = browse("viewer").get(f"/compare?run={runs[0]}&run={runs[1]}&run={runs[2]}").text
    assert page.count("<figure") == 5 and "ccuracy" not in page
    assert "<h2>Mean absolute error of heart_rate in bpm, personalised" in page
    assert "<h2>Mean absolute error of diastolic in mmHg, global model" in page


def test_runs_of_classes_beside_them_keep_their_accuracies() -> None:
    told = errors_in_units(RATE, MAE, Run(id="r", method="ditto"))
    values = [{"kind": "round", "round": 1, "sums": MAE, **told}]
    shares = [{"kind": "round", "round": 1, "sums": {"devices": 2.0, "global_accuracy": 1.0, "personal_accuracy": 1.0}}]
    titles = [*list_comparisons({"a": values, "b": shares})]
    assert titles[:2] == [f"Mean absolute error of heart_rate in bpm, {m}" for m in ("global model", "personalised")]
    assert titles[2:] == ["Accuracy, personalised", "Accuracy, global model"]


def test_files_the_api_and_the_terminal_have_them(
    service: Any, browse: Any, runs: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    browser = browse("operator")
    (rounds, *_), both = (
        list(csv.DictReader(browser.get(f"/runs/{id}/rounds.csv").text.splitlines())) for id in (runs[0], runs[2])
    )
    assert (rounds["global_error"], rounds["personal_error"], rounds["units"]) == ("7", "3.5", "bpm")
    assert (both[0]["personal_error"], both[0]["units"]) == ("3 nan", "mmHg mmHg")
    assert ",7,3.5,bpm" in browser.get(f"/compare.csv?run={runs[0]}").text
    for id in runs:
        change_run(service.database, id, "stop", "test")
    lines = {row["id"]: row for row in csv.DictReader(browser.get("/runs.csv").text.splitlines())}
    assert lines[runs[0]]["global"] == "7.0" and lines[runs[0]]["score"] == "mean absolute error in bpm"
    told = [browser.get(f"/api/v1/runs/{id}").json() for id in runs]
    assert told[0]["errors"] == {"global": {"heart_rate": 7.0}, "personal": {"heart_rate": 3.5}}
    assert told[2]["errors"]["personal"] == {"systolic": 3.0, "diastolic": None} and told[2]["units"] == ["mmHg"] * 2
    print_runs(told[:1])
    assert capsys.readouterr().out.splitlines()[1].endswith("7 bpm   3.5 bpm mean absolute error in bpm")


def test_a_model_has_the_errors_of_its_run(service: Any, browse: Any, runs: tuple[str, ...]) -> None:
    lines = service.supervisor.lines_of(runs[0])
    lines.read_on()
    facts = {"method": "ditto", "rounds": 3, "hospitals": {}, "accuracy": {}, "score": lines.score, "loss": 1.0}
    path = Path(service.file.directory) / "model.npz"
    np.savez(path, theta=np.zeros(3))
    service.registry.add(GLOBAL, "a" * 64, runs[0], path, facts | lines.latest_errors(), bundle="b" * 64, run=runs[0])
    page = browse("viewer").get("/models").text
    assert "7 bpm" in page and "3.5 bpm" in page and "mean absolute error in bpm" in page
