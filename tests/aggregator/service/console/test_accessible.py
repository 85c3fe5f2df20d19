"""Every page under axe-core, the checker of accessibility: in the dark and in the light, on a screen and on a phone."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.runs.runs import Wanted
from aggregator.service.runs.schedules import DailyWindow, add_schedule
from tests.aggregator.service.conftest import CLASSES, list_pages
from tests.aggregator.service.console.test_browser import CHROMIUM, SIZES, chromium, console
from tests.aggregator.service.console.test_pages import fill

__all__ = ["chromium", "console"]
AXE = importlib.util.find_spec("axe_playwright_python")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt install chromium)"),
    pytest.mark.skipif(AXE is None, reason="axe-playwright-python, which carries axe-core, is not installed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CHECK = """async (rules) => {
  const found = await axe.run(document, {runOnly: rules});
  const say = (v, n) => `${v.id}: ${n.html.slice(0, 160)} (${n.any.map((a) => a.message)})`;
  return found.violations.flatMap((v) => v.nodes.map((n) => say(v, n)));
}"""


@pytest.fixture(scope="module")
def axe() -> str:
    assert AXE is not None and AXE.origin is not None
    return (Path(AXE.origin).parent / "axe.min.js").read_text()


def find_faults(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    found: list[str] = page.evaluate(CHECK, RULES)
    return found


@pytest.fixture
def database_url() -> str:
    return ""  # it makes no difference here


@pytest.fixture
def filled(console: tuple[Any, str]) -> Iterator[str]:
    service, url = console
    fill(service, devices=12)
    add_schedule(service.database, "nightly", Wanted(), DailyWindow("22:00", "06:00"), CLASSES, "ada")
    yield url


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing(filled: str, chromium: Any, axe: str, scheme: str, size: str) -> None:
    assert check_pages(filled, chromium, axe, scheme, size, [*list_pages(), "/runs/nothing"]) == {}


@pytest.mark.long
def test_axe_finds_nothing_on_the_page_that_has_most(filled: str, chromium: Any, axe: str) -> None:
    assert check_pages(filled, chromium, axe, "dark", "phone", ["/runs/ditto-1"]) == {}


def check_pages(
    url: str, chromium: Any, axe: str, scheme: str, size: str, paths: Sequence[str]
) -> dict[str, list[str]]:
    """What axe finds on some pages, with all their details open."""
    width, height = SIZES[size]
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    faults = {}
    for path in paths:
        page.goto(url + path)
        for details in page.locator("details").all():
            details.evaluate("(d) => { d.open = true; }")
        faults[path] = find_faults(page, axe)
    page.close()
    return {path: found for path, found in faults.items() if found}


def test_axe_finds_what_is_wrong(chromium: Any, axe: str) -> None:
    page = chromium.new_page()
    page.set_content("<html><body><img src='x'><input></body></html>")
    faults = "".join(find_faults(page, axe))
    assert "image-alt" in faults and "label" in faults and "html-has-lang" in faults
    page.close()
