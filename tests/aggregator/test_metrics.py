"""The metrics of an aggregator: every event once, of each of the runs that its directory has seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the aggregator needs torch")

from aggregator.metrics import Metrics


def lines(path: Path) -> list[tuple[str, int]]:
    return [(line.get("run", ""), line["number"]) for line in map(json.loads, path.read_text().splitlines())]


def test_an_event_that_is_told_again_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for numbers in ((1, 2), (2, 3), (3,)):
        metrics = Metrics(path, "first")
        for number in numbers:
            metrics.add(number, {"kind": "round"})
    assert lines(path) == [("first", 1), ("first", 2), ("first", 3)]


def test_a_second_run_in_the_same_directory_is_written_too(tmp_path: Path) -> None:
    """Its events are numbered from 1 again; they were once taken for those of the first run, and left out."""
    path = tmp_path / "metrics.jsonl"
    for run in ("first", "second", "first"):
        metrics = Metrics(path, run)
        for number in (1, 2, 3):
            metrics.add(number, {"kind": "round"})
    assert lines(path) == [(run, number) for run in ("first", "second") for number in (1, 2, 3)]


def test_lines_of_an_older_version_are_those_of_the_run_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"number": 1}\n{"number": 2}\n{"numb')
    metrics = Metrics(path, "first")
    for number in (2, 3):
        metrics.add(number, {})
    assert lines(path) == [("", 1), ("", 2), ("first", 3)]
