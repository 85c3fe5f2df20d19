"""Services that wait: settings that are read again while a run goes on, runs that are over, files that do not agree."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.traces.synth import write_traces
from tests.system.test_three_terminals import ROUNDS, Terminals, written

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.long,
]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Terminals]:
    """Settings files of an aggregator, a hospital and two devices; whatever was started is killed at the end."""
    write_traces(tmp_path / "traces", devices=2, seed=4, minutes=2.0, overwrite=True)
    with Mosquitto() as running:
        made = written(tmp_path / "run", tmp_path / "traces", running.url, running.url)
        try:
            yield made
        finally:
            for process in made.running.values():
                process.kill()
                process.wait()


def edit(made: Terminals, name: str, *changes: tuple[str, str]) -> None:
    path = made.directory / f"{name}.toml"
    text = path.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)


def said(made: Terminals, name: str) -> str:
    return (made.directory / f"{name}.log").read_text()


def test_a_deadline_is_taken_from_the_file_again_at_sighup(made: Terminals) -> None:
    """A run that waits for everybody, and a device that will not come back."""
    edit(made, "cloud", ('name = "cloud"', 'name = "cloud"\ndeadline = "none"'), ("[run]", '[run]\ndeadline = "none"'))
    for name in ("cloud", "north", "d1", "d2"):
        made.start(name)
    made.wait(lambda: len(made.rounds()) >= 1)
    made.kill("d2")
    del made.running["d2"]
    time.sleep(3)
    reached = len(made.rounds())
    assert reached < ROUNDS
    edit(made, "cloud", ("seed = 1", "seed = 2"))
    made.running["cloud"].send_signal(signal.SIGHUP)
    made.wait(lambda: "run.seed changed; while a run goes on, deadline, quorum" in said(made, "cloud"))
    edit(made, "cloud", ("seed = 2", "seed = 1"), ('name = "cloud"\ndeadline = "none"', 'name = "cloud"\ndeadline = 9'))
    edit(made, "cloud", ('[run]\ndeadline = "none"', "[run]\ndeadline = 1.5"))
    made.running["cloud"].send_signal(signal.SIGHUP)
    made.wait_for_the_end()
    assert made.rounds() == list(range(1, ROUNDS + 1))
    assert "question" in said(made, "north") and "without d2" in said(made, "north")
    result = json.loads((made.directory / "cloud" / "result.json").read_text())
    assert result["deadlines"] == {"all": 9.0}


def test_an_aggregator_whose_run_is_over_says_so_and_ends(made: Terminals) -> None:
    """With nobody else there. It once waited for ever, and wrote no result."""
    for name in ("cloud", "north", "d1", "d2"):
        made.start(name)
    made.wait_for_the_end()
    path = made.directory / "cloud" / "result.json"
    before = json.loads(path.read_text())
    assert before["deadlines"]["FedslrModel"] >= 120
    made.start("cloud")
    assert made.running["cloud"].wait(90) == 0
    assert json.loads(path.read_text()) == before
    path.unlink()
    made.start("cloud")
    assert made.running["cloud"].wait(90) == 0
    assert json.loads(path.read_text())["model"] == before["model"]
    assert said(made, "cloud").count(f"cloud: run by-hand is finished: result in {path}") == 3


def test_files_that_count_other_devices_are_said_on_both_tiers_and_may_be_corrected(made: Terminals) -> None:
    edit(made, "cloud", ("north = 2", "north = 3"))
    for name in ("cloud", "d1", "d2"):
        made.start(name)
    made.start("north")
    sentence = "the settings of north name 2 devices, those of cloud say that it has 3; correct the wrong ones"
    assert made.running["north"].wait(120) == 2
    assert sentence in said(made, "north") and sentence in said(made, "cloud")
    stop(made.running["cloud"])
    edit(made, "cloud", ("north = 3", "north = 2"))
    for name in ("cloud", "north"):
        made.start(name)
    made.wait_for_the_end()
    assert made.rounds() == list(range(1, ROUNDS + 1))


def test_limits_are_taken_from_a_hospitals_file_at_sighup_and_the_doctor_says_what_it_waits_for(
    made: Terminals, capsys: pytest.CaptureFixture[str]
) -> None:
    """No restart is needed to lift a suspension; a device, which takes up nothing, is not ended by the signal."""
    for name in ("cloud", "north", "d1"):
        made.start(name)
    made.wait(lambda: "run by-hand opened" in said(made, "north"))
    made.wait(lambda: "connected to" in said(made, "d1"))
    made.running["d1"].send_signal(signal.SIGHUP)
    made.wait(lambda: "cannot be changed while it runs" in said(made, "d1"))
    path = made.directory / "north.toml"
    path.write_text(path.read_text() + "\n[limits]\nlift = { d1 = 1 }\n")
    made.running["north"].send_signal(signal.SIGHUP)
    made.wait(lambda: "limits of children are as the settings file has them now" in said(made, "north"))

    def diagnosis() -> str:
        capsys.readouterr()
        main(["doctor", str(path)])
        return capsys.readouterr().out

    made.wait(lambda: "waiting for children to come (1 of 2 are here): d2 (not connected)" in diagnosis())
    path.write_text(path.read_text().replace("d1 = 1", "d3 = 1"))
    made.running["north"].send_signal(signal.SIGHUP)
    made.wait(lambda: "limits.lift.d3: is none of d1, d2" in said(made, "north"))
    made.start("d2")
    made.wait_for_the_end()
    assert made.rounds() == list(range(1, ROUNDS + 1))


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    assert process.wait(30) == 0
