"""Runs of models that predict sets of labels, or classes of steps, in the console: what is shown is called exact match,
steps right, or macro-F1."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from aggregator.aggregator import describe_figures
from aggregator.service.api.prometheus import list_of_runs
from aggregator.service.client.client import print_runs
from aggregator.service.client.run_export import list_points
from aggregator.service.console import run_charts
from aggregator.service.runs.runs import Wanted, add_run, change_run
from edge_sdk.methods.shared.evaluation import reports
from edge_sdk.model.tasks.task_protocol import LABELS, STEPS
from edge_sdk.replay.labels.scores import with_macro_f1
from edge_sdk.replay.reports.scalars import line_scalars
from tests.aggregator.service.conftest import CLASSES
from tests.steps import TASK

SUMS = {"loss": 1.0, "devices": 2.0, "global_accuracy": 1.0, "personal_accuracy": 1.5}
F1 = {"global_f1": 1.2, "global_f1_squared": 0.8, "personal_f1": 1.7, "personal_f1_squared": 1.5}


def lines_of(sums: dict[str, float], **more: str) -> list[dict[str, Any]]:
    common = {"kind": "round", "devices": 2, "sums": sums, "bytes_so_far": 0, **more}
    return [{**common, "round": r + 1, "time": 5.0 * r} for r in range(3)]


def fill_labels(service: Any) -> tuple[str, ...]:
    """Makes a run of sets of labels as earlier versions wrote them, one of classes, and one of classes of steps, each
    with rounds behind it."""
    found = []
    for name, sums, more in (
        ("labels-run", {**SUMS, **F1}, {}),
        ("classes-run", SUMS, {}),
        ("steps-run", {**SUMS, **F1}, {"task": STEPS}),
    ):
        id = add_run(service.database, Wanted(method="ditto"), CLASSES, "test", name)
        path = Path(service.file.directory) / "runs" / id / "metrics.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines_of(sums, **more)))
        found.append(id)
    return tuple(found)


@pytest.fixture
def runs(service: Any) -> tuple[str, ...]:
    return fill_labels(service)


def test_a_run_of_labels_says_exact_match_and_macro_f1(browse: Any, runs: tuple[str, ...]) -> None:
    browser = browse("viewer")
    labels, classes, _ = (browser.get(f"/runs/{id}").text for id in runs)
    assert "personalised, exact match" in labels and "Exact match on held-out samples" in labels
    assert "Macro-F1 on held-out samples" in labels and "Accurac" not in labels and "accuracy" not in labels
    for first, second in (
        ("personalised, macro-F1", "personalised, exact match"),
        ("Macro-F1 on h", "Exact match on h"),
    ):
        assert labels.index(first) < labels.index(second), "first what a replay compares models by"
    assert "Accuracy on held-out samples" in classes and "xact match" not in classes and "acro-F1" not in classes


def test_a_run_of_steps_says_steps_right_and_macro_f1(browse: Any, service: Any, runs: tuple[str, ...]) -> None:
    browser = browse("operator")
    page = browser.get(f"/runs/{runs[2]}").text
    assert "personalised, steps right" in page and "Steps right on held-out samples" in page
    assert "steps right the share of steps whose class is told" in page and "xact match" not in page
    assert "Macro-F1 on held-out samples" in page and "ccuracy" not in page
    change_run(service.database, runs[2], "stop", "test")
    for address in (f"/compare?run={runs[2]}", "/runs", "/runs.csv", "/"):
        assert "teps right" in browser.get(address).text, address
    assert browser.get(f"/api/v1/runs/{runs[2]}").json()["score"] == "steps right"
    names = {name for name, labels, _ in list_of_runs(service) if labels.get("run") == runs[2]}
    assert "run_steps_right" in names and not {"run_exact_match", "run_accuracy"} & names


def test_lines_say_what_their_shares_are() -> None:
    """The aggregator writes the task of its bundle beside the sums, which are named alike for sets and steps."""
    both = {**SUMS, **F1}
    for sums, more, wanted in (
        (SUMS, {}, "accuracy"),
        (both, {}, "exact match"),
        (both, {"task": LABELS}, "exact match"),
        (SUMS, {"task": LABELS}, "exact match"),  # of secret sums, in which no device tells its macro-F1
        (both, {"task": STEPS}, "steps right"),
        (SUMS, {"task": "of another package"}, "accuracy"),
    ):
        line, *_ = lines_of(sums, **more)
        assert reports.share_name(line) == wanted
        assert f"{wanted.replace(' ', '_')}.global" in describe_figures(line)
    line = with_macro_f1(lines_of(both)[0], TASK)
    assert {"steps right in rounds/global", "macro-F1 in rounds/global"} <= {*dict(line_scalars(line))}


def test_tables_of_runs_say_it_for_each(browse: Any, service: Any, runs: tuple[str, ...]) -> None:
    browser = browse("operator")
    both = browser.get(f"/compare?run={runs[0]}&run={runs[1]}").text
    assert "<h2>Accuracy or exact match, personalised" in both
    assert '<td data-name="Score">exact match</td>' in both and '<td data-name="Score">accuracy</td>' in both
    assert "<h2>Macro-F1, personalised" in both and both.count("<figure") == 4
    assert browser.get(f"/compare?run={runs[1]}").text.count("<figure") == 2
    one = browser.get(f"/compare?run={runs[0]}").text
    assert one.index("<h2>Macro-F1, personalised") < one.index("<h2>Exact match, personalised")
    assert "<h2>Exact match, personalised" in one and "ccuracy" not in one
    tables = [list(csv.DictReader(browser.get(f"/runs/{id}/rounds.csv").text.splitlines())) for id in runs[:2]]
    assert [rows[0]["score"] for rows in tables] == ["exact match", "accuracy"]
    assert [rows[0]["personal_macro_f1"] for rows in tables] == ["0.85", ""]
    assert ",exact match,0.6,0.85" in browser.get(f"/compare.csv?run={runs[0]}").text
    for id in runs:
        change_run(service.database, id, "stop", "test")
    for page in ("/runs", "/runs.csv", "/"):
        assert "exact match" in browser.get(page).text, page
    lines = lines_of({**SUMS, **F1})
    assert run_charts.draw_score(lines) == run_charts.draw_macro_f1(lines) != run_charts.draw_accuracy(lines)
    assert browser.get(f"/api/v1/runs/{runs[0]}").json()["score"] == "exact match"


def test_what_leaves_the_service_says_it(service: Any, browse: Any, runs: tuple[str, ...], capsys: Any) -> None:
    browser = browse("viewer")
    found = [browser.get(f"/api/v1/runs/{id}").json() for id in runs[:2]]
    print_runs(found)
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.endswith("75.0 % exact match") and second.endswith("75.0 %")
    tags = [{tag for tag, *_ in list_points({"started": 1.0, **run})} for run in found]
    assert "exact match/global" in tags[0] and "accuracy/global" in tags[1] and "accuracy/global" not in tags[0]
    (line, *_), (plain, *_) = lines_of({**SUMS, **F1}), lines_of(SUMS)
    assert "exact match in rounds/global" in dict(line_scalars(line))
    assert "accuracy in rounds/global" in dict(line_scalars(plain))
    assert {"exact_match.global", "macro_f1.global"} <= {
        *describe_figures(line)
    } and "accuracy.global" in describe_figures(plain)
    assert "accuracy.global" not in describe_figures(line)
    names = {name for name, labels, _ in list_of_runs(service) if labels.get("run") == runs[0]}
    assert "run_accuracy" not in names
