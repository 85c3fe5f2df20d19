"""A node that has enrolled renews its certificate before that ends, and connects with the new one."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.nodes.daemon.certificate_renewal import EVERY, FIRST, Renewal
from edge_sdk.tools.credentials.certificates import load_certificate
from edge_sdk.tools.credentials.enrol import Applicant, Desk
from edge_sdk.wire.addresses import Tls
from edge_sdk.wire.links import TlsFiles
from tests.delivery.fleet import eventually

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.mark.long
def test_a_node_renews_its_certificate_by_itself(
    served: tuple[Any, Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It once took a timer that somebody had to set up."""
    caplog.set_level(logging.INFO)
    service, desk = served
    monkeypatch.setattr("edge_sdk.tools.credentials.authority.DAYS", 30)
    applicant, now = Applicant("watch-7", tmp_path), [0.0]
    applicant.begin(desk, service.desk.make_token("ada", "north", approved=True))
    settings = applicant.take(desk, applicant.wait(desk, 0), None)
    files = TlsFiles(Tls(tmp_path / "ca.crt", tmp_path / "watch-7.crt", tmp_path / "watch-7.key"))
    log, first = logging.getLogger("test"), files.context
    monkeypatch.setattr("edge_sdk.tools.credentials.authority.DAYS", 825)
    renewal, other = (Renewal(folder / settings.name, "watch-7", log, lambda: now[0]) for folder in (tmp_path, Path()))

    def look() -> bool:
        for each in (renewal, other):
            each()
        return renewal.process is None

    assert look() and files.read_anew(log) is first
    now[0] = FIRST
    assert not look() and other.process is None  # that one has not enrolled
    eventually(look)
    assert load_certificate(tmp_path / "watch-7.crt").days_left() > 800
    assert "renewal: watch-7: a new certificate, good for 82" in caplog.text
    second = files.read_anew(log)
    assert second is not first and files.read_anew(log) is second
    (tmp_path / "watch-7.crt").write_text("half")
    assert files.read_anew(log) is second and "connects with the certificates of before" in caplog.text
    assert look() and renewal.process is None  # not again on the same day
    now[0] += EVERY
    look()
    eventually(look)
    assert "could not be renewed, which is tried daily" in caplog.text
    look()
    renewal.end()
