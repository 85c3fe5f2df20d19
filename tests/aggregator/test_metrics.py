"""The file of metrics: each event once, whatever is killed, full or damaged."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("torch", reason="the aggregator needs torch")

from aggregator.metrics import Metrics


def lines_of(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


def written(path: Path, numbers: range) -> None:
    metrics = Metrics(path, "first")
    for number in numbers:
        metrics.add(number, {"kind": "round", "round": number, "loss": 0.5})


def test_an_event_that_is_told_again_is_written_once(tmp_path: Path) -> None:
    written(tmp_path / "m.jsonl", range(1, 4))
    written(tmp_path / "m.jsonl", range(3, 6))
    assert lines_of(tmp_path / "m.jsonl") == [1, 2, 3, 4, 5]


def test_a_line_that_was_cut_off_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    written(path, range(1, 4))
    path.write_bytes(path.read_bytes()[:-9])
    written(path, range(3, 5))
    assert lines_of(path) == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_line_is_put_aside_and_said(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """It once ended the aggregator at every start; or, where a number had grown, no more was written."""
    path, dice = tmp_path / "m.jsonl", Random(seed)
    written(path, range(1, 6))
    content = bytearray(path.read_bytes())
    place = dice.randrange(content.index(b"\n") + 1, content.index(b'"crc"', content.index(b"\n")))
    content[place] ^= 1 << dice.randrange(7)
    path.write_bytes(content)
    written(path, range(5, 8))
    assert lines_of(path) == [1, 3, 4, 5, 6, 7]
    assert (tmp_path / "m.jsonl.damaged").read_bytes() in bytes(content)
    assert "damaged line" in caplog.text


def test_lines_of_an_older_version_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"number": 1, "kind": "round"}\n{"number": 2, "kind": "round"}\n')
    written(path, range(1, 4))
    assert lines_of(path) == [1, 2, 3]


def test_two_that_open_it_lose_nothing(tmp_path: Path) -> None:
    """A second process that is started by mistake makes its Metrics before it hears that the directory is taken."""
    path = tmp_path / "m.jsonl"
    written(path, range(1, 3))
    path.write_bytes(path.read_bytes() + b'{"number": 3, "ki')  # the first process is just writing
    before = path.read_bytes()
    Metrics(path, "first")
    assert path.read_bytes() == before


FULL = """
import resource, signal, sys
from pathlib import Path
from aggregator.metrics import Metrics
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
metrics = Metrics(Path(sys.argv[1]), "first")
metrics.add(1, {"kind": "round"})
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
try:
    metrics.add(2, {"kind": "round"})
except OSError:
    pass
else:
    sys.exit("it fitted")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
metrics.add(2, {"kind": "round"})
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="the system has no limit for files")
def test_half_a_line_on_a_full_disk_is_taken_back(tmp_path: Path) -> None:
    """The half line and the one that was tried again once stood on one line, which nobody could read."""
    path = tmp_path / "m.jsonl"
    subprocess.run([sys.executable, "-c", FULL, str(path)], check=True, env=os.environ)
    assert lines_of(path) == [1, 2]


def test_a_second_run_in_the_same_directory_is_written_too(tmp_path: Path) -> None:
    """Its events are numbered from 1 again; they were once taken for those of the first run, and left out."""
    path = tmp_path / "metrics.jsonl"
    for run in ("first", "second", "first"):
        metrics = Metrics(path, run)
        for number in (1, 2, 3):
            metrics.add(number, {"kind": "round"})
    found = [(line["run"], line["number"]) for line in map(json.loads, path.read_text().splitlines())]
    assert found == [(run, number) for run in ("first", "second") for number in (1, 2, 3)]


def test_lines_of_an_older_version_are_those_of_the_run_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"number": 1}\n{"number": 2}\n{"numb')
    metrics = Metrics(path, "first")
    for number in (2, 3):
        metrics.add(number, {})
    assert lines_of(path) == [1, 2, 3]
