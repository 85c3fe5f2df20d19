"""Processor seconds of each test, its fixtures and their child processes: `python -m pytest --cost runs/costs.tsv`.

Seconds on a clock tell little on a machine that is shared. A child counts where it is waited for. Lines are
`seconds<TAB>phase<TAB>test`, the costliest first; the phases setup, call and teardown of a test do not overlap. What is
in no test is in a line `else`: imports and collection of one process. A fixture that several tests share counts in the
setup of the first, and once more in a line `fixture<TAB>name` of its own.

    python -m tests.costs runs/costs.tsv                                      prints such files per folder and test file
    python -m tests.costs runs/costs.tsv --heaviest > tests/heaviest.txt      for tests/order.py
    python -m tests.costs runs/costs.tsv --cheapest 60 > tests/fast.txt       for `make test-fast`
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm

Line = tuple[float, str, str]
PHASES = ("setup", "call", "teardown")
WORTH_A_LINE = 0.005  # seconds of a fixture
HEAVY = 4.0  # seconds of a test file that is worth a place in the order


def processor_seconds() -> float:
    """Of this process and of its children that have been waited for; of servers of tests/warm.py, and their copies."""
    return sum(os.times()[:4]) + sum(server.seconds() for server in warm.SERVERS)


class Meter:
    """Costs of what one process runs; reports bring them to the process that writes the file."""

    def __init__(self) -> None:
        self.fixtures: list[Line] = []
        self.spent: dict[str, float] = {}

    def measure(self, item: pytest.Item, phase: str) -> Iterator[None]:
        before = processor_seconds()
        try:
            return (yield)
        finally:
            self.spent[phase] = processor_seconds() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self.measure(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self.measure(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self.measure(item, "teardown"))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        before = processor_seconds()
        try:
            return (yield)
        finally:
            where = f"{fixturedef.baseid}::{fixturedef.argname}"
            if (spent := processor_seconds() - before) >= WORTH_A_LINE:
                self.fixtures.append((spent, "fixture", where))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        report.costs = [(self.spent.pop(call.when, 0.0), call.when, report.nodeid), *self.fixtures]  # type: ignore[attr-defined]
        self.fixtures.clear()
        return report


class Book:
    """The file of costs, in the process that hears of all tests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.lines += [(seconds, phase, name) for seconds, phase, name in getattr(report, "costs", ())]

    def pytest_sessionfinish(self) -> None:
        self.lines.append((processor_seconds() - sum(s for s, phase, _ in self.lines if phase in PHASES), "else", ""))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(f"{s:.3f}\t{phase}\t{name}\n" for s, phase, name in sorted(self.lines)[::-1]))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cost", type=Path, metavar="FILE", help="write the processor seconds of each test to FILE")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--cost")) is None:
        return
    config.pluginmanager.register(Meter(), "meter")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Book(path), "book")


def read(paths: list[Path]) -> list[Line]:
    lines = (line.split("\t") for path in paths for line in path.read_text().splitlines())
    return [(float(seconds), phase, name) for seconds, phase, name in lines]


def cheapest(files: Counter[str], seconds: float) -> Iterator[str]:
    """The files that take least, until together they take so long."""
    for path, spent in reversed(files.most_common()):
        seconds -= spent
        if seconds < 0:
            return
        yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--top", type=int, default=40, help="how many files and fixtures")
    parser.add_argument("--heaviest", action="store_true", help="only the paths of the files that take longest")
    parser.add_argument("--cheapest", type=float, metavar="SECONDS", help="only the cheapest files, for so many in all")
    options = parser.parse_args()
    lines = read(options.files)
    folders, files, tests, fixtures = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for seconds, phase, name in lines:
        if phase == "fixture":
            fixtures[name] += seconds
        elif phase in PHASES:
            path = name.split("::")[0]
            folders["/".join(path.split("/")[:2])] += seconds
            files[path] += seconds
            tests[path] += phase == "call"
    if options.heaviest:
        print(*(path for path, seconds in files.most_common() if seconds >= HEAVY), sep="\n")
        return
    if options.cheapest:
        print(*sorted(cheapest(files, options.cheapest)), sep="\n")
        return
    beside = sum(seconds for seconds, phase, _ in lines if phase == "else")
    print(f"{sum(folders.values()):8.1f}  in tests and fixtures\n{beside:8.1f}  beside them: imports and collection")
    for what, table in (("folder", folders), ("file", files), ("fixture", fixtures)):
        print(f"\n seconds  {what}")
        for name, seconds in table.most_common(options.top):
            print(f"{seconds:8.1f}  {name}" + (f"  ({tests[name]:.0f})" if name in tests else ""))


if __name__ == "__main__":
    main()
