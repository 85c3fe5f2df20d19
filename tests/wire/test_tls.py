"""TLS over a real broker, with the files that provision makes: who may speak, and for whom."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.wire import topics
from edge_sdk.wire.addresses import Tls
from edge_sdk.wire.mqtt import Connection
from tests.conftest import missing
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
from tests.wire.sites import Papers, Provisioned, make_site, outcome, provisioner

# paho leaves the socket of a handshake that fails to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ESTABLISHED = 1  # of TCP_INFO


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Papers]:
    if why := missing("mosquitto"):
        pytest.skip(why)
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    files = tmp_path_factory.mktemp("site")
    make_site(files)
    with Provisioned(files) as broker:
        yield Papers(files, broker.tls_url)


def test_a_hospital_and_its_devices_over_tls(tmp_path: Path, site: Papers) -> None:
    net = Net(tmp_path, site.url)
    devices = [net.device(n, "h", **asdict(site.tls(n))) for n in ("a", "b")]
    run = Run(id="count", method="count", rounds=2)  # the hospital is the root of it
    told = {"run": run, "told": lambda n, m: net.told.append((n, m))}
    root = net.node("h", roles.AGGREGATOR, None, ("a", "b"), given={"size": 200_000}, **asdict(site.tls("h")), **told)
    with playing(root, *devices):
        eventually(lambda: net.rounds == 2)


def test_no_certificate_no_connection(site: Papers) -> None:
    assert outcome(site.connection("a", Tls(site.ca))) != "up"


def test_an_expired_certificate_is_refused(site: Papers, tmp_path: Path) -> None:
    ends = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z")
    provisioner(site.files).authority.issue("a", "client", tmp_path, "old", "", *ends)
    assert outcome(site.connection("a", Tls(site.ca, tmp_path / "old.crt", tmp_path / "old.key"))) != "up"


def test_a_certificate_of_another_authority_is_refused(site: Papers, tmp_path: Path) -> None:
    make_site(tmp_path / "other", devices=("a",))
    other = Papers(tmp_path / "other", site.url)
    tls = Tls(site.ca, other.tls("a").certificate, other.tls("a").key)
    assert outcome(site.connection("a", tls)) != "up"


def test_a_broker_of_another_authority_is_refused(site: Papers, tmp_path: Path) -> None:
    make_site(tmp_path / "other", devices=("a",))
    tls = Tls(Papers(tmp_path / "other", "").ca, site.tls("a").certificate, site.tls("a").key)
    assert "certificate" in outcome(site.connection("a", tls))


def test_a_device_reaches_only_its_own_topics(site: Papers) -> None:
    """b's certificate neither lets it speak as a, nor hear what a is told, whatever client id it claims."""
    hospital = site.connection("h", site.tls("h"), topics.upward("h", "+", "+"))
    b = site.connection("a", site.tls("b"), topics.downward("h", "a", "+"))
    assert outcome(hospital) == "up" and outcome(b) == "up"
    b.publish(topics.upward("h", "a", "m"), b"forged", 1)
    b.publish(topics.upward("h", "b", "m"), b"own", 1)
    heard: list[tuple[str, bytes]] = []
    eventually(lambda: heard.extend(hospital.read()) or heard)
    assert heard == [(topics.upward("h", "b", "m"), b"own")]
    hospital.publish(topics.downward("h", "a", "m"), b"for a", 1)
    hospital.publish(topics.downward("h", "b", "m"), b"for b, who has not subscribed to it", 1)
    eventually(lambda: not (hospital.read() or hospital.flying))
    assert b.read() == []
    hospital.close()
    b.close()


# What a certificate is not good for -------------------------------------------------------------------------------
class Impostor:
    """A server with somebody's certificate, in a `with`; it does no more than the handshake."""

    def __init__(self, certificate: Path, key: Path):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.socket = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> str:
        self.thread = threading.Thread(target=self.shake_hands, daemon=True)
        self.thread.start()
        return f"mqtts://localhost:{self.socket.getsockname()[1]}"

    def shake_hands(self) -> None:
        one, _ = self.socket.accept()
        try:
            self.context.wrap_socket(one, server_side=True).close()
        except (ssl.SSLError, OSError):
            one.close()

    def __exit__(self, *_: object) -> None:
        self.thread.join(5)
        self.socket.close()


