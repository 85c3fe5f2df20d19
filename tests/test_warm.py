"""Copies of a process that has loaded a program's modules: each is told by its output, code, variables and end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm


@pytest.fixture(scope="module")
def server() -> Iterator[warm.WarmServer]:
    """A light one, with no torch: the commands here need none."""
    made = warm.WarmServer(("edge_sdk.cli",))
    yield made
    made.close()


@pytest.fixture
def commands(server: warm.WarmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "server", lambda: server)


@pytest.mark.usefixtures("commands")
def test_a_command_says_and_ends_as_it_does_by_itself(tmp_path: Path) -> None:
    done = warm.auscult("--version")
    assert done.returncode == 0 and done.stdout.startswith("auscult ") and done.stderr == ""
    done = warm.auscult("replay", where=tmp_path)
    assert done.returncode == 2 and "name a folder of traces or a data set" in done.stderr and done.stdout == ""


@pytest.mark.usefixtures("commands")
def test_it_is_in_its_directory(tmp_path: Path) -> None:
    done = warm.auscult("traces", "synth", "here", "--devices", 1, "--minutes", 1, where=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "synth-01.csv").is_file()


def test_a_copy_that_is_killed_says_so_and_its_seconds_count(server: warm.WarmServer, tmp_path: Path) -> None:
    code = "import os, pathlib; pathlib.Path('said').write_text(os.environ['WORD']); os.kill(os.getpid(), 9)"
    (tmp_path / "program.py").write_text(code)
    more = {**os.environ, "WORD": "mine", "PYTHONPATH": str(tmp_path)}
    process = server.begin([], tmp_path, (tmp_path / "log",) * 2, more, "program")
    assert process.wait(60) == -signal.SIGKILL and (tmp_path / "said").read_text() == "mine"
    assert server.seconds() > 0


def test_a_server_that_has_ended_costs_nothing_more() -> None:
    made = warm.WarmServer(("json",))
    made.close()
    assert made.seconds() == 0
