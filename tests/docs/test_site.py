"""The site of `make docs`: all pages are in its navigation, and what is made of the code says what the code has.

That its links lead somewhere and nothing warns is seen by `make docs` itself.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import edge_sdk
from docs.site.settings import descriptions
from docs.site.stage import MADE, ROOT, stage
from edge_sdk.cli import DOORS
from edge_sdk.methods import METHODS
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.settings_files import AggregatorFile, HospitalFile

pytest.importorskip("starlette", reason="a page is made of the service's routes")
IN_NAVIGATION = re.compile(r"^ +- .*?([\w./-]+\.md)$", re.MULTILINE)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    stage(folder)
    return folder


def test_every_page_is_in_the_navigation_once(pages: Path) -> None:
    named = IN_NAVIGATION.findall((ROOT / "docs/site/mkdocs.yml").read_text())
    assert sorted(named) == sorted(str(path.relative_to(pages)) for path in pages.rglob("*.md"))


def test_pages_are_as_they_are_in_the_repository(pages: Path) -> None:
    """At the same places, so that links between them need not be changed."""
    for path in pages.rglob("*.md"):
        name = path.relative_to(pages)
        assert name.name in MADE or path.read_bytes() == (ROOT / name).read_bytes()


def test_every_command_and_its_options_are_shown(pages: Path) -> None:
    text = (pages / "docs/commands.md").read_text()
    headings = {words.split()[0] for words in re.findall(r"^### auscult (.*)$", text, re.MULTILINE)}
    assert headings == {name for _, names in DOORS.values() for name in names.split()}
    for option in ("--labelled LABELLED", "--demo", "--listen LISTEN", "--role", "--split", "--regulariser"):
        assert f"`{option}" in text, option
    assert "%(" not in text and "==SUPPRESS==" not in text


def test_every_key_of_a_settings_file_and_every_method_is_shown(pages: Path) -> None:
    text = (pages / "docs/settings.md").read_text()
    for kind, command in ((DeviceFile, "device"), (HospitalFile, "hospital"), (AggregatorFile, "aggregator")):
        part = text.partition(f"### auscult {command}\n")[2].partition("\n### ")[0]
        assert not [key for key in kind.__dataclass_fields__ if f"`{key}`" not in part]
        assert {*kind.__dataclass_fields__} == {*descriptions(kind)}, (
            f"{kind.__name__}: its docstring says what each is"
        )
    assert {*re.findall(r"^### (?!auscult)(.*)$", text, re.MULTILINE)} == {*METHODS}
    assert "| `threads` | whole number | `1` |" in text and "| **`hospital`** | text |" in text


def test_every_public_name_is_shown(pages: Path) -> None:
    shown = re.findall(r"^::: (edge_sdk\.[\w.]+)$", (pages / "docs/api.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(f"edge_sdk.{home}.{name}" for name, home in edge_sdk.HOMES.items())


def test_what_the_api_answers_is_shown(pages: Path) -> None:
    text = (pages / "docs/rest.md").read_text()
    assert "**POST** `/api/v1/schedules`: Adds a schedule" in text and "counted: {name: integer, ...}" in text
