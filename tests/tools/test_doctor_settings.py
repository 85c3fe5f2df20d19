"""The doctor reads a node's own settings and finds what would go wrong, over real brokers."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.cli import main
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.toml_files import write_toml
from edge_sdk.replay.traces.synth import write_traces
from edge_sdk.tools.credentials.provision import Provisioner
from edge_sdk.wire.known_broker import FILE
from tests.wire.sites import Papers, Provisioned, copy_site, make_site, provisioner

pytest.importorskip("tomli_w", reason="settings files are written with tomli-w")
pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    # paho leaves the socket of a handshake that fails to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
ENDED = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z")
SOON = ("-days", "5")


@dataclass
class Place:
    """One provisioned broker, and settings files of nodes that go there."""

    directory: Path
    papers: Papers

    def wire(self, name: str, **other: object) -> dict[str, object]:
        tls = self.papers.tls(name)
        return {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key} | other

    def device(self, name: str = "a", **other: Any) -> Path:
        table = {"name": name, "hospital": "h", "broker": self.papers.url, "bundle": BUNDLE}
        table |= {"directory": self.directory / "state" / name, "data": {"trace": self.directory / "synth-01.csv"}}
        key = self.papers.files / "nodes" / "a" / "trusted.pem"
        table |= {"trusted_key": key} if key.exists() else {}  # a site without an aggregator makes none
        return write_toml(self.directory / f"{name}.toml", table | {"wire": self.wire(name)} | other)

    @property
    def provisioner(self) -> Provisioner:
        return provisioner(self.papers.files)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("place")
    write_traces(directory, devices=1, seed=4, minutes=1, overwrite=True)
    make_site(directory / "site", aggregator="cloud")
    with Provisioned(directory / "site") as broker:
        yield Place(directory, Papers(directory / "site", broker.tls_url))


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(code: int, *arguments: object) -> dict[str, dict[str, Any]]:
        assert main(["doctor", "--json", *map(str, arguments)]) == code
        return {one["what"]: one for one in json.loads(capsys.readouterr().out)}

    return run


def failing(found: dict[str, dict[str, Any]]) -> set[str]:
    return {what for what, one in found.items() if one["good"] is False}


# A healthy node of each tier --------------------------------------------------------------------------------------
def test_a_healthy_device(place: Place, diagnose: Any) -> None:
    found = diagnose(0, place.device())
    assert not [one for one in found.values() if one["good"] is not True], found
    assert {*found} >= {
        "settings",
        "bundle",
        "disk",
        "clock",
        "address",
        "port",
        "tls",
        "certificate",
        "login",
        "access",
    }
    assert "median round trip" in found["round trip"]["detail"]
    assert "device a of hospital h" in found["settings"]["detail"]


def test_samples_that_the_bundle_does_not_take(place: Place, diagnose: Any) -> None:
    """The doctor said that all was well, and `auscult device` refused the file."""
    trace = place.directory / "synth-01.csv"
    found = diagnose(1, place.device(data={"trace": trace, "window": 32}))
    assert failing(found) == {"data"}
    assert found["data"]["detail"] == (
        "data: samples of shape (3, 32), the bundle's input is (3, 64) (of a trace: window = 64 in [data], --window 64)"
    )


def test_a_healthy_hospital_and_aggregator(place: Place, diagnose: Any) -> None:
    common = {"broker": place.papers.url, "bundle": BUNDLE}
    hospital = {"name": "h", "aggregator": "cloud", "devices": ["a", "b"], "directory": place.directory / "state" / "h"}
    north = write_toml(place.directory / "h.toml", common | hospital | {"wire": place.wire("h")})
    run = {"id": "r", "classes": ["x", "y"]}
    cloud = {"name": "cloud", "hospitals": {"h": 2}, "run": run, "directory": place.directory / "state" / "cloud"}
    above = write_toml(place.directory / "cloud.toml", common | cloud | {"wire": place.wire("cloud")})
    for path in (north, above):
        found = diagnose(0, path)
        assert found["access"]["good"] is True and found["login"]["good"] is True
        assert found["signatures"]["good"] is None, "it signs and checks nothing: said, and no fault"


def test_a_healthy_service(place: Place, diagnose: Any, tmp_path: Path) -> None:
    """The upgrade page has the doctor look at each settings file, and it took a service's for a device's."""
    pytest.importorskip("sqlalchemy", reason="the extra `service` is not installed")
    table = {"name": "cloud", "broker": place.papers.url, "bundles": [BUNDLE], "classes": ["x", "y"]}
    table |= {"directory": tmp_path / "state", "wire": place.wire("cloud"), "console_wire": place.wire("h")}
    found = diagnose(1, write_toml(tmp_path / "fleet.toml", table))
    assert "service cloud with 1 bundle" in found["settings"]["detail"] and found["access"]["good"] is True
    assert found["signatures"]["detail"] == "the service makes the key with which it signs runs at its first start"
    assert failing(found) == {"certificate cloud-console"}
    assert "is of h, and this node is cloud-console" in found["certificate cloud-console"]["detail"]
    assert found["database"]["good"] is None and found["database"]["detail"].endswith("is made at the first start")
    site = {"enrolment": {"site": place.papers.files, "reload": ["no-such-command"]}}
    found = diagnose(1, write_toml(tmp_path / "fleet.toml", table | site))
    assert found["enrolment"]["detail"] == "reload = 'no-such-command' ...: there is no such command here"
    found = diagnose(1, write_toml(tmp_path / "fleet.toml", table | {"classes": "x"}))
    assert found["settings"]["detail"] == f"{tmp_path / 'fleet.toml'}: classes = 'x': expected a list of texts"
    del table["classes"]  # it took this one for a device's, to which every line is wrong
    found = diagnose(1, write_toml(tmp_path / "fleet.toml", table))
    assert found["settings"]["detail"] == f"{tmp_path / 'fleet.toml'}: classes is missing: a list of texts"


def test_the_database_and_the_provider_of_a_service(place: Place, diagnose: Any, tmp_path: Path) -> None:
    """All was well where neither of them answered, and the service did not start."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    pytest.importorskip("joserfc", reason="the extra `oidc` is not installed")
    (tmp_path / "secret").write_text("x")
    sign_on = {"issuer": "http://127.0.0.1:1", "client": "a", "secret": "secret", "console": "http://127.0.0.1"}
    table = {"name": "cloud", "broker": place.papers.url, "bundles": [BUNDLE], "classes": ["x", "y"]}
    table |= {"directory": tmp_path / "state", "wire": place.wire("cloud"), "sign_on": sign_on | {"roles": {}}}
    table |= {"database": "postgresql+psycopg://a:se-cret@127.0.0.1:1/x"}
    found = diagnose(1, write_toml(tmp_path / "fleet.toml", table))
    assert failing(found) == {"database", "sign-in"} and "se-cret" not in str(found)
    assert "Connection refused" in found["database"]["detail"] and "does not answer" in found["sign-in"]["detail"]


