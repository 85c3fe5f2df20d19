"""Tests of the compiler that passed with the same bytes are not run again: `python -m pytest --unchanged .unchanged`.

They take half of all seconds, nearly all of it in torch's exporter, and most changes are elsewhere. What a test file of
FOLDERS depends on is hashed: all of models/ (the compiler, its graphs and its native library), every module that the
file imports, and what these import in turn, the folders' own helpers, the versions of all packages, the processor, and
the environment. A test is left out (pytest counts it as deselected) if it has passed under this hash; a change of any
byte runs it. Files that read more than they import (WIDER) always run. A fresh clone has no such folder, and runs all.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("tests/models/", "tests/native/")
ALWAYS = ("models", "tests/models", "tests/native")
"""Folders of which every file counts, imported or not."""
WIDER = ("subprocess", "README", "docs", "find_spec", "import_module", "rglob", "AUSCULT_DATA")
"""Words of a test file that may reach files which it does not import."""
ROOMS = ("edge_sdk", "aggregator", "tests", "benchmarks")
DOOR = "edge_sdk"
SETTINGS = ("AUSCULT_", "OMP_", "OPENBLAS_", "MKL_")
KEPT = 400  # files of hashes, of which a run needs about 110


@cache
def imported_by(path: Path) -> tuple[Path, ...]:
    """Files of this repository that a module imports, anywhere in it but for types, with the packages that they are in.

    The front door `edge_sdk` imports what it is asked for: who imports it reaches all of it. Other modules that load a
    name when it is first asked for (`__getattr__`) say so to type checkers, whose imports count there.
    """
    names, tree = set(), ast.parse(path.read_bytes())
    for item in ast.walk(tree) if loads_late(tree) and path != ROOT / DOOR / "__init__.py" else executed(tree):
        if isinstance(item, ast.Import):
            names |= {one.name for one in item.names}
        elif isinstance(item, ast.ImportFrom):
            home = package_of(path, item.level) if item.level else ""
            base = ".".join(part for part in (home, item.module or "") if part)
            names |= {base, *(f"{base}.{one.name}" for one in item.names)} - {DOOR}
    known = {name: [*files_of(name)] for name in names if name.split(".")[0] in ROOMS}
    if any(name == DOOR or (name.rpartition(".")[0] == DOOR and len(files) == 1) for name, files in known.items()):
        return tuple(sorted((ROOT / DOOR).rglob("*.py")))
    return tuple(sorted({file for files in known.values() for file in files}))


def loads_late(tree: ast.Module) -> bool:
    """True for a module that loads names when they are asked for."""
    return any(isinstance(item, ast.FunctionDef) and item.name == "__getattr__" for item in tree.body)


def executed(item: ast.AST) -> Iterator[ast.AST]:
    """All of a tree but what is there for types alone."""
    yield item
    for inner in ast.iter_child_nodes(item):
        if not (isinstance(inner, ast.If) and isinstance(inner.test, ast.Name) and inner.test.id == "TYPE_CHECKING"):
            yield from executed(inner)


def package_of(path: Path, level: int) -> str:
    return ".".join(path.relative_to(ROOT).parts[:-level])


def files_of(name: str) -> Iterator[Path]:
    """The module of a name, if it is one, and the packages above it."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        at = ROOT.joinpath(*parts[:count])
        yield from (file for file in (at / "__init__.py", at.with_suffix(".py")) if file.is_file())


def reached_from(path: Path) -> set[Path]:
    """All files that a module imports, directly or through others; and itself."""
    found, waiting = {path}, [path]
    while waiting:
        new = {*imported_by(waiting.pop())} - found
        found |= new
        waiting += new
    return found


@cache
def bytes_of(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@cache
def surroundings() -> bytes:
    """Hash of what all tests of FOLDERS depend on."""
    said = [sys.version, platform.platform(), platform.processor()]
    said += sorted(f"{d.name} {d.version}" for d in importlib.metadata.distributions())
    said += sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(SETTINGS))
    if (processor := Path("/proc/cpuinfo")).is_file():
        lines = processor.read_text().splitlines()
        said += sorted({line for line in lines if line.startswith(("model name", "flags"))})
    found = hashlib.sha256("\n".join(said).encode())
    files = [file for folder in ALWAYS for file in (ROOT / folder).rglob("*") if file.is_file()]
    files += [ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.py"), *library_files()]
    for file in sorted(file for file in files if "__pycache__" not in file.parts):
        found.update(f"{file}\0".encode() + bytes_of(file))
    return found.digest()


def library_files() -> Iterator[Path]:
    """The native library as it is installed: its version may stay while it is built anew."""
    try:
        yield from (Path(str(file.locate())) for file in importlib.metadata.files("auscult-native") or ())
    except importlib.metadata.PackageNotFoundError:
        return


def hash_of(path: Path) -> str:
    """Hash of all that the tests of a file depend on."""
    found = hashlib.sha256(surroundings())
    for file in sorted(reached_from(path)):
        found.update(f"{file.relative_to(ROOT)}\0".encode() + bytes_of(file))
    return found.hexdigest()[:40]


def may_be_left_out(path: str) -> bool:
    return path.startswith(FOLDERS) and not any(word in (ROOT / path).read_text() for word in WIDER)


class Unchanged:
    """The tests that passed, in a folder: a file for each hash, a line for each test."""

    def __init__(self, folder: Path, is_worker: bool) -> None:
        self.folder, self.is_worker = folder, is_worker
        self.hashes: dict[str, str] = {}
        self.failed: set[str] = set()

    def has_passed(self, name: str) -> bool:
        path = name.partition("::")[0]
        if not may_be_left_out(path):
            return False
        if path not in self.hashes:
            self.hashes[path] = hash_of(ROOT / path)
        return name in self.passed(self.hashes[path])

    @cache  # noqa: B019 (as long as the session)
    def passed(self, digest: str) -> frozenset[str]:
        file = self.folder / digest
        return frozenset(file.read_text().splitlines()) if file.is_file() else frozenset()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [item for item in items if self.has_passed(item.nodeid)]
        if done:
            left = {*done}
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item not in left]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Where it runs: a test that neither failed nor was skipped in any phase has passed when it is torn down."""
        name, path = report.nodeid, report.nodeid.partition("::")[0]
        if not report.passed or hasattr(report, "wasxfail"):
            self.failed.add(name)
        if report.when == "teardown" and name not in self.failed and path in self.hashes:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / self.hashes[path]).open("a") as file:
                file.write(f"{name}\n")

    def pytest_sessionfinish(self) -> None:
        if self.folder.is_dir() and not self.is_worker:
            by_age = sorted(self.folder.iterdir(), key=lambda file: file.stat().st_mtime)
            for file in by_age[:-KEPT]:
                file.unlink()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "leave out tests of the compiler that passed with the same bytes, as FOLDER says"
    parser.addoption("--unchanged", type=Path, metavar="FOLDER", help=text)


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--unchanged")
    is_worker = hasattr(config, "workerinput")
    runs_here = is_worker or not config.getoption("numprocesses", None)
    if folder is not None and runs_here:
        config.pluginmanager.register(Unchanged(ROOT / folder, is_worker), "unchanged")
