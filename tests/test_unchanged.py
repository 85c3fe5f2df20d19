"""Which tests `--unchanged` leaves out: those that passed under a hash of all that they can reach, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import unchanged
from tests.unchanged import ROOT, Unchanged, hash_of, may_be_left_out, reached_from

FILE = "tests/native/test_simulation.py"
NAME = f"{FILE}::test_one"


def report(when: str, outcome: str = "passed", **more: Any) -> Any:
    return SimpleNamespace(nodeid=NAME, when=when, passed=outcome == "passed", **more)


def run(folder: Path, *reports: Any) -> bool:
    """Whether the test is left out by the next session, after one in which these were its reports."""
    session = Unchanged(folder, is_worker=True)
    assert not session.has_passed(NAME)
    for one in reports:
        session.pytest_runtest_logreport(one)
    session.pytest_sessionfinish()
    return Unchanged(folder, is_worker=False).has_passed(NAME)


PASSED = (report("setup"), report("call"), report("teardown"))


def test_a_test_that_passed_is_left_out(tmp_path: Path) -> None:
    assert run(tmp_path, *PASSED)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_one_that_failed_or_was_skipped_in_any_phase_is_not(tmp_path: Path, number: int, outcome: str) -> None:
    reports = list(PASSED)
    reports[number] = report(PASSED[number].when, outcome)
    assert not run(tmp_path, *reports)


def test_one_that_was_expected_to_fail_is_not(tmp_path: Path) -> None:
    assert not run(tmp_path, report("setup"), report("call", wasxfail=""), report("teardown"))


@pytest.mark.parametrize(
    "changed",
    [
        FILE,
        "models/rules/normalise.py",
        "models/native/src",
        "edge_sdk/model/model.py",
        "edge_sdk/algebra/optim.py",
        "tests/models/module_check.py",
        "tests/conftest.py",
        "tests/exports.py",
        "pyproject.toml",
    ],
)
def test_a_change_of_a_byte_is_another_hash(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = hash_of(ROOT / FILE)
    at, plain, touched = ROOT / changed, unchanged.bytes_of, []

    def one_byte_more(path: Path) -> bytes:
        if path.resolve() != at.resolve() and at.resolve() not in path.resolve().parents:
            return plain(path)
        touched.append(path)
        return b"changed"

    unchanged.surroundings.cache_clear()
    monkeypatch.setattr(unchanged, "bytes_of", one_byte_more)
    after = hash_of(ROOT / FILE)
    unchanged.surroundings.cache_clear()
    assert touched and after != before


def test_the_environment_and_versions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = hash_of(ROOT / FILE)
    monkeypatch.setenv("AUSCULT_NATIVE", "as no test has it")
    unchanged.surroundings.cache_clear()
    after = hash_of(ROOT / FILE)
    monkeypatch.undo()
    unchanged.surroundings.cache_clear()
    assert before != after and hash_of(ROOT / FILE) == before


def test_all_that_a_test_loads_is_in_the_hash() -> None:
    """Also what is imported late, or by a name that is put together."""
    code = f"import sys, {FILE[:-3].replace('/', '.')}; print(*(m.__file__ for n, m in sys.modules.items() "
    code += "if n.split('.')[0] in ('edge_sdk', 'tests', 'aggregator') and getattr(m, '__file__', None)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    hashed = {path.resolve() for path in reached_from(ROOT / FILE)}
    hashed |= {path.resolve() for folder in unchanged.ALWAYS for path in (ROOT / folder).rglob("*.py")}
    hashed |= {path.resolve() for path in (ROOT / "tests").glob("*.py")}
    loaded = {Path(path).resolve() for path in done.stdout.split()}
    assert len(loaded) > 50 and not loaded - hashed


def test_only_tests_of_the_compiler_that_read_nothing_else_are_left_out() -> None:
    assert may_be_left_out("tests/models/test_rules.py")
    assert not may_be_left_out("tests/methods/test_fedavg.py")
    assert not may_be_left_out("tests/models/test_readme.py")
