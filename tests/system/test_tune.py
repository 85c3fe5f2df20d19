"""Tuning from the command line: the file that it writes, replayed through processes and a broker, gives its figure."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_sdk.nodes.configuration.presets import SettingsFile
from edge_sdk.nodes.configuration.settings import read_toml
from tests.system.test_replay_of_data import auscult

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")
pytest.importorskip("optuna", reason="the search needs optuna")

DATA = ("breast-cancer", "--hospitals", 2, "--devices", 2, "--rounds", 3, "--seed", 3)
DRAWN = ("--set", "participation=0.5", "--set", "selection=bernoulli")  # by the aggregator, whose name counts
ROBUST = ("--robust", "clip")
SETTLE = ("--settle", "steps=[0, 10]", "--settle", "local_steps=[10]")


@pytest.mark.parametrize(
    ("method", "more", "model"),
    [
        pytest.param("fedslr", (), "personalised", marks=pytest.mark.long),
        pytest.param("ditto", SETTLE, "personalised", marks=pytest.mark.long),
        pytest.param("scaffold", ROBUST, "global", marks=pytest.mark.long),
        pytest.param("hsgd", (), "global", marks=pytest.mark.long),
        pytest.param("fedavg", DRAWN, "personalised", marks=pytest.mark.long),
    ],
)
def test_the_file_replayed_gives_the_figure_that_was_told(
    tmp_path: Path, method: str, more: tuple[object, ...], model: str
) -> None:
    file = tmp_path / "found.toml"
    tuned = auscult("tune", *DATA, *more, "--method", method, "--budget", 3, "-o", file, "--json")
    found = json.loads(tuned.stdout)[method]
    assert len(found["trials"]) == 3 and found["validation_accuracy"] is not None
    (said,) = [line for line in file.read_text().splitlines() if line.startswith("# to replay it: ")]
    command = shlex.split(said.removeprefix("# to replay it: "))
    done = auscult(*command[1:], "--out", tmp_path / "out", "--no-local-only", "--json")
    result = json.loads(done.stdout)
    assert result["validation_accuracy"][model] == found["validation_accuracy"]
    assert result["settings"] == found["settings"]
    assert result["robust"] == ({"rule": "clip"} if more == ROBUST else {})
    assert result["rounds"] == 3 and result["method"] == method


def test_what_is_found_is_kept_when_a_search_is_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "found.toml"
    command = [sys.executable, "-m", "edge_sdk.cli", "tune", *map(str, DATA), "--budget", "500", "-o", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as search:
        deadline = time.monotonic() + 120
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        search.send_signal(signal.SIGINT)
        said, _ = search.communicate(timeout=60)
    assert search.returncode == 130 and "interrupted; what has been found so far is kept" in said
    assert read_toml(file, SettingsFile).run.method == "fedslr"
    again = auscult("tune", *DATA, "--no-neighbours", "--budget", 1, "-o", file)
    assert "fedslr: " in again.stdout and "on validation" in again.stdout
