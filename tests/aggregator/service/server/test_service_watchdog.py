"""The service's watchdog: ready when all loops have begun, alive while all go round."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from aggregator.service.server.watchdog import STUCK, ServiceWatchdog


def test_systemd_hears_that_the_service_is_ready_and_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "2")
        loops: dict[str, float | None] = {"web": None, "supervisor": time.monotonic()}
        watchdog = ServiceWatchdog(lambda: loops)
        watchdog()
        assert line.recv(99) == b"WATCHDOG=1"  # it lives already, and is not ready
        loops["web"] = time.monotonic()
        for _ in range(2):
            watchdog()
        assert [line.recv(99) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        loops["web"] = time.monotonic() - STUCK - 1
        watchdog()
        with pytest.raises(BlockingIOError):
            line.recv(99)
