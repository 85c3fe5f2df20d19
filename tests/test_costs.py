"""The meter of `--cost`, and the lists that are made of what it measures."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.costs import cheapest, main, read
from tests.order import heaviest

ROOT = Path(__file__).parent.parent
SPENDING = """
import subprocess, sys, time
import pytest
BURN = "import time\\nend = time.process_time() + 0.2\\nwhile time.process_time() < end: pass"
@pytest.fixture(scope="module")
def shared(): exec(BURN)
def test_child(): subprocess.run([sys.executable, "-c", BURN], check=True)
def test_fixture(shared): pass
def test_waits(): time.sleep(0.3)
"""


def test_seconds_are_of_the_processor_with_children_and_of_the_fixture_that_spends_them(tmp_path: Path) -> None:
    (tmp_path / "test_spending.py").write_text(SPENDING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.costs", "--cost", "costs.tsv", "-o", "addopts="]
    subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""}, check=True, capture_output=True)
    found = {(phase, name.rpartition("::")[2]): seconds for seconds, phase, name in read([tmp_path / "costs.tsv"])}
    assert found["call", "test_child"] >= 0.15  # of 0.2: what the kernel books is coarser
    assert found["setup", "test_fixture"] >= 0.15 and found["fixture", "shared"] >= 0.15
    assert found["call", "test_waits"] < 0.15 and found["else", ""] > 0


def test_the_cheapest_are_taken_until_the_time_is_spent() -> None:
    assert [*cheapest(Counter({"a": 3.0, "b": 1.0, "c": 2.0}), 3.5)] == ["b", "c"]


@pytest.mark.parametrize("name", ["heaviest.txt", "fast.txt"])
def test_the_lists_name_files_that_there_are(name: str) -> None:
    paths = (ROOT / "tests" / name).read_text().split()
    assert paths and len({*paths}) == len(paths)
    assert not [path for path in paths if not (ROOT / path).is_file()]


def test_the_table_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = tmp_path / "costs.tsv"
    costs.write_text(
        "5.000\tcall\ttests/a/test_x.py::test_one\n1.000\tsetup\ttests/a/test_y.py::test_two[1]\n2.0\telse\t\n"
    )
    monkeypatch.setattr(sys, "argv", ["costs", str(costs)])
    main()
    text = capsys.readouterr().out
    assert "6.0  in tests" in text and "2.0  beside" in text and "5.0  tests/a/test_x.py  (1)" in text
    monkeypatch.setattr(sys, "argv", ["costs", str(costs), "--heaviest"])
    main()
    assert capsys.readouterr().out == "tests/a/test_x.py\n"


def test_a_worker_begins_with_the_heaviest() -> None:
    assert "tests/models/test_foreign_habits.py" in heaviest()
