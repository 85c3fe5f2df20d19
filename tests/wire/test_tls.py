"""TLS over a real broker, with the files that provision makes: who may speak, and for whom."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.replay.broker import Mosquitto, find_free_port
from edge_sdk.tools.provision import make_certificate, provision
from edge_sdk.wire import topics
from edge_sdk.wire.addresses import Tls, broker_at
from edge_sdk.wire.mqtt import Connection
from tests.conftest import missing
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing


@dataclass
class Site:
    files: Path
    url: str

    def tls(self, name: str) -> Tls:
        return Tls(self.files / "ca.crt", self.files / f"{name}.crt", self.files / f"{name}.key")

    def connection(self, name: str, tls: Tls, topic: str = "nothing") -> Connection:
        return Connection(broker_at(self.url), name, [topic], tls=tls.context())


class Provisioned(Mosquitto):
    """mosquitto with exactly the configuration that was made for it."""

    def __init__(self, files: Path):
        super().__init__(find_free_port())
        self.files = files

    def command(self, port: int) -> list[str]:
        config = (self.files / "mosquitto.conf").read_text().replace("listener 8883", f"listener {port} 127.0.0.1")
        assert f"listener {port}" in config
        (self.files / "mosquitto.conf").write_text(config + "user root\nlog_dest none\n")
        start = list(super().command(port))
        return [*start[:-1], str(self.files / "mosquitto.conf")]

    @property
    def tls_url(self) -> str:
        return f"mqtts://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if why := missing("mosquitto"):
        pytest.skip(why)
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    files = tmp_path_factory.mktemp("site")
    provision(files, "h", "127.0.0.1", ["a", "b"])
    with Provisioned(files) as broker:
        yield Site(files, broker.tls_url)


def test_a_hospital_and_its_devices_over_tls(tmp_path: Path, site: Site) -> None:
    net = Net(tmp_path, site.url)
    devices = [net.device(n, "h", tls=site.tls(n)) for n in ("a", "b")]
    run = Run(id="count", method="count", rounds=2)  # the hospital is the root of it
    told = {"run": run, "told": lambda n, m: net.told.append((n, m))}
    root = net.node("h", roles.AGGREGATOR, None, ("a", "b"), given={"size": 200_000}, tls=site.tls("h"), **told)
    with playing(root, *devices):
        eventually(lambda: net.rounds == 2)


def outcome(connection: Connection) -> str:
    """The word up, or why not."""
    try:
        connection.open()
    except OSError as e:
        return str(e)

    def settled() -> bool:
        connection.read()
        if not connection.lost:
            connection.write()
        return connection.up or bool(connection.lost)

    eventually(settled)
    return "up" if connection.up else connection.lost


# paho leaves the socket of a handshake that fails to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_no_certificate_no_connection(site: Site) -> None:
    assert outcome(site.connection("a", Tls(site.files / "ca.crt"))) != "up"


def test_an_expired_certificate_is_refused(site: Site) -> None:
    make_certificate(site.files, "old", "a", days=-1)
    assert outcome(site.connection("a", site.tls("old"))) != "up"


def test_a_certificate_of_another_authority_is_refused(site: Site, tmp_path: Path) -> None:
    provision(tmp_path / "other", "h", "127.0.0.1", ["a"])
    other = Site(tmp_path / "other", site.url)
    tls = Tls(site.files / "ca.crt", other.tls("a").certificate, other.tls("a").key)
    assert outcome(site.connection("a", tls)) != "up"


def test_a_broker_of_another_authority_is_refused(site: Site, tmp_path: Path) -> None:
    provision(tmp_path / "other", "h", "127.0.0.1", ["a"])
    tls = Tls(tmp_path / "other" / "ca.crt", site.tls("a").certificate, site.tls("a").key)
    assert "certificate" in outcome(site.connection("a", tls))


def test_a_device_reaches_only_its_own_topics(site: Site) -> None:
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


def test_provision_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a/b"):
        provision(tmp_path, "a/b", "localhost", [])
