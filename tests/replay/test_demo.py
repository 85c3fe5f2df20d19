"""`auscult replay --demo`: which traces it replays, and how."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from edge_sdk.arguments import Parser
from edge_sdk.cli import main
from edge_sdk.replay.commands import add_replay, choose_data, read_job
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.traces import demo
from edge_sdk.replay.traces.smartwatch import PACKAGE


def read(*typed: str) -> Replay:
    top = Parser(prog="auscult")
    add_replay(top.add_subparsers(parser_class=Parser), [])
    options = top.parse_args(["replay", *typed])
    return read_job(choose_data(argparse.Namespace(**{**vars(options), "given": ["replay", *typed]})))


@pytest.fixture(params=[True, False], ids=["with the recordings", "without"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.chdir(tmp_path)
    if request.param and demo.find_spec(PACKAGE) is None:
        pytest.skip(f"package {PACKAGE} is not installed, which has the recordings")
    if not request.param:
        monkeypatch.setattr(demo, "find_spec", lambda name: None)
    return bool(request.param)


def test_it_replays_patients_or_says_what_it_replays_in_their_place(
    recorded: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    job = read("--demo")
    said = capsys.readouterr().out
    traces = [path.stem for path in Path(job.data).glob("*.csv")]
    assert job.command == "auscult replay --demo" and (job.seed, job.hospitals) == (7, 3)
    if recorded:
        assert len(traces) == 20 and len(job.newcomers) == 6 and {*job.newcomers} < {*traces}
        assert job.uploads == {"bits": 4} and job.options == {"labelled": 2.0, "stride": 16}
        assert "20 wrists of physiotherapy patients" in said
    else:
        assert len(traces) == 12 and not job.newcomers
        assert "nobody has recorded" in said and f"pip install --no-deps {PACKAGE}" in said


def test_what_is_typed_counts_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    job = read("--demo", "--seed", "3", "--rounds", "2")
    assert (job.seed, job.rounds, job.hospitals) == (3, 2, 3)


@pytest.mark.parametrize("typed", [["replay"], ["replay", "traces", "--demo"]])
def test_a_replay_is_of_data_or_of_the_demo(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 2
    assert "--demo" in capsys.readouterr().err
