"""One person with a browser: a device is added with a token while the run of a demonstration goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.replay.nodes.broker import find_mosquitto
from edge_sdk.replay.traces.synth import write_traces
from tests.delivery.fleet import eventually

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("starlette", reason="the service needs its extra")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt install chromium)"),
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of playwright's own loop
    pytest.mark.long,
]
CLI = [sys.executable, "-m", "edge_sdk.cli"]


class DemoProcess:
    """`auscult serve --demo` and its log. `database`: URL of another database than its own file."""

    def __init__(self, base: Path, database: str = ""):
        self.base, self.log = base, base / "log"
        place = ["--directory", str(base / "demo"), "--listen", "127.0.0.1:0"]
        place += ["--database", database] if database else []
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*CLI, "serve", "--demo", *place], stdout=log, stderr=subprocess.STDOUT)

    @property
    def url(self) -> str:
        found = re.search(r"the console is at (\S+)", self.log.read_text())
        return found[1] if found else ""

    def said(self, node: str) -> str:
        path = self.base / "demo" / "logs" / f"{node}.log"
        return path.read_text() if path.exists() else ""

    def devices(self, run: str) -> list[int]:
        """Devices of each round so far."""
        path = self.base / "demo" / "service" / "runs" / run / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line["devices"] for line in lines if line["kind"] == "round"]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[DemoProcess]:
    made = DemoProcess(tmp_path)
    try:
        yield made
        made.process.terminate()
        assert made.process.wait(60) == 0
    finally:
        made.process.kill()
        made.process.wait()


def test_a_device_is_added_with_a_token_while_the_run_goes_on(demo: DemoProcess, tmp_path: Path) -> None:
    write_traces(tmp_path / "own", devices=1, seed=5, minutes=4.0, overwrite=True)
    eventually(lambda: demo.url, 60)
    environment = {**os.environ, "AUSCULT_SERVICE": str(tmp_path / "demo" / "service")}
    running: list[subprocess.Popen[Any]] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        try:
            eventually(lambda: len(demo.devices("fedslr-1")) >= 2, 240)
            page.goto(f"{demo.url}/enrolment")
            page.get_by_label("For", exact=False).first.select_option("north")
            page.get_by_role("button", name="Make a token").click()
            words = page.locator("#token pre").inner_text().split()
            command = [*CLI, "enrol", "watch-7", *words[3:], "--trace", str(tmp_path / "own" / "synth-01.csv")]
            enrol = subprocess.Popen(
                [*command, "--folder", str(tmp_path / "watch-7")], stdout=subprocess.PIPE, text=True
            )
            running.append(enrol)
            page.goto(f"{demo.url}/enrolment")
            page.get_by_role("button", name="Approve watch-7").click(timeout=60_000)
            page.locator(".pill.approved").wait_for(timeout=60_000)
            settings = tmp_path / "watch-7" / "watch-7.toml"
            assert enrol.communicate(timeout=120)[0].splitlines()[-1] == f"auscult device {settings}"
            with (tmp_path / "watch-7.log").open("wb") as log:
                start = [*CLI, "device", str(settings)]
                running.append(subprocess.Popen(start, stdout=log, stderr=subprocess.STDOUT))
            eventually(lambda: 7 in demo.devices("fedslr-1"), 240)
            assert demo.devices("fedslr-1")[0] == 6
            page.goto(f"{demo.url}/fleet?q=watch-7")
            page.get_by_role("cell", name="watch-7").wait_for(timeout=60_000)
            done = subprocess.run([*CLI, "fleet", "remove", "watch-7"], env=environment, capture_output=True, text=True)
            assert done.stdout == "watch-7: removed\n", done.stderr
            eventually(lambda: "removed: watch-7" in demo.said("north"), 60)
            eventually(lambda: demo.devices("fedslr-1")[-1] == 6 or len(demo.devices("fedslr-1")) == 3000, 240)
        finally:
            for process in running:
                process.kill()
                process.wait()
            browser.close()
