"""Who was enrolled is let in by a real broker, and who was suspended or removed is not: nothing is started again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.administration.certificates import Enrolling
from aggregator.service.fleet.enrolment import APPROVE, REMOVE, SUSPEND
from edge_sdk.errors import UsageError
from edge_sdk.replay.nodes.broker import find_mosquitto
from edge_sdk.tools.credentials.own_key import LibraryTool
from edge_sdk.tools.credentials.provision import Provisioner
from edge_sdk.tools.diagnostics.access import Part, check_access, connect
from edge_sdk.wire.addresses import Tls, broker_at
from edge_sdk.wire.options import Wire
from tests.delivery.fleet import eventually
from tests.wire.sites import SECRET, Provisioned, make_site

pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    # paho leaves the socket of a handshake that fails to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CLAIM = "c" * 40


def test_the_broker_follows_what_is_decided(
    tmp_path: Path, make_service: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", SECRET)
    files = tmp_path / "site"
    make_site(files, hospital=None, devices=(), aggregator="cloud", hospitals=("north",))
    with Provisioned(files) as broker:
        assert broker.process is not None
        papers = files / "nodes" / "cloud"
        wire = Wire(ca=papers / "ca.crt", certificate=papers / "cloud.crt", key=papers / "cloud.key")
        how = Enrolling(site=files, reload=("pkill", "-HUP", "-P", str(broker.process.pid)))
        service = make_service(broker=broker.tls_url, wire=wire, enrolment=how)
        own = Tls(*(files / "nodes" / "north" / name for name in ("ca.crt", "north.crt", "north.key")))
        found = check_access(Part("north", "cloud", True), broker_at(broker.tls_url), own)
        assert found.good is True, f"a hospital before its first device: {found.detail}"
        tool, key = LibraryTool(), tmp_path / "watch-7.key"
        tool.make_key(key)
        table = {"name": "watch-7", "token": service.desk.make_token("ada", "north"), "claim": CLAIM}
        assert service.desk.ask({**table, "request": tool.make_request(key, "watch-7")})["state"] == "waiting"
        service.desk.decide("watch-7", APPROVE, "ada")
        given = service.desk.fetch({"name": "watch-7", "claim": CLAIM})
        (tmp_path / "ca.crt").write_text(given["ca"])
        (tmp_path / "watch-7.crt").write_text(given["certificate"])
        tls = Tls(tmp_path / "ca.crt", tmp_path / "watch-7.crt", key)

        def may_speak() -> bool:
            probe = connect(Part("watch-7", "north", False), broker_at(broker.tls_url), tls, 5)
            try:
                return probe.up and probe.ask("auscult/v1/north/watch-7/up/m")
            finally:
                probe.close()

        eventually(may_speak)  # the broker reads its files a moment after it was told to
        service.desk.decide("watch-7", SUSPEND, "ada")
        eventually(lambda: not may_speak())
        service.desk.decide("watch-7", APPROVE, "ada")
        eventually(may_speak)
        # a later call of `auscult provision` keeps who was enrolled
        make_site(files, hospital=None, devices=(), aggregator="cloud", hospitals=("north", "south"))
        assert "user watch-7" not in (files / "broker" / "acl").read_text()  # that call said nothing of them ...
        service.desk.bring_up()
        assert "user watch-7" in (files / "broker" / "acl").read_text()
        service.desk.decide("watch-7", REMOVE, "ada")
        eventually(lambda: not may_speak())
        assert [one.name for one in Provisioner(files, lambda new: SECRET).authority.list_issued() if one.revoked] == [
            "watch-7"
        ]


def test_a_site_that_is_none_is_told_at_the_start(tmp_path: Path, make_service: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="auscult provision has made no site there"):
        make_service(enrolment=Enrolling(site=tmp_path / "nowhere"))
