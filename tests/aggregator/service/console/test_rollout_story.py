"""In a real browser, over a real broker: a model is promoted and rolled out, a worse one is halted and taken back."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the aggregator needs torch")

from aggregator.run_command import aggregator_of
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.serve import Ending
from edge_sdk.nodes.daemon.settings_files import AggregatorFile
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.replay.nodes.processes import NodeProcesses
from tests.aggregator.service.console.test_browser import FAULTS, SIZES, chromium, pytestmark, sync_api  # noqa: F401
from tests.system.ward import NAMES, Ward, worse

PATIENCE = 60_000  # milliseconds


class InThread:
    """Stands for the process of `auscult aggregator --once`: the same node, as a thread of the test."""

    returncode = 0

    def __init__(self, path: Path):
        self.node = aggregator_of(read_toml(path, AggregatorFile), path.parent)
        self.thread = threading.Thread(target=lambda: self.node.run(Ending(self.node)), daemon=True)
        self.thread.start()

    def poll(self) -> int | None:
        return None if self.thread.is_alive() else 0

    def send_signal(self, number: int) -> None:
        self.node.stop()

    def wait(self, timeout: float | None = None) -> int:
        self.thread.join(timeout)
        return 0

    def kill(self) -> None:
        self.node.stop()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(processes: NodeProcesses, name: str, arguments: Sequence[str | Path]) -> None:
        processes.logs.mkdir(parents=True, exist_ok=True)
        processes.running[name] = InThread(Path(arguments[-1]))  # type: ignore[assignment]

    monkeypatch.setattr(NodeProcesses, "start", start)


@pytest.fixture
def fleet(make_service: Any, quick: LocalBroker, tmp_path: Path, threads: None) -> Iterator[tuple[Any, str, Ward]]:
    """An open console, its address, and a ward that trusts its service."""
    from aggregator.service.application.live_updates import ConsoleServer
    from aggregator.service.server.app import make_app
    from aggregator.service.server.command import listen

    settings = {"broker": quick.url, "classes": NAMES, "hospitals": {"h": 2}, "listen": "127.0.0.1:0"}
    service = make_service(is_open=True, **settings)
    with Ward(tmp_path, quick.url, tmp_path / "service" / "trusted.pem") as ward:
        service.supervisor.start()
        line = listen(service.file)
        server = ConsoleServer(make_app(service))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[line])), daemon=True)
        thread.start()
        yield service, f"http://127.0.0.1:{line.getsockname()[1]}", ward
        server.should_exit = True
        thread.join(20)
        line.close()
        service.supervisor.stop()


def add_model(service: Any, ward: Ward, name: str, theta: np.ndarray) -> str:
    """A run has left this model in the registry; returns its hash."""
    path = ward.save_model(ward.base / f"{name}.npz", theta)
    facts = {"method": "fedavg", "rounds": 1, "hospitals": {"h": 2}, "accuracy": {"global": 0.5}, "loss": 1.0}
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    service.registry.add("global", sha256, name, path, facts, bundle=service.registry.find()["sha256"], run=name)
    return sha256


def test_a_model_is_promoted_rolled_out_and_a_worse_one_taken_back(
    fleet: tuple[Any, str, Ward],
    chromium: Any,  # noqa: F811
) -> None:
    service, url, ward = fleet
    add_model(service, ward, "bad", worse(ward.theta0))
    add_model(service, ward, "good", ward.theta0 * np.float32(1.001))
    page = chromium.new_page()
    page.goto(f"{url}/models")
    good = page.locator("tr", has_text="good")
    good.get_by_role("button", name="Promote").click()
    good.get_by_text("in use").wait_for(timeout=PATIENCE)
    good.get_by_role("link", name="Roll out").click()
    page.get_by_label("To, per cent of devices").fill("50")
    page.get_by_role("button", name="Roll it out").click()
    page.locator("h1 + .pill.kept").wait_for(timeout=PATIENCE)  # it follows by itself
    page.get_by_text("1 of 1 devices · stage 1 of 1").wait_for(timeout=PATIENCE)
    assert sorted(ward.versions.values()) == ["", "rollout-1"]
    page.goto(f"{url}/rollouts/new")
    page.locator("select[name=model]").select_option(label=page.locator("option", has_text="bad").inner_text())
    page.get_by_role("button", name="Roll it out").click()
    page.locator("h1 + .pill.rolled-back").wait_for(timeout=PATIENCE)
    page.get_by_text("accuracy on the devices' own held-out samples fell from").wait_for(timeout=PATIENCE)
    assert sorted(ward.versions.values()) == ["", "rollout-1"]
    for width, height in SIZES.values():
        page.set_viewport_size({"width": width, "height": height})
        for path in ("/rollouts", "/rollouts/rollout-2", "/rollouts/new"):
            page.goto(url + path)
            assert page.evaluate(FAULTS) == [], path
    page.goto(url)
    page.get_by_text("Rollout rollout-2 was halted").wait_for(timeout=PATIENCE)
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{url}/rollouts/rollout-1")
    page.get_by_role("button", name="Roll back").click()
    page.locator("h1 + .pill.undone").wait_for(timeout=PATIENCE)
    assert sorted(ward.versions.values()) == ["", ""]
    page.close()
