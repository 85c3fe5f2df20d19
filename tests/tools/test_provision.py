"""What `auscult provision` writes: who is refused a certificate, what a certificate is good for, what runs as it is."""

from __future__ import annotations

import base64
import os
import re
import shutil
import stat
import subprocess
from functools import partial
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.errors import UsageError
from edge_sdk.tools.credentials.mask_papers import read_aggregator
from tests.wire.sites import copy_site

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
SECRET = "correct horse"


@pytest.fixture(autouse=True)
def passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", SECRET)


def provision(site: Path, *arguments: str, code: int = 0) -> None:
    assert main(["provision", str(site), *arguments]) == code


def begin(site: Path, *more: str) -> None:
    provision(site, "--hospital", "h", "--host", "broker.example", "--devices", "a", "b", *more)


first = partial(copy_site, make=begin)  # the same keys in each test


def find(site: Path, name: str) -> Path:
    """The one file of this name, in whatever folder of the site."""
    found = [path for path in site.rglob(name) if "authority" not in path.parts]
    assert found, f"no {name} in {sorted(map(str, site.rglob('*')))}"
    return found[0]


def text_of(certificate: Path) -> str:
    command = ["openssl", "x509", "-in", str(certificate), "-noout", "-text"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def serial_of(certificate: Path) -> str:
    command = ["openssl", "x509", "-in", str(certificate), "-noout", "-serial"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Names ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["ca", "broker", "aggregator", "CA", "crl", "all", "localhost", "broker.example", "h"])
@pytest.mark.parametrize("of", ["device", "hospital"])
def test_a_name_with_a_meaning_is_no_device(
    tmp_path: Path, of: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hospital, devices = (name, ["h"]) if of == "hospital" else ("h", ["a", name])
    provision(tmp_path / "site", "--hospital", hospital, "--host", "broker.example", "--devices", *devices, code=2)
    assert name in capsys.readouterr().err
    assert not (tmp_path / "site").exists(), "something was written although a name was refused"


# What a certificate is good for -----------------------------------------------------------------------------------
def test_a_nodes_certificate_is_for_clients_and_the_brokers_for_servers(tmp_path: Path) -> None:
    first(tmp_path)
    node, broker = text_of(find(tmp_path, "a.crt")), text_of(find(tmp_path, "broker.crt"))
    assert "TLS Web Client Authentication" in node and "TLS Web Server Authentication" not in node
    assert "TLS Web Server Authentication" in broker and "TLS Web Client Authentication" not in broker
    for text in (node, broker):
        assert "CA:FALSE" in text and re.search(r"Key Usage: critical\s+Digital Signature\n", text)


def test_the_authority_signs_and_does_nothing_else(tmp_path: Path) -> None:
    first(tmp_path)
    text = text_of(find(tmp_path, "ca.crt"))
    assert "CA:TRUE, pathlen:0" in text and "Certificate Sign, CRL Sign" in text


# The authority's key ----------------------------------------------------------------------------------------------
def test_the_authoritys_key_is_encrypted_and_apart(tmp_path: Path) -> None:
    first(tmp_path)
    keys = [path for path in tmp_path.rglob("*") if path.is_file() and "PRIVATE KEY" in path.read_text()]
    authority = next(path for path in keys if path.name == "ca.key")
    assert "BEGIN ENCRYPTED PRIVATE KEY" in authority.read_text()
    assert not [path for path in keys if path.parent == authority.parent and path != authority]
    assert mode_of(authority) == 0o600 and mode_of(authority.parent) == 0o700
    for name in ("a", "b", "h"):
        folder = find(tmp_path, f"{name}.key").parent
        masks = [] if name == "h" else [f"{name}.mask.key"]
        expected = sorted(["ca.crt", f"{name}.crt", f"{name}.key", *masks])
        assert sorted(path.name for path in folder.iterdir()) == expected
        assert mode_of(folder) == 0o700 and mode_of(folder / f"{name}.key") == 0o600


def test_a_wrong_passphrase_signs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first(tmp_path)
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", "another")
    provision(tmp_path, "--devices", "c", "--keep", code=2)
    assert "passphrase" in capsys.readouterr().err
    assert not list(tmp_path.rglob("c.key"))


def test_a_passphrase_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUSCULT_CA_PASSPHRASE")
    (tmp_path / "secret").write_text(SECRET + "\n")
    site = tmp_path / "site"
    begin(site, "--passphrase-file", str(tmp_path / "secret"))
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", SECRET)
    provision(site, "--devices", "c", "--keep")
    assert find(site, "c.crt")


@pytest.mark.parametrize(("typed", "code"), [([SECRET, SECRET], 0), ([SECRET, "another"], 2), (["short", "short"], 2)])
def test_a_passphrase_from_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who chooses it types it twice; the second time it is asked for once."""
    monkeypatch.delenv("AUSCULT_CA_PASSPHRASE")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    answers = iter(typed)
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    provision(tmp_path, "--hospital", "h", "--host", "broker.example", "--devices", "a", code=code)
    assert bool(list(tmp_path.rglob("ca.key"))) == (code == 0)
    assert SECRET not in capsys.readouterr().out
    if code == 0:
        answers = iter([SECRET])
        provision(tmp_path, "--devices", "a", "b")


def test_without_a_passphrase_only_if_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AUSCULT_CA_PASSPHRASE")
    provision(tmp_path / "site", "--hospital", "h", "--host", "localhost", "--devices", "a", code=2)
    assert "--no-passphrase" in capsys.readouterr().err
    provision(tmp_path / "site", "--hospital", "h", "--host", "localhost", "--devices", "a", "--no-passphrase")
    assert "not encrypted" in capsys.readouterr().out
    assert "BEGIN PRIVATE KEY" in (tmp_path / "site" / "authority" / "ca.key").read_text()


# A second call ----------------------------------------------------------------------------------------------------
def test_a_second_call_keeps_what_was_said_before(tmp_path: Path) -> None:
    begin(tmp_path, "--port", "9883")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.key")}
    certificate = find(tmp_path, "a.crt").read_bytes()
    provision(tmp_path, "--hospital", "h", "--host", "broker.example", "--devices", "a", "b", "c")
    assert "listener 9883" in find(tmp_path, "mosquitto.conf").read_text()
    provision(tmp_path, "--devices", "d", "--keep")  # the rest is known
    assert "listener 9883" in find(tmp_path, "mosquitto.conf").read_text()
    assert {path: path.read_bytes() for path in before} == before
    assert find(tmp_path, "a.crt").read_bytes() == certificate
    assert find(tmp_path, "c.crt") and find(tmp_path, "d.crt")


def test_another_host_gets_the_broker_another_certificate(tmp_path: Path) -> None:
    first(tmp_path)
    provision(tmp_path, "--host", "moved.example")
    text = text_of(find(tmp_path, "broker.crt"))
    assert "DNS:moved.example" in text and "broker.example" not in text


def test_a_site_stays_that_of_its_hospital(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first(tmp_path)
    provision(tmp_path, "--hospital", "other", "--devices", "a", code=2)
    assert "h" in capsys.readouterr().err


def test_a_directory_of_an_older_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.key").write_text("-----BEGIN PRIVATE KEY-----\n")
    provision(tmp_path, "--hospital", "h", "--host", "localhost", "--devices", "a", code=2)
    assert "another directory" in capsys.readouterr().err


# Revocation, renewal ----------------------------------------------------------------------------------------------
def test_a_revoked_node_is_in_the_list_and_its_key_is_gone(tmp_path: Path) -> None:
    first(tmp_path)
    serial = serial_of(find(tmp_path, "a.crt")).removeprefix("serial=")
    provision(tmp_path, "--revoke", "a")
    command = ["openssl", "crl", "-in", str(find(tmp_path, "crl.pem")), "-noout", "-text"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert serial in listed and not list(tmp_path.rglob("a.key"))
    access = find(tmp_path, "acl").read_text()
    assert "/a/" not in access and "/b/" in access


def test_a_revoked_name_may_be_given_again(tmp_path: Path) -> None:
    first(tmp_path)
    before = serial_of(find(tmp_path, "a.crt"))
    provision(tmp_path, "--revoke", "a")
    provision(tmp_path, "--devices", "a", "--keep")
    assert serial_of(find(tmp_path, "a.crt")) != before and "/a/" in find(tmp_path, "acl").read_text()


def test_renewal_makes_a_new_key_and_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first(tmp_path)
    before = {name: (serial_of(find(tmp_path, name)), find(tmp_path, name).read_bytes()) for name in ("a.crt", "b.crt")}
    provision(tmp_path, "--renew", "a", "broker")
    assert serial_of(find(tmp_path, "a.crt")) != before["a.crt"][0]
    assert find(tmp_path, "b.crt").read_bytes() == before["b.crt"][1]
    assert "until they end.\nIf a key was stolen, --revoke a, and then" in capsys.readouterr().out
    provision(tmp_path, "--list")
    said = capsys.readouterr().out
    assert len(re.findall(r"^a\b", said, re.MULTILINE)) == 2, "the old and the new certificate of a"


def test_a_revoked_hospital_is_given_another_certificate(tmp_path: Path) -> None:
    first(tmp_path)
    before = serial_of(find(tmp_path, "h.crt"))
    provision(tmp_path, "--revoke", "h")
    assert serial_of(find(tmp_path, "h.crt")) != before and "user h\n" in find(tmp_path, "acl").read_text()
    provision(tmp_path, "--revoke", "broker", code=2)


def test_whom_there_is_not_cannot_be_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first(tmp_path)
    provision(tmp_path, "--revoke", "stranger", code=2)
    assert "stranger" in capsys.readouterr().err


# The aggregator ---------------------------------------------------------------------------------------------------
def test_the_aggregators_certificate_comes_with_the_same_command(tmp_path: Path) -> None:
    first(tmp_path, "--aggregator", "cloud")
    assert "Client Authentication" in text_of(find(tmp_path, "cloud.crt"))
    access = find(tmp_path, "acl").read_text()
    assert "topic write auscult/v1/cloud/h/up/+" in access and "topic read auscult/v1/cloud/+/up/+" in access


def test_the_aggregators_own_broker(tmp_path: Path) -> None:
    provision(tmp_path, "--aggregator", "cloud", "--host", "cloud.example", "--hospitals", "north", "south")
    assert {path.parent.name for path in tmp_path.glob("nodes/*/*.key")} == {"cloud", "north", "south"}
    assert "topic write auscult/v1/cloud/south/up/+" in find(tmp_path, "acl").read_text()


def test_the_operators_key_is_the_aggregators_alone_and_everybody_gets_its_public_half(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from edge_sdk.wire.signatures import Signer

    first(tmp_path, "--aggregator", "cloud")
    assert [path.parent.name for path in tmp_path.rglob("signing.key")] == ["cloud"]
    key = find(tmp_path, "signing.key")
    assert mode_of(key) == 0o600
    public = Signer(key.read_bytes()).public_pem
    assert {path.parent.name: path.read_bytes() for path in tmp_path.rglob("trusted.pem")} == dict.fromkeys(
        ("a", "b", "h", "cloud"), public
    )
    provision(tmp_path, "--devices", "c", "--keep")
    assert find(tmp_path, "signing.key").read_bytes() == key.read_bytes()
    assert (tmp_path / "nodes" / "c" / "trusted.pem").read_bytes() == public


def test_an_aggregator_that_was_revoked_signs_with_another_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first(tmp_path, "--aggregator", "cloud")
    before = find(tmp_path, "trusted.pem").read_bytes()
    provision(tmp_path, "--revoke", "cloud")
    assert "cloud signs with a new key: give each node its new trusted.pem" in capsys.readouterr().out
    assert all(path.read_bytes() != before for path in tmp_path.rglob("trusted.pem"))


# The broker's configuration ---------------------------------------------------------------------------------------
def test_the_brokers_limits_are_those_of_the_services(tmp_path: Path) -> None:
    from edge_sdk.delivery.roles.calls import JOB_BYTES  # what one peer may have waiting at a node
    from edge_sdk.wire.mqtt import HEADROOM, LARGEST

    first(tmp_path)
    found = dict(re.findall(r"^(\w+) (\d+)$", find(tmp_path, "mosquitto.conf").read_text(), re.MULTILINE))
    assert int(found["max_packet_size"]) >= LARGEST + HEADROOM
    assert int(found["max_queued_bytes"]) == JOB_BYTES
    assert 0 < int(found["max_queued_messages"]) <= 10_000 and 0 < int(found["max_inflight_messages"]) <= 100
    assert 3 < int(found["max_connections"]) < 100  # three nodes, each with one connection that is just being made anew


def test_a_host_must_be_a_name_or_an_address(tmp_path: Path) -> None:
    provision(tmp_path, "--hospital", "h", "--host", "x\nallow_anonymous true", "--devices", "a", code=2)
    assert not os.listdir(tmp_path)


# Keys for secret sums ---------------------------------------------------------------------------------------------
def test_device_and_aggregator_get_keys_that_fit(tmp_path: Path) -> None:
    """Two sites: the one's key goes to the other. A device that is taken back is on the list no more."""
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    from edge_sdk.nodes.configuration.mask_tables import DeviceKeys
    from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys
    from edge_sdk.nodes.secrets.masks import aggregator_masks, device_masks

    cloud, site = tmp_path / "cloud", tmp_path / "site"
    provision(cloud, "--aggregator", "top", "--host", "cloud.example", "--hospitals", "h")
    begin(site, "--aggregator-key", str(cloud / "masks" / "top.pub"))
    above = AggregatorKeys(key=cloud / "nodes" / "top" / "top.mask.key", devices=site / "masks" / "devices.pub")
    node = site / "nodes" / "a"
    device = device_masks(DeviceKeys(key=node / "a.mask.key", aggregator=node / "aggregator.pub"), "r")
    top = aggregator_masks(above, "r")
    assert mode_of(node / "a.mask.key") == 0o600 and top.knows("a") and top.knows("b") and not top.knows("h")
    tag = device.tag("up", b"c", b"value")
    assert device.stream("up", b"c", tag, 64).tobytes() == top.stream("a", b"c", tag, 64).tobytes()
    assert device.stream("up", b"c", tag, 64).tobytes() != top.stream("b", b"c", tag, 64).tobytes()
    provision(site, "--revoke", "b")
    assert not aggregator_masks(above, "r").knows("b") and aggregator_masks(above, "r").derive("a") == top.derive("a")


def test_a_file_that_is_no_aggregators_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first(tmp_path / "site")
    wrong = str(tmp_path / "site" / "masks" / "devices.pub")  # two lines
    provision(tmp_path / "site", "--aggregator-key", wrong, code=2)
    assert "expected the file masks/NAME.pub" in capsys.readouterr().err


def test_a_device_may_draw_its_own_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    from edge_sdk.nodes.secrets.mask_keys import read_line, read_private

    path = tmp_path / "own.key"
    assert main(["mask-key", str(path)]) == 0
    public = read_private(path).public_key().public_bytes_raw()
    assert read_line(f"w {capsys.readouterr().out}", "here") == ("w", public) and mode_of(path) == 0o600
    assert main(["mask-key", str(path)]) == 2 and "is there already" in capsys.readouterr().err
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        read_private(path)


@pytest.mark.parametrize("point", [0, 1, 2**255 - 20])
def test_an_aggregators_key_that_shares_nothing_is_not_given_to_devices(tmp_path: Path, point: int) -> None:
    path = tmp_path / "top.pub"
    path.write_text(f"top {base64.b64encode(point.to_bytes(32, 'little')).decode()}\n")
    with pytest.raises(UsageError, match=r"top\.pub: the key of top .* shares nothing"):
        read_aggregator(path)


@pytest.mark.parametrize("line", ["a", "a notbase64", "a AAAA", "a " + 2 * ("A" * 43 + "=")])
def test_a_line_that_is_no_key_is_refused(tmp_path: Path, line: str) -> None:
    from edge_sdk.nodes.secrets.mask_keys import read_public

    (tmp_path / "devices.pub").write_text(f"# keys\n\n{line}\n")
    with pytest.raises(UsageError, match="line 3: expected a name"):
        read_public(tmp_path / "devices.pub")
