"""The console in a real browser: it follows a run without being loaded again, on a screen and on a phone."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aggregator.service.conftest import list_pages
from tests.aggregator.service.console.test_pages import fill

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt install chromium)"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of playwright's own loop
]
SIZES = {"screen": (1400, 900), "phone": (400, 850)}
FAULTS = """() => {
  const found = [], shown = (e) => e.checkVisibility();
  for (const e of document.querySelectorAll("input, select, textarea"))
    if (e.type !== "hidden" && shown(e) && !e.labels.length && !e.ariaLabel) found.push(`no label: ${e.outerHTML}`);
  for (const e of document.querySelectorAll("a, button"))
    if (shown(e) && !(e.innerText.trim() || e.ariaLabel)) found.push(`no name: ${e.outerHTML}`);
  for (const e of document.querySelectorAll("main svg"))
    if (!e.getAttribute("aria-label")) found.push("a chart without a name");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`id twice: ${id}`);
  if (document.querySelectorAll("h1").length < 1) found.push("no heading");
  const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (over > 0) found.push(`${over} pixels too wide`);
  return found;
}"""
"""What a reader with a keyboard, a screen reader or a small screen would stumble over."""


@pytest.fixture
def console(make_service: Any) -> Iterator[tuple[Any, str]]:
    """An open console that is served for real, and its address."""
    from aggregator.service.application.live_updates import ConsoleServer
    from aggregator.service.server.app import make_app
    from aggregator.service.server.command import listen

    service = make_service(is_open=True, listen="127.0.0.1:0")
    line = listen(service.file)
    server = ConsoleServer(make_app(service))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[line])), daemon=True)
    thread.start()
    yield service, f"http://127.0.0.1:{line.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
    line.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_a_run_is_followed_and_stopped_in_the_browser(console: tuple[Any, str], chromium: Any) -> None:
    service, url = console
    id = fill(service, rounds=3)
    page = chromium.new_page()
    page.goto(f"{url}/runs/{id}")
    page.wait_for_selector("body.live", timeout=60_000)
    page.evaluate("window.same = true")
    path = Path(service.file.directory) / "runs" / id / "metrics.jsonl"
    line = {"kind": "round", "round": 4, "devices": 2, "sums": {"loss": 0.5}, "time": 20.0}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    service.database.changed.set()
    page.get_by_text("4 of 30 rounds").wait_for(timeout=60_000)
    assert page.evaluate("window.same")  # the page was not loaded again
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector(".pill.stopped", timeout=60_000)
    sync_api.expect(page.get_by_role("button", name="Resume")).to_have_count(1, timeout=60_000)
    page.close()


@pytest.mark.parametrize("size", SIZES)
def test_pages_have_names_for_everything_and_fit(console: tuple[Any, str], chromium: Any, size: str) -> None:
    service, url = console
    fill(service, devices=12)
    width, height = SIZES[size]
    page = chromium.new_page(viewport={"width": width, "height": height})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    faults = {}
    for path in list_pages():
        page.goto(url + path)
        faults[path] = page.evaluate(FAULTS)
    assert {path: found for path, found in faults.items() if found} == {} and said == []
    page.close()


def test_everything_can_be_read_and_stopped_without_scripts(console: tuple[Any, str], chromium: Any) -> None:
    service, url = console
    id = fill(service)
    page = chromium.new_context(java_script_enabled=False).new_page()
    page.goto(url)
    page.get_by_role("link", name=id).first.click()
    sync_api.expect(page.locator("main svg")).to_have_count(5, timeout=60_000)
    page.get_by_role("button", name="Stop").click()
    sync_api.expect(page.locator(".pill.stopped")).to_have_count(1, timeout=60_000)
    page.context.close()
