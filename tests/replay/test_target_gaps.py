"""Recordings with gaps in what is to be predicted: imported, looked at, and formed into a cohort."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.traces.read import read_stated, stated
from edge_sdk.errors import UsageError
from edge_sdk.replay.cohorts.traces import Cutting, cohort_of_traces

ROWS = 600


def write(path: Path, gap: range) -> None:
    wave = np.sin(np.arange(ROWS) / 3)
    rows = [f"{i / 10},{wave[i]:.3f},{'' if i in gap else 60 + i / 100}" for i in range(ROWS)]
    path.write_text("time,ppg,rate\n" + "\n".join(rows) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three devices: one whole, one with a gap, one of which nobody knows anything."""
    made = tmp_path / "raw"
    made.mkdir()
    for name, gap in (("ann", range(0)), ("bob", range(100, 250)), ("eve", range(ROWS))):
        write(made / f"{name}.csv", gap)
    return made


def test_an_import_keeps_rows_in_gaps_of_a_target(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["traces", "import", str(folder), str(tmp_path / "out"), "--target", "rate"]) == 0
    said = capsys.readouterr().out
    assert "bob: rate has no number in 150 of 600 rows (first: line 102): what lies there has no label" in said
    trace = read_stated(tmp_path / "out" / "bob.csv", stated(None, None, True, (), "+", ("rate",)))
    assert len(trace.time) == ROWS and int(np.isnan(trace.values[:, 1]).sum()) == 150


def test_an_import_that_loses_rows_says_how_to_keep_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["traces", "import", str(folder), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "150 rows left out: no number in rate" in said
    assert "rows are left out for want of rate; if one is to be predicted, --target NAME keeps them" in said


def test_a_target_that_is_not_there_is_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", "import", str(folder), str(tmp_path / "out"), "--target", "hart"]) == 2
    assert "no column of numbers 'hart' to be predicted; there are ppg, rate" in capsys.readouterr().err
    assert main(["traces", "check", str(folder), "--target", "hart"]) == 2


def test_a_check_counts_what_has_no_value(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", "check", str(folder), "--target", "rate"]) == 0
    said = capsys.readouterr().out
    lines = {line.split()[0]: line for line in said.splitlines() if line[:3] in ("ann", "bob", "eve") and "Hz" in line}
    assert [lines[name].split()[-1] for name in ("ann", "bob", "eve")] == ["0%", "25%", "100%"]
    assert "probably wrong: eve: rate has no number in any row, so nobody can learn it there" in said
    assert "<title>rate, 35 s from 0.01 h</title>" in (folder / "check.html").read_text()
    assert "no trace has a label" not in said and "nan" not in (folder / "check.html").read_text()


def test_json_of_a_check_has_no_nan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", "check", str(folder), "--target", "rate", "--json"]) == 0
    (*_, last) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["devices"]
    assert last["name"] == "eve" and last["percentiles"]["rate"] == [None] * 3


def test_a_cohort_leaves_out_who_has_no_label_and_tells_of_gaps_once(folder: Path) -> None:
    how = Cutting(window=20, stride=20, target="rate", unit="bpm")
    cohort = cohort_of_traces(folder, 1, 1, how)
    assert cohort.devices == ("ann", "bob")
    told = [note for note in cohort.notes if note.startswith("bob")]
    assert told == ["bob: rate has no number in 150 of 600 rows (first: line 102): what lies there has no label"]
    assert any("skipped eve: none of its 30 windows has a label" in note for note in cohort.notes)
    assert cohort.task is not None and cohort.task.entry()["low"] == [pytest.approx(60)]
    with pytest.raises(UsageError, match="eve: none of its 30 windows has a label"):
        cohort_of_traces(folder, 1, 1, Cutting(window=20, stride=20, target="rate", strict=True))
