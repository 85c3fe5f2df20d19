"""Names and first lines of docstrings, which a reader meets first."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.health import glossary

ROOT = Path(__file__).parent.parent
OURS = ("edge_sdk", "aggregator", "models", "hardware")
OF_EACH_METHOD = {"Settings", "Env", "DeviceState", "HospitalState", "AggregatorState"}
WITHOUT_A_SUBJECT = re.compile(r"(Of|Those|How|Whether|The same|That|As)\b|(Attributes|Args|Returns|Raises):")
LINES = 350


def sources(*packages: str) -> list[Path]:
    return sorted(file for package in packages for file in (ROOT / package).rglob("*.py"))


def test_no_two_classes_have_one_name() -> None:
    """But for what every method has: in methods/ these five names say which part of a method a class is."""
    homes = defaultdict(list)
    for file in sources(*OURS):
        for item in ast.parse(file.read_text()).body:
            if isinstance(item, ast.ClassDef) and not (item.name in OF_EACH_METHOD and "methods" in file.parts):
                homes[item.name].append(str(file.relative_to(ROOT)))
    assert not {name: found for name, found in homes.items() if len(found) > 1}


@pytest.mark.parametrize("package", OURS)
def test_docstrings_begin_with_their_subject(package: str) -> None:
    found = []
    for file in sources(package):
        for item in ast.walk(ast.parse(file.read_text())):
            if isinstance(item, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                first = (ast.get_docstring(item) or "").partition("\n")[0]
                if WITHOUT_A_SUBJECT.match(first):
                    found.append(f"{file.relative_to(ROOT)}: {getattr(item, 'name', 'the head')}: {first}")
    assert not found, "\n".join(found)


def test_files_are_short() -> None:
    lengths = {file: len(file.read_text().splitlines()) for file in sources(*OURS, "tests", "benchmarks")}
    assert not {str(file.relative_to(ROOT)): n for file, n in lengths.items() if n > LINES}


PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "models/README.md", "docs/*.md", "docs/decisions/*.md")
OF_THE_HOUSE = re.compile(r"\b(told|debts|last words|the office|riders?|sceptics?)\b", re.IGNORECASE)
"""Words that pages had in place of those of the field: reported or sent, open questions, the final message ..."""
GLOSSARY = 30


def test_pages_have_the_words_of_the_field() -> None:
    found = []
    for page in sorted(page for pattern in PAGES for page in ROOT.glob(pattern)):
        prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        found += [f"{page.relative_to(ROOT)}: {each.group()}" for each in OF_THE_HOUSE.finditer(prose)]
    assert not found, "\n".join(found)


def test_the_glossary_is_short() -> None:
    assert 0 < glossary() <= GLOSSARY
