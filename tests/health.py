"""What the code weighs, in one table: `make health`.

    python -m tests.health [--mutants N]

Lines are of Python files; those of code are without blank lines, comments and docstrings. Parameters are those of
`__init__`, without self. Rooms and their floors are held by tests/test_architecture.py, parameters by
tests/test_parameters.py.
--mutants N also changes N places of the product, one after the other, and counts how many the tests of their room find:
it takes half a minute for each.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.mutants import count_found

ROOT = Path(__file__).parent.parent
PRODUCT = ("edge_sdk", "aggregator", "models", "hardware")
MOST_PARAMETERS = 8
PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "models/README.md", "docs/*.md", "docs/*/*.md")
WRITTEN = re.compile(r"<!-- messages: written by .*?<!-- end of messages -->", re.DOTALL)
"""The part of a page that docs/write_messages.py writes: nobody reads it from top to bottom."""


def files_of(*folders: str) -> list[Path]:
    """Python files below some folders; what a link leads to counts once."""
    found = {path.resolve() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    return sorted(found)


@cache
def tree_of(path: Path) -> ast.Module:
    """What a file says; read once."""
    return ast.parse(path.read_text())


def lines_of(files: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in files)


def code_lines_of(files: list[Path]) -> int:
    """Lines without blank ones, comments and docstrings."""
    found = 0
    for path in files:
        lines = path.read_text().splitlines()
        told = {n for item in ast.walk(tree_of(path)) for n in docstring_lines(item)}
        found += sum(bool(line.strip()) and line.lstrip()[0] != "#" for n, line in enumerate(lines, 1) if n not in told)
    return found


def docstring_lines(item: ast.AST) -> range:
    """Numbers of the lines of a module's, class's or function's docstring, or of one below a constant."""
    if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str):
        return range(item.lineno, (item.end_lineno or item.lineno) + 1)
    return range(0)


def rooms_of(files: list[Path]) -> Counter[str]:
    """Folder -> its modules."""
    return Counter(str(path.parent.relative_to(ROOT.resolve())) for path in files if path.name != "__init__.py")


def constructors_of(files: list[Path]) -> Iterator[tuple[int, str]]:
    """Parameters of each class's own `__init__`, and its name. Dataclasses are records, and have none."""
    for path in files:
        for item in ast.walk(tree_of(path)):
            if isinstance(item, ast.ClassDef):
                for inner in item.body:
                    if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                        yield count_parameters(inner), f"{path.relative_to(ROOT.resolve())}: {item.name}"


def functions_of(files: list[Path]) -> Iterator[tuple[int, str]]:
    """Parameters of each function and method whose name is public, and its name."""
    for path in files:
        for item in ast.walk(tree_of(path)):
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_"):
                yield count_parameters(item), f"{path.relative_to(ROOT.resolve())}: {item.name}"


def count_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters of a function, without self and without those that have no name of their own (*args, **options)."""
    taken = function.args
    names = [one.arg for one in taken.posonlyargs + taken.args + taken.kwonlyargs]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def calls_by_position(files: list[Path]) -> Iterator[tuple[int, str]]:
    """Arguments that each call of a class, by its bare name, hands on by position; one with a star is one."""
    for path in files:
        for item in ast.walk(tree_of(path)):
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id[0].isupper():
                yield len(item.args), f"{path.relative_to(ROOT.resolve())}: {item.func.id}"


def words_of_pages() -> int:
    """Words of the pages that people write and read: neither what a program writes nor the bars of tables."""
    pages = {page for pattern in PAGES for page in ROOT.glob(pattern)}
    return sum(len(re.findall(r"\S*\w\S*", WRITTEN.sub("", page.read_text()))) for page in pages)


def glossary() -> int:
    """Rows of the table of words in docs/design.md."""
    text = (ROOT / "docs" / "design.md").read_text()
    part = text[text.index("\n## Words") : text.index("\n## The life of one frame")]
    return len(re.findall(r"^\| ", part, re.MULTILINE)) - 2


def tests_in(files: list[Path]) -> int:
    """Functions that are tests; a parametrised one counts once."""
    return sum(len(re.findall(r"^\s*def test_", path.read_text(), re.MULTILINE)) for path in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", type=int, default=0, metavar="N")
    options = parser.parse_args()
    product, tests = files_of(*PRODUCT), files_of("tests")
    many = sorted(((n, who) for n, who in constructors_of(product) if n > MOST_PARAMETERS), reverse=True)
    rooms = rooms_of(product)
    crowded = {room: n for room, n in rooms.items() if n > 15}
    code = code_lines_of(product)
    print(f"product     {lines_of(product):,} lines in {len(product)} files, {code:,} of them code")
    print(f"tests       {lines_of(tests):,} lines in {len(tests)} files, {tests_in(tests):,} functions")
    print(f"benchmarks  {lines_of(files_of('benchmarks')):,} lines")
    print(f"pages       {words_of_pages():,} words; {glossary()} words in the glossary")
    print(f"rooms       {len(rooms)}, {len(crowded)} of more than 15 modules")
    for room, count in sorted(crowded.items(), key=lambda one: -one[1]):
        print(f"  {count:3} {room}")
    print(f"parameters  {len(many)} constructors with more than {MOST_PARAMETERS}")
    for count, who in many:
        print(f"  {count:3} {who}")
    if options.mutants:
        found, made = count_found(options.mutants)
        print(f"mutants     {found} of {made} found")


if __name__ == "__main__":
    main()
