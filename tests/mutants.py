"""Mutants: places of the product that are changed, one after the other, to see whether a test notices.

A mutant turns a comparison round, swaps two operators, changes a number by one, or denies a condition. Places are drawn
with a fixed seed. The tests of a mutant are those of the folder in `tests/` that has its room's name, until the first
failure; a mutant whose tests take longer than LIMIT counts as found, as it hangs. Nothing is written into the checkout:
each mutant lives in a copy.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SEED, LIMIT = 17, 120
ROOMS = {
    "edge_sdk/algebra": "tests/algebra",
    "edge_sdk/contract": "tests/contract",
    "edge_sdk/data": "tests/data",
    "edge_sdk/delivery": "tests/delivery",
    "edge_sdk/methods": "tests/methods",
    "edge_sdk/model": "tests/model",
    "edge_sdk/wire": "tests/wire",
    "models/rules": "tests/models",
}
"""Folder of the product -> folder of its tests; those whose tests need seconds, not minutes."""
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip


def mutated(source: str, number: int) -> str | None:
    """The source with its number-th place changed; None: there are fewer places."""
    tree, places = ast.parse(source), 0
    for item in ast.walk(tree):
        change = change_of(item)
        if change is None:
            continue
        if places == number:
            change()
            return ast.unparse(tree)
        places += 1
    return None


def places_in(source: str) -> int:
    return sum(change_of(item) is not None for item in ast.walk(ast.parse(source)))


def change_of(item: ast.AST):  # type: ignore[no-untyped-def]  # a function that changes the tree, or None
    """What changes one piece of a tree; None: this piece is left alone."""
    if isinstance(item, ast.Compare) and type(item.ops[0]) in COMPARED:
        return lambda: item.ops.__setitem__(0, COMPARED[type(item.ops[0])]())
    if isinstance(item, ast.BinOp) and type(item.op) in SWAPPED:
        return lambda: setattr(item, "op", SWAPPED[type(item.op)]())
    if isinstance(item, ast.Constant) and type(item.value) in (int, float):
        return lambda: setattr(item, "value", item.value + 1)
    if isinstance(item, ast.If | ast.IfExp):
        return lambda: setattr(item, "test", ast.UnaryOp(ast.Not(), item.test))
    return None


def draw(count: int) -> Iterator[tuple[Path, int]]:
    """Files and numbers of places, each place as likely as any other."""
    files = sorted(path for folder in ROOMS for path in (ROOT / folder).rglob("*.py"))
    weights = [places_in(path.read_text()) for path in files]
    chance = random.Random(SEED)
    for path in chance.choices(files, weights, k=count):
        yield path, chance.randrange(places_in(path.read_text()))


def tests_of(path: Path) -> str:
    below = path.relative_to(ROOT).as_posix()
    return next(tests for folder, tests in ROOMS.items() if below.startswith(folder))


def is_found(copy: Path, path: Path, number: int) -> bool:
    """Whether the tests of a mutant's room fail in the copy."""
    at = copy / path.relative_to(ROOT)
    before = at.read_text()
    changed = mutated(before, number)
    assert changed is not None
    try:
        at.write_text(changed)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-o",
            "addopts=",
            "-q",
            "-x",
            "-m",
            "not long",
            "-p",
            "no:cacheprovider",
        ]
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        told = subprocess.run(
            [*command, tests_of(path)], cwd=copy, env=environment, capture_output=True, timeout=LIMIT, check=False
        )
        return told.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        at.write_text(before)


def count_found(count: int) -> tuple[int, int]:
    """How many of so many mutants are found, and how many were made; each that is missed is printed."""
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".venv", ".git", "runs", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
        for path, number in draw(count):
            if is_found(copy, path, number):
                found += 1
            else:
                print(f"missed: place {number} of {path.relative_to(ROOT)}", flush=True)
    return found, count
