"""What systemd is told: ready, alive while all loops go round, stopping; and nothing where nobody asks."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge_sdk.nodes.daemon.watchdog import STUCK, Watchdog, find_period, notify


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        yield listener


def heard(listener: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(listener.recv(100).decode())
        except BlockingIOError:
            return found


def runtime(turned: float, holds: bool = True) -> Any:
    return SimpleNamespace(turned=turned, holds_directory=holds)


def test_ready_once_and_alive_as_long_as_all_loops_go_round(systemd: socket.socket) -> None:
    now = time.monotonic()
    one, other = runtime(now), runtime(now, holds=False)
    watchdog = Watchdog([one, other])
    watchdog()
    assert heard(systemd) == ["WATCHDOG=1"]  # it starts
    other.holds_directory = True
    time.sleep(0.01)
    watchdog()
    watchdog()
    assert heard(systemd)[:2] == ["READY=1", "WATCHDOG=1"]
    one.turned = now - STUCK - 1
    time.sleep(0.01)
    watchdog()
    assert heard(systemd) == []  # systemd ends it soon
    notify("STOPPING=1")
    assert heard(systemd) == ["STOPPING=1"]


def test_nobody_is_told_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    assert find_period() is None
    Watchdog([runtime(0.0)])()
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    notify("READY=1")
    for value in ("0", "soon", "-5"):
        monkeypatch.setenv("WATCHDOG_USEC", value)
        assert find_period() is None
    monkeypatch.setenv("WATCHDOG_USEC", "180000000")
    assert find_period() == 90
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert find_period() is None  # another process is watched
