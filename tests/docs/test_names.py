"""What the README and docs/ name is there: files, functions, links, methods, messages and settings."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from docs import write_messages
from docs.draw_rooms import svg
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from tests.docs.pages import PAGES, ROOT, spans, text_of

PATH = re.compile(r"((?:edge_sdk|aggregator|models|hardware|tests|benchmarks|docs)/[\w./-]*)(?:: (.*))?")
LINK = re.compile(r"\]\(([^)#:]*)(?:#([\w-]*))?\)")


@cache
def defined(path: Path) -> set[str]:
    """Names of a module: functions, classes, their methods as Class.method, and what is assigned at the top."""
    found: set[str] = set()
    for item in ast.parse(path.read_text()).body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(item.name)
        if isinstance(item, ast.ClassDef):
            found |= {f"{item.name}.{each.name}" for each in item.body if isinstance(each, ast.FunctionDef)}
        for target in getattr(item, "targets", [getattr(item, "target", None)]):
            found |= {target.id} if isinstance(target, ast.Name) else set()
    return found


@pytest.mark.parametrize("page", PAGES)
def test_files_and_functions_exist(page: str) -> None:
    """`path` is there, and in `path.py: one, Class.other` so are the names."""
    missing = []
    for span in spans(page):
        if (found := PATH.fullmatch(span)) is None:
            continue
        path, names = ROOT / found[1], found[2] or ""
        if not path.exists():
            missing.append(found[1])
        elif names:
            missing += [f"{found[1]}: {name}" for name in names.split(", ") if name not in defined(path)]
    assert not missing, f"{page} names what is not there: {missing}"


def test_the_walks_name_many_functions() -> None:
    named = [span for span in spans("docs/design.md") if (found := PATH.fullmatch(span)) and found[2]]
    assert len(named) > 60


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target, heading in LINK.findall(text_of(page)):
        path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        assert path.exists(), f"{page}: no {target}"
        assert not heading or heading in headings(path), f"{page}: {target} has no heading {heading}"


def headings(path: Path) -> set[str]:
    """The headings of a page as links to them are written."""
    found = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def table_rows(page: str) -> list[list[str]]:
    lines = [line for line in text_of(page).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_on_the_page_of_methods(name: str) -> None:
    assert any(f"`{name}`" in row[0] for row in table_rows("docs/methods.md")), f"docs/methods.md has no row for {name}"


@pytest.mark.parametrize("name", METHODS)
def test_every_message_of_a_method_is_on_the_page_about_privacy(name: str) -> None:
    """Its row names each type that its devices may send up; what the row calls "as `other`" is in the row of that
    method. The rest is in the table that docs/write_messages.py writes."""
    rows = {method: " ".join(row[1:]) for row in table_rows("docs/privacy.md") for method in named(row[0])}
    assert name in rows, f"docs/privacy.md has no row for {name}"
    text = " ".join([rows[name], *(rows[other] for other in named(rows[name]) if other in METHODS)])
    up = {kind for kind, entry in write_messages.words().items() if "d>h" in entry["ways"]}
    sent = {kind.__name__ for kind in METHODS[name].messages} & up
    assert sent <= {*named(text), "Nobody"}, f"docs/privacy.md: {name} may also send {sent - {*named(text)}}"


def test_what_evaluation_adds_is_on_the_page_of_messages() -> None:
    plain = METHODS["fedavg"]
    added = [kind.__name__ for kind in evaluated(plain).messages if kind not in plain.messages]
    assert {*added} <= {*spans("docs/messages.md")}


def named(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_the_picture_is_what_the_script_draws() -> None:
    table = tomllib.loads((ROOT / "docs" / "import_table.toml").read_text())
    drawn = (ROOT / "docs" / "rooms.svg").read_text(encoding="utf-8")
    assert drawn == svg(table), "docs/rooms.svg is an old one: python docs/draw_rooms.py"


def test_the_picture_shows_every_room_and_every_arrow_is_in_the_table() -> None:
    table = tomllib.loads((ROOT / "docs" / "import_table.toml").read_text())
    drawn = svg(table)
    assert all(f'class="name">{name}<' in drawn for name in (*table["rooms"], *table["packages"]))
    fewer = {**table, "rooms": {**table["rooms"], "live": {**table["rooms"]["live"], "imports": ["delivery"]}}}
    assert svg(fewer) != drawn
