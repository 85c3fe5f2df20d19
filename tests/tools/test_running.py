"""What `auscult doctor FILE` says of a node that runs: from the notes that its service keeps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.live.membership.waiting_log import WaitingLog
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.live.presence.presence import Presence
from edge_sdk.nodes.daemon.counter_files import write_json
from edge_sdk.nodes.daemon.device_file import LEDGER
from edge_sdk.tools.diagnostics.node_files import SERVICE
from edge_sdk.tools.diagnostics.running import examine_run


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """The directory of a node at work."""
    directory = NodeDirectory(tmp_path, "normal")
    yield tmp_path
    directory.close()


def test_a_node_that_does_not_run(tmp_path: Path) -> None:
    assert list(examine_run(tmp_path)) == []


def test_who_is_waited_for_and_who_is_suspended(running: Path) -> None:
    now = time.time()
    waiting = {"for": "waiting for answers to question 12", "since": now - 180, "noted": now}
    waiting["children"] = {"watch-7": "watch-7 (not connected)", "watch-8": "watch-8"}
    write_json(running / LEDGER, {"waiting": waiting, "gauges": {"debts": 2.0, "suspended.watch-9": 2.0}})
    run, suspended = examine_run(running)
    assert run.detail.startswith("waiting for answers to question 12: watch-7 (not connected), watch-8 (since ")
    assert "180 s" in run.detail and run.good is None
    assert suspended.detail == "watch-9 is left out" and "set limits.lift.watch-9 = 2" in suspended.remedy


def test_a_node_at_work(running: Path) -> None:
    waiting = {"for": "", "since": time.time(), "noted": time.time(), "children": {}}
    write_json(running / LEDGER, {"waiting": waiting, "gauges": {}})
    (found,) = examine_run(running)
    assert found.detail.startswith("at work, nothing is waited for (noted at ")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"waiting": 5, "gauges": {}}', '{"waiting": {}, "gauges": []}'])
def test_notes_that_cannot_be_read_are_no_fault(running: Path, content: str) -> None:
    (running / LEDGER).write_text(content)
    (found,) = examine_run(running)
    assert found.good is None and "cannot be read yet" in found.detail


def test_a_service_keeps_no_notes(running: Path) -> None:
    """It was said of each that they cannot be read yet."""
    (found,) = examine_run(running, SERVICE)
    assert "auscult runs ls" in found.detail and LEDGER not in found.detail


def test_a_device_says_that_it_waits_for_its_hospital() -> None:
    import logging

    log = WaitingLog("watch-7", "north", logging.getLogger("test"))
    log.look(None, Presence(()), 100.0)
    found = log.status(160.0)
    assert found["for"] == "waiting for north, which is not connected, or has not begun this run"
    assert 59 < found["noted"] - found["since"] < 61 and json.dumps(found)
