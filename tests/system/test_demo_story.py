"""One person with a browser, from `auscult serve --demo` to the automatic rollback of a bundle that is worse.

A real broker, hospitals and devices as processes, on SQLite and on PostgreSQL. What is short of it: the device with a
token in test_enrolled_demo.py, rollouts in tests/aggregator/service/console/test_rollout_story.py, the browser in
test_browser.py beside it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.replay.traces.synth import write_traces
from tests.aggregator.service.conftest import server
from tests.delivery.fleet import eventually
from tests.system.test_enrolled_demo import CHROMIUM, CLI, DemoProcess, pytestmark, sync_api

__all__ = ["pytestmark", "server"]
PATIENCE = 240_000  # milliseconds
ROUNDS = 8
NETWORK = """
import torch

class Blank(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(3 * 64, 14)

    def forward(self, x):
        return self.out(x.flatten(1))
"""
"""A network that nobody has trained: whatever devices have is better."""


@pytest.fixture(params=["sqlite", "postgresql"])
def demo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DemoProcess]:
    url = request.getfixturevalue("server").make_database() if request.param == "postgresql" else ""
    made = DemoProcess(tmp_path, url)
    try:
        yield made
        made.process.terminate()
        assert made.process.wait(60) == 0, made.log.read_text()[-2000:]
    finally:
        made.process.kill()
        made.process.wait()


class Person:
    """Somebody at the console, with a terminal beside it.

    Attributes:
        device: the process of the device that they have added.
    """

    def __init__(self, demo: DemoProcess, page: Any, base: Path):
        self.demo, self.page, self.base = demo, page, base
        self.device: subprocess.Popen[bytes] | None = None
        page.set_default_timeout(PATIENCE)
        page.on("dialog", lambda dialog: dialog.accept())

    def open(self, path: str) -> None:
        self.page.goto(self.demo.url + path)

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def run(self, *words: str) -> str:
        done = subprocess.run([*CLI, *words], capture_output=True, text=True, timeout=240, cwd=self.base)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, *words: str) -> Any:
        """What the service answers on the command line."""
        return json.loads(self.run(*words, "--json", "--service", str(self.base / "demo" / "service")))

    def watch_rounds(self) -> None:
        """The overview counts on, and is not loaded again."""
        self.open("/")
        self.page.wait_for_selector("body.live")
        self.page.evaluate("window.same = true")
        for count in (r"\d+", r"([3-9]|\d\d)"):
            self.page.get_by_text(re.compile(rf"^{count} of 3000 rounds")).wait_for()
        assert self.page.evaluate("window.same")

    def add_device(self, name: str) -> None:
        """Invites a device, enrols and approves it, and starts it."""
        write_traces(self.base / "own", devices=1, seed=5, minutes=4.0, overwrite=True)
        self.open("/enrolment")
        self.page.get_by_label("For", exact=False).first.select_option("north")
        self.page.get_by_label("approved at once").check()
        self.press("Make a token")
        words = self.page.locator("#token pre").inner_text().split()[3:]
        trace = ["--trace", str(self.base / "own" / "synth-01.csv"), "--folder", str(self.base / name)]
        self.run("enrol", name, *words, *trace)
        with (self.base / f"{name}.log").open("wb") as log:
            command = [*CLI, "device", str(self.base / name / f"{name}.toml")]
            self.device = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def stop_run(self, id: str) -> None:
        self.open(f"/runs/{id}")
        self.press("Stop")
        self.page.locator("h1 + .pill.stopped").wait_for()

    def start_run(self, id: str, method: str) -> None:
        """Queues a run in the form for new ones, and waits for its end."""
        self.open("/runs/new")
        self.page.locator("select[name=method]").select_option(method)
        self.page.locator("input[name=rounds]").fill(str(ROUNDS))
        self.page.locator("input[name=id]").fill(id)
        self.press("Queue it")
        self.press("Put first")
        self.stop_others(id)
        self.open(f"/runs/{id}")
        self.page.locator("h1 + .pill.finished").wait_for()

    def stop_others(self, id: str) -> None:
        """What else is under way would keep the run waiting."""
        for run in self.ask("runs", "ls"):
            if run["id"] != id and run["state"] in ("running", "queued"):
                self.stop_run(run["id"])

    def promote(self, run: str) -> None:
        self.open("/models")
        row = self.page.locator("tr", has_text=run)
        row.get_by_role("button", name="Promote").click()
        row.get_by_text("in use").wait_for()

    def roll_out(self, name: str, share: int, outcome: str) -> dict[str, Any]:
        """Rolls a version out in the form for it, and waits until its page says what has become of it."""
        self.open("/rollouts/new")
        option = self.page.locator("option", has_text=name).first.inner_text()
        self.page.locator("select[name=model]").select_option(label=option)
        self.page.get_by_label("To, per cent of devices").fill(str(share))
        self.press("Roll it out")
        self.page.locator(f"h1 + .pill.{outcome}").wait_for()
        found: dict[str, Any] = self.ask("models", "progress", self.page.url.rpartition("/")[2])
        return found

    def add_bundle(self, name: str) -> None:
        """Compiles a network that nobody has trained, and brings it to the registry."""
        (self.base / "net.py").write_text(NETWORK)
        about = ["--input", "3,64", "--classes", "14", "--seed", "3"]
        self.run("bundle", "compile", "net.py:Blank", *about, "-o", f"{name}.bundle")
        self.open("/models")
        self.page.locator("input[name=bundle]").set_input_files(self.base / f"{name}.bundle")
        self.press("Add it")
        self.page.get_by_role("cell", name=name, exact=True).wait_for()


def test_one_person_from_the_first_command_to_an_automatic_rollback(demo: DemoProcess, tmp_path: Path) -> None:
    eventually(lambda: demo.url, 120)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        person = Person(demo, browser.new_page(), tmp_path)
        try:
            person.watch_rounds()
            person.add_device("watch-7")
            eventually(lambda: 7 in demo.devices("fedslr-1"), 240)
            assert demo.devices("fedslr-1")[0] == 6
            person.stop_run("fedslr-1")
            person.start_run("mine", "fedavg")
            assert demo.devices("mine") == [7] * ROUNDS
            person.promote("mine")
            half = person.roll_out("mine", 50, "kept")
            assert (half["having"], half["target"]) == (4, 4), half
            person.add_bundle("blank")
            worse = person.roll_out("blank", 100, "rolled-back")
            assert "held-out samples fell" in worse["why"] and worse["stages"][0]["having"] == 1, worse
            assert worse["accuracy"]["after"] < worse["accuracy"]["before"]
            person.page.get_by_text("held-out samples fell").first.wait_for()
            person.open("/")
            person.page.get_by_text(f"Rollout {worse['id']} was halted").wait_for()
            assert person.ask("runs", "show", worse["id"])["state"] == "finished"
        finally:
            if person.device is not None:
                person.device.kill()
                person.device.wait()
            browser.close()