def test_a_devices_certificate_is_no_brokers(site: Papers, tmp_path: Path) -> None:
    """Although it is of the right authority, and names the very host: it is good for clients only."""
    provisioner(site.files).authority.issue("localhost", "client", tmp_path, "thief")
    with Impostor(tmp_path / "thief.crt", tmp_path / "thief.key") as url:
        said = outcome(Papers(site.files, url).connection("a", site.tls("a")))
    assert "purpose" in said


def test_the_brokers_certificate_is_no_nodes(site: Papers) -> None:
    folder = site.files / "broker"
    assert outcome(site.connection("a", Tls(site.ca, folder / "broker.crt", folder / "broker.key"))) != "up"


def send(connection: Connection, topic: str, body: bytes) -> None:
    """Publish, and wait until the broker has it, or has closed the connection."""
    connection.publish(topic, body, 1)

    def taken() -> bool:
        if not connection.lost:
            connection.write()
            connection.read()
        return bool(connection.lost) or not connection.flying

    eventually(taken)


def test_a_name_without_a_line_in_the_access_list_may_do_nothing(site: Papers, tmp_path: Path) -> None:
    """A certificate that is good, of a node that the site does not name."""
    provisioner(site.files).authority.issue("z", "client", tmp_path, "z")
    hospital = site.connection("h", site.tls("h"), topics.upward("h", "+", "+"))
    z = site.connection("z", Tls(site.ca, tmp_path / "z.crt", tmp_path / "z.key"), topics.downward("h", "z", "+"))
    assert outcome(hospital) == "up"
    outcome(z)
    b = site.connection("b", site.tls("b"))
    assert outcome(b) == "up"
    send(z, topics.upward("h", "z", "m"), b"stranger")
    send(b, topics.upward("h", "b", "m"), b"own")
    heard: list[tuple[str, bytes]] = []
    eventually(lambda: heard.extend(hospital.read()) or heard)
    assert heard == [(topics.upward("h", "b", "m"), b"own")]
    for one in (hospital, z, b):
        one.close()


# Revocation -------------------------------------------------------------------------------------------------------
def test_who_is_revoked_is_cut_off_at_once_and_comes_no_more(tmp_path: Path) -> None:
    if why := missing("mosquitto"):
        pytest.skip(why)
    make_site(tmp_path)
    with Provisioned(tmp_path) as broker:
        site = Papers(tmp_path, broker.tls_url)
        hospital = site.connection("h", site.tls("h"), topics.upward("h", "+", "+"))
        a, b = site.connection("a", site.tls("a")), site.connection("b", site.tls("b"))
        assert [outcome(one) for one in (hospital, a, b)] == ["up"] * 3
        send(a, topics.upward("h", "a", "m"), b"before")
        heard: list[tuple[str, bytes]] = []
        eventually(lambda: heard.extend(hospital.read()) or heard)

        tls = Tls(site.ca, tmp_path / "stolen.crt", tmp_path / "stolen.key")
        for kept, ours in ((tls.certificate, site.tls("a").certificate), (tls.key, site.tls("a").key)):
            assert kept and ours
            kept.write_bytes(ours.read_bytes())
        provisioner(tmp_path).revoke(["a"])
        broker.reload()
        eventually(lambda: outcome(site.connection("a", tls)) != "up")
        assert outcome(site.connection("a", tls)) == "the connection was closed by the other end: certificate revoked"
        late = site.connection("a", tls)  # it writes after it was turned away, and was told of an EOF
        late.open()
        assert late.stream is not None
        raw = late.stream.sock
        eventually(lambda: raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED)
        late.flush()
        assert late.lost == "the connection was closed by the other end: certificate revoked"
        late.drop()
        send(a, topics.upward("h", "a", "m"), b"after")
        send(b, topics.upward("h", "b", "m"), b"own")
        heard.clear()
        eventually(lambda: heard.extend(hospital.read()) or heard)
        assert heard == [(topics.upward("h", "b", "m"), b"own")]
        assert outcome(site.connection("b", site.tls("b"))) == "up", "the others may go on"
