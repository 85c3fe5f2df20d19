"""Certificates that end: people are told weeks before, and afterwards why nothing goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.administration.certificates import Enrolling
from aggregator.service.application.alerts import list_needs
from edge_sdk.wire.options import Wire
from tests.delivery.fleet import eventually
from tests.wire.sites import Provisioned, make_site, provisioner

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    pytest.mark.skipif(shutil.which("mosquitto") is None, reason="mosquitto is not installed"),
    # paho leaves the socket of a handshake that fails to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def database_url() -> str:
    return ""


def needs_of(service: Any) -> dict[str, str]:
    return {need.what: need.why for need in list_needs(service)}


def test_who_is_told_that_a_certificate_ends(tmp_path: Path, make_service: Callable[..., Any]) -> None:
    """The broker was said not to be reached, and nothing more; before its end nobody was told."""
    site = tmp_path / "site"
    make_site(site, hospital=None, devices=(), aggregator="cloud", hospitals=("cloud-console",))
    with Provisioned(site) as broker:
        wires = {}
        for key, name in (("wire", "cloud"), ("console_wire", "cloud-console")):
            folder = site / "nodes" / name
            wires[key] = Wire(ca=folder / "ca.crt", certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
        service = make_service(broker=broker.tls_url, enrolment=Enrolling(site=site), **wires)
        assert not [what for what in needs_of(service) if "certificate" in what]
        issue = provisioner(site).authority.issue
        issue("cloud", "client", site / "nodes" / "cloud", "cloud", "", "-days", "20")
        why = needs_of(service)["The certificate of cloud ends soon"]
        assert why == "in 20 days: auscult provision DIRECTORY --renew cloud, then start the service again"
        ended = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z")
        issue("cloud-console", "client", site / "nodes" / "cloud-console", "cloud-console", "", *ended)
        assert " days ago: " in needs_of(service)["The certificate of cloud-console has ended"]
        service.file = replace(service.file, enrolment=Enrolling(site=tmp_path / "gone"))
        assert "The certificate of broker cannot be read" in needs_of(service)
        service = make_service(broker=broker.tls_url, **wires)
        service.monitor.start()
        eventually(lambda: "expired" in needs_of(service)["The broker cannot be reached"])
        service.monitor.stop()
