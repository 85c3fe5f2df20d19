"""Mutants: places of the product that are changed, one after the other, to see whether a test notices.

A mutant turns a comparison round, swaps two operators, changes a number by one, or denies a condition. Places are drawn
with a fixed seed. The tests of a mutant are those of the folder in `tests/` that has its room's name, until the first
failure; a mutant whose tests take much longer than without it counts as found, as it hangs. Nothing is written into the
checkout: each mutant lives in a copy.

    python -m tests.mutants [N] [--room edge_sdk/methods=tests/methods] [--limit 120]
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
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


def draw(count: int, rooms: Mapping[str, str] = ROOMS) -> Iterator[tuple[Path, int]]:
    """Files and numbers of places, each place as likely as any other."""
    files = sorted(path for room in rooms for path in python_of(ROOT / room))
    weights = [places_in(path.read_text()) for path in files]
    chance = random.Random(SEED)
    for path in chance.choices(files, weights, k=count):
        yield path, chance.randrange(places_in(path.read_text()))


def python_of(room: Path) -> Iterator[Path]:
    """The modules of a room, which may be one."""
    return iter([room]) if room.is_file() else room.rglob("*.py")


def tests_of(path: Path, rooms: Mapping[str, str] = ROOMS) -> list[str]:
    below = path.relative_to(ROOT).as_posix()
    return next(tests for folder, tests in rooms.items() if below.startswith(folder)).split()


def write(at: Path, text: str, clock: Iterator[int] = itertools.count(1_000_000_000)) -> None:  # noqa: B008
    """Write a file with a time of its own: bytecode of another mutant of the same length and second is not its own."""
    at.write_text(text)
    second = next(clock)
    os.utime(at, (second, second))


def fails(copy: Path, tests: Sequence[str], limit: float | None) -> bool:
    """Whether tests fail in the copy, or take longer than `limit` seconds."""
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-x", "-m", "not long", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        told = subprocess.run(
            [*command, *tests], cwd=copy, env=environment, capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return told.returncode != 0


def is_found(copy: Path, path: Path, number: int, tests: Sequence[str], limit: float = LIMIT) -> bool:
    """Whether the tests of a mutant's room fail in the copy."""
    at = copy / path.relative_to(ROOT)
    before = at.read_text()
    changed = mutated(before, number)
    assert changed is not None
    try:
        write(at, changed)
        return fails(copy, tests, limit)
    finally:
        write(at, before)


def left_out(folder: str, names: list[str]) -> set[str]:
    """What a copy of the checkout has no use for; `runs` is what replays leave at its top, and rooms further down."""
    top = {".venv", ".git", ".unchanged", "runs"} if Path(folder) == ROOT else set[str]()
    return {name for name in names if name in top or name == "__pycache__" or name.endswith("_cache")}


def seconds_of(copy: Path, tests: Sequence[str]) -> float:
    """How long the tests take where nothing is changed.

    Raises:
        SystemExit: they fail, and would find every mutant.
    """
    began = time.monotonic()
    if fails(copy, tests, None):
        raise SystemExit(f"{' '.join(tests)}: fails where nothing is changed, and so would find everything")
    return time.monotonic() - began


def count_found(count: int, rooms: Mapping[str, str] = ROOMS, limit: float = LIMIT) -> tuple[int, int]:
    """How many of so many mutants are found, and how many were made; each that is missed is printed.

    Args:
        limit: seconds after which a mutant hangs, if its tests take less than a third of that where nothing is changed;
            else three times what they take.
    """
    found, limits = 0, dict[tuple[str, ...], float]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
        for path, number in draw(count, rooms):
            tests = tuple(tests_of(path, rooms))
            if tests not in limits:
                limits[tests] = max(limit, 3 * seconds_of(copy, tests))
            if is_found(copy, path, number, tests, limits[tests]):
                found += 1
            else:
                print(f"missed: place {number} of {path.relative_to(ROOT)}", flush=True)
    return found, count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=20, help="how many mutants (20)")
    parser.add_argument(
        "--room", action="append", metavar="ROOM=TESTS", help="a folder or module and its tests; not all"
    )
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds after which a mutant hangs ({LIMIT})")
    options = parser.parse_args()
    rooms = dict(room.split("=", 1) for room in options.room) if options.room else ROOMS
    found, made = count_found(options.count, rooms, options.limit)
    print(f"mutants     {found} of {made} found")


if __name__ == "__main__":
    main()