def test_a_node_that_knows_its_operators_key(
    place: Place, diagnose: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place.papers.files / "nodes" / "cloud"
    run = {"id": "r", "classes": ["x", "y"]}
    cloud = {"name": "cloud", "broker": place.papers.url, "bundle": BUNDLE, "hospitals": {"h": 2}, "run": run}
    cloud |= {"directory": place.directory / "state" / "cloud", "signing_key": folder / "signing.key"}
    signs = diagnose(0, write_toml(place.directory / "signs.toml", cloud | {"wire": place.wire("cloud")}))
    takes = diagnose(0, place.device())["signatures"]["detail"]
    fingerprint = signs["signatures"]["detail"].split()[-1]
    assert len(fingerprint) == 16 and fingerprint in takes
    (tmp_path / "k.pem").write_text("no key")
    assert failing(diagnose(1, place.device("a", trusted_key=tmp_path / "k.pem"))) == {"signatures"}
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    assert "pip install cryptography" in diagnose(1, place.device())["signatures"]["detail"]


def test_keys_of_secret_sums(place: Place, diagnose: Any, tmp_path: Path) -> None:
    nodes, keys = place.papers.files / "nodes", place.papers.files / "masks"
    mine = {"key": nodes / "a" / "a.mask.key", "aggregator": nodes / "a" / "aggregator.pub"}
    assert "a pair of keys" in diagnose(0, place.device(masks=mine))["masks"]["detail"]
    assert "masks" not in diagnose(0, place.device())
    shutil.copy(mine["key"], tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o644)
    assert failing(diagnose(1, place.device(masks=mine | {"key": tmp_path / "a.key"}))) == {"masks"}
    found = diagnose(1, place.device(masks=mine | {"aggregator": keys / "devices.pub"}))
    assert "2 public keys, expected the aggregator's only" in found["masks"]["detail"]

    def cloud(hospitals: dict[str, int], **other: object) -> Path:
        run = {"id": "r", "classes": ["x", "y"], "uploads": {"bits": 8, "secret": True, "cohort": 2}}
        table = {"name": "cloud", "broker": place.papers.url, "bundle": BUNDLE, "hospitals": hospitals, "run": run}
        table |= {"directory": place.directory / "state" / "cloud", "wire": place.wire("cloud"), **other}
        return write_toml(tmp_path / "cloud.toml", table)

    own = {"key": nodes / "cloud" / "cloud.mask.key", "devices": keys / "devices.pub"}
    assert "those of 2 devices" in diagnose(0, cloud({"h": 2}, masks=own))["masks"]["detail"]
    assert "keys of 2 devices, and the hospitals have 3" in diagnose(1, cloud({"h": 3}, masks=own))["masks"]["detail"]
    assert failing(diagnose(1, cloud({"h": 2}))) == {"masks"}


def test_a_hospital_with_two_brokers_has_each_of_them_checked(place: Place, diagnose: Any) -> None:
    with Mosquitto() as other:
        table = {
            "broker": place.papers.url,
            "upstream": other.url,
            "bundle": BUNDLE,
            "name": "h",
            "aggregator": "cloud",
        }
        table |= {"devices": ["a", "b"], "directory": place.directory / "state" / "h2", "wire": place.wire("h")}
        found = diagnose(0, write_toml(place.directory / "h2.toml", table))
    assert found["login"]["good"] is True and found["login upstream"]["good"] is True
    assert found["access upstream"]["good"] is None, "anybody may do anything there: said, and no fault on this machine"


# What is wrong ----------------------------------------------------------------------------------------------------
def test_plain_text_behind_mqtts_is_found(place: Place, diagnose: Any) -> None:
    with Mosquitto() as plain:
        url = plain.url.replace("mqtt:", "mqtts:")
        found = diagnose(1, place.device(broker=url))
        assert "plain text" in found["tls"]["detail"] and found["tls"]["remedy"]
        assert "plain text" in diagnose(1, "--broker", url)["tls"]["detail"]


def test_tls_behind_mqtt_is_found(place: Place, diagnose: Any) -> None:
    found = diagnose(1, "--broker", place.papers.url.replace("mqtts:", "mqtt:"))
    assert "TLS" in found["tls"]["detail"] and "mqtts://" in found["tls"]["remedy"]


def test_a_host_that_nobody_knows_and_a_port_that_nobody_listens_on(place: Place, diagnose: Any) -> None:
    found = diagnose(1, place.device(broker="mqtts://nowhere.invalid"))
    assert failing(found) == {"address"} and "nowhere.invalid" in found["address"]["detail"]
    found = diagnose(1, place.device(broker="mqtts://127.0.0.1:1"))
    assert failing(found) == {"port"} and found["port"]["remedy"]


def test_a_broker_of_another_authority(place: Place, diagnose: Any, tmp_path: Path) -> None:
    make_site(tmp_path / "other")
    other = Papers(tmp_path / "other", "")
    found = diagnose(1, place.device(wire=place.wire("a", ca=other.ca)))
    assert "authority" in found["tls"]["detail"] and "ca" in found["tls"]["remedy"]


def test_a_broker_under_another_name(place: Place, diagnose: Any) -> None:
    found = diagnose(1, place.device(broker=place.papers.url.replace("127.0.0.1", "localhost")))
    assert "localhost" in found["tls"]["detail"] and "--host localhost" in found["tls"]["remedy"]


@pytest.mark.parametrize("ends, word", [(ENDED, "ended"), (SOON, "ends")])
def test_a_certificate_at_its_end(place: Place, diagnose: Any, tmp_path: Path, ends: Any, word: str) -> None:
    place.provisioner.authority.issue("a", "client", tmp_path, "a", "", *ends)
    wire = place.wire("a", certificate=tmp_path / "a.crt", key=tmp_path / "a.key")
    found = diagnose(1, place.device(wire=wire))
    assert word in found["certificate"]["detail"] and "--renew a" in found["certificate"]["remedy"]


def test_a_certificate_of_somebody_else(place: Place, diagnose: Any) -> None:
    found = diagnose(1, place.device(wire=place.wire("b")))
    assert "of b" in found["certificate"]["detail"]


def test_a_key_that_others_can_read(place: Place, diagnose: Any, tmp_path: Path) -> None:
    tls = place.papers.tls("a")
    shutil.copy(tls.key or "", tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o644)
    found = diagnose(1, place.device(wire=place.wire("a", key=tmp_path / "a.key")))
    assert "chmod 600" in found["certificate"]["remedy"]


def test_a_key_of_another_certificate(place: Place, diagnose: Any) -> None:
    found = diagnose(1, place.device(wire=place.wire("a", key=place.papers.tls("b").key)))
    assert found["certificate"]["good"] is False


def test_a_node_whom_the_broker_does_not_let_in(place: Place, diagnose: Any, tmp_path: Path) -> None:
    """Nothing is wrong with it here: only the broker knows that it was revoked, or is of another site."""
    make_site(tmp_path / "other")
    tls = Papers(tmp_path / "other", "").tls("a")
    found = diagnose(1, place.device(wire=place.wire("a", certificate=tls.certificate, key=tls.key)))
    assert failing(found) == {"login"} and found["login"]["remedy"]


def test_an_access_list_that_lets_everybody_do_everything(place: Place, diagnose: Any, tmp_path: Path) -> None:
    copy_site(tmp_path / "site")
    (tmp_path / "site" / "broker" / "acl").write_text("topic readwrite #\npattern readwrite #\n")
    with Provisioned(tmp_path / "site") as broker:
        wide = Place(place.directory, Papers(tmp_path / "site", broker.tls_url))
        found = diagnose(1, wide.device())
    assert failing(found) == {"access"} and "somebody else" in found["access"]["detail"]


def test_an_access_list_without_the_node(place: Place, diagnose: Any, tmp_path: Path) -> None:
    copy_site(tmp_path / "site")
    path = tmp_path / "site" / "broker" / "acl"
    path.write_text(path.read_text().replace("/a/", "/z/").replace("user a\n", "user z\n"))
    with Provisioned(tmp_path / "site") as broker:
        found = diagnose(1, Place(place.directory, Papers(tmp_path / "site", broker.tls_url)).device())
    assert failing(found) == {"access"} and "a may not write" in found["access"]["detail"]


def test_a_mistake_in_the_file(place: Place, diagnose: Any) -> None:
    path = place.device(hopsital="h")
    found = diagnose(1, path)
    assert failing(found) == {"settings"} and "hopsital" in found["settings"]["detail"]


def test_a_node_that_runs_is_left_in_peace(place: Place, diagnose: Any) -> None:
    """A second connection of the same name would end the first."""
    from edge_sdk.live.presence.directory import NodeDirectory

    path = place.device()
    running = NodeDirectory(place.directory / "state" / "a", "normal")
    try:
        found = diagnose(0, path)
    finally:
        running.close()
    assert found["login"]["good"] is None and "runs" in found["login"]["detail"]
    assert found["tls"]["good"] is True


def test_certificates_as_options(place: Place, diagnose: Any) -> None:
    tls = place.papers.tls("a")
    found = diagnose(0, "--broker", place.papers.url, "--ca", tls.ca, "--cert", tls.certificate, "--key", tls.key)
    assert found["tls"]["good"] and found["certificate"]["good"] and "round trip" in found["broker"]["detail"]


def test_a_disk_that_is_nearly_full(place: Place, diagnose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))  # type: ignore[attr-defined]
    found = diagnose(1, place.device())
    assert failing(found) == {"disk"} and "1 MB" in found["disk"]["detail"]


def test_for_people(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(place.device(broker="mqtts://127.0.0.1:1"))]) == 1
    said = capsys.readouterr().out
    assert "FAIL port" in said and "     -> " in said


def test_a_limit_of_the_broker_that_was_learned_is_told(place: Place, diagnose: Any) -> None:
    folder = place.directory / "state" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    known = {place.papers.url: {"taken": 9000, "most": 14_420, "learned": time.time() - 60}}
    (folder / FILE).write_text(json.dumps(known))
    try:
        found = diagnose(0, place.device())["packets"]
        assert found["good"] is None and "at most 14420 bytes, as was learned on 20" in found["detail"]
        assert "MQTT 5, packets of up to" in diagnose(0, place.device())["login"]["detail"]
    finally:
        (folder / FILE).unlink()
