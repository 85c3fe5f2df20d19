"""The report in a real browser: charts that can be read on a screen, on a phone and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.replay.reports import page
from tests.replay.test_charts import RESULT

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt install chromium)"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of playwright's own loop
]
SIZES = {"screen": (1400, "screen"), "phone": (400, "screen"), "paper": (720, "print")}
LEAST = 9.9
"""Height in CSS pixels that letters of a chart have at least."""
FAULTS = """(least) => {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width, boxes = [];
    for (const text of svg.querySelectorAll("text")) {
      const size = parseFloat(getComputedStyle(text).fontSize) * scale, b = text.getBoundingClientRect();
      if (size < least) found.push(`${text.textContent}: ${size.toFixed(1)} px`);
      if (b.left < box.left - 1 || b.right > box.right + 1) found.push(`${text.textContent}: cut off`);
      const over = boxes.find((o) => o.left < b.right - 1 && b.left < o.right - 1
        && o.top < b.bottom - 4 && b.top < o.bottom - 4);
      if (over) found.push(`${text.textContent}: over another text`);
      boxes.push(b);
    }
  }
  for (const cell of document.querySelectorAll(".facts td"))
    if (cell.getBoundingClientRect().right > innerWidth) found.push(`${cell.textContent}: cut off`);
  const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (over > 0) found.push(`${over} pixels too wide`);
  return found;
}"""
"""What a reader could not read."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def long_run() -> dict[str, Any]:
    """A result with many rounds, long names and a long command."""
    scores = {"devices": 2.0, "samples": 8.0, "global_accuracy": 1.0, "personal_accuracy": 1.5}
    lines = [
        {"kind": "round", "round": r, "devices": 2, "sums": {**scores, "loss": 8.0 / r}, "sent_parameters": 77_518 - r}
        for r in range(1, 121)
    ]
    device = {**RESULT["devices"][0], "device": "patient-10-left"}
    made = {"date": "2026-01-02", "version": "1.2.3", "command": "auscult replay " + "--set eta_l=0.05 " * 20}
    made["bundles"] = ["0123456789abcdef" * 4]
    return {**RESULT, "curve": lines, "devices": [device], "rounds": 120, "made": made}


@pytest.mark.parametrize("size", SIZES)
def test_charts_can_be_read(browser: Any, size: str, tmp_path: Path) -> None:
    wide, medium = SIZES[size]
    (tmp_path / "report.html").write_text(page.make_page(long_run()), encoding="utf-8")
    tab = browser.new_page(viewport={"width": wide, "height": 900})
    tab.emulate_media(media=medium)
    tab.goto((tmp_path / "report.html").as_uri())
    faults = tab.evaluate(FAULTS, LEAST)
    tab.close()
    assert not faults
