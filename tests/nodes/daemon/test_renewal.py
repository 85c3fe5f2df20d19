"""A node looks after its certificate once a day; what the command for that does is tried in test_enrolment.py."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from edge_sdk.nodes.daemon.certificate_renewal import EVERY, FIRST, NOTE, Renewal
from tests.delivery.fleet import eventually


def test_a_node_that_has_enrolled_looks_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    renewal = Renewal(tmp_path / "a.toml", "a", logging.getLogger("test"), lambda: now[0])

    def looks(after: float, command: str) -> bool:
        """Does it begin to look when so much time has passed? Then it ends."""
        monkeypatch.setattr("sys.executable", command)
        now[0] += after
        renewal()
        began = renewal.process is not None
        eventually(lambda: renewal() or renewal.process is None)
        return began

    true, false = str(shutil.which("true")), str(shutil.which("false"))
    assert not looks(FIRST, true), "it has not enrolled"
    (tmp_path / NOTE).write_text("{}")
    (tmp_path / "a.crt").write_text("")
    assert not looks(EVERY / 2, true)
    assert looks(EVERY / 2, true) and not looks(EVERY / 2, true)
    assert not caplog.records[-1].levelno >= logging.ERROR
    assert looks(EVERY, false) and "could not be renewed, which is tried daily" in caplog.text
    assert not looks(EVERY, str(tmp_path / "nothing")) and "No such file" in caplog.text
    now[0] += EVERY
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 600\n")
    endless.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(endless))
    renewal()
    renewal()
    assert renewal.process is not None
    renewal.end()
    assert renewal.process is None
    now[0] += EVERY
    renewal()
    assert renewal.process is not None
    now[0] += EVERY
    renewal()
    assert renewal.process is None, "after a day it is ended"
    renewal()
    assert renewal.process is not None, "and the next one begins"
    renewal.end()
