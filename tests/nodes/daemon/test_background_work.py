"""Side work of a service that fails: the service goes on."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.nodes.daemon import serve
from edge_sdk.nodes.daemon.serve import SideWork


class Counting:
    """A service that ends after some looks of its loop."""

    def __init__(self) -> None:
        self.finished, self.looks, self.stopped = threading.Event(), 0, False
        self.runtime: Any = SimpleNamespace(refusal="", delivered=True, holds_directory=True, turned=0.0)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        while not self.stopped and self.looks < 12:
            self.finished.wait(0.1)
            self.looks += 1

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), OSError(errno.EMFILE, "too many files"), RuntimeError("changed size")]
)
def test_a_ledger_that_cannot_be_written_does_not_end_a_service(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    service, tries = Counting(), list[int]()

    def note() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise error

    serve.serve([service], once=False, meanwhile=note)
    assert service.looks == 12 and not service.stopped
    assert len(tries) >= 3
    said = [record.getMessage() for record in caplog.records if "cannot be written" in record.getMessage()]
    assert len(said) == 1 and str(error) in said[0]


def test_what_fails_is_said_once_and_its_end_too(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    failures = iter([OSError("a"), OSError("a"), OSError("b"), None, None, OSError("a")])

    def work() -> None:
        if (error := next(failures)) is not None:
            raise error

    side = SideWork("ledger", work, logging.getLogger("test"))
    with caplog.at_level(logging.INFO, "test"):
        for _ in range(6):
            side()
    words = [record.getMessage().partition(" (")[0] for record in caplog.records]
    assert words == ["ledger cannot be written"] * 2 + ["ledger is written again", "ledger cannot be written"]


def test_totals_may_be_read_while_another_thread_counts() -> None:
    """A ledger is written by another thread than the loop's."""
    counters, stop = Counters(), threading.Event()

    def count() -> None:
        number = 0
        while not stop.is_set():
            counters.count(f"refused.{number % 10_000}")
            number += 1
            if number % 10_000 == 0:
                counters.clear()

    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in range(2000):
            counters.totals()
    finally:
        stop.set()
        thread.join()
