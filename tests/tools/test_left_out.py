"""A later call of `auscult provision`: who is left out is locked out, and nobody takes an enrolled node's name."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.errors import UsageError
from edge_sdk.replay.nodes.broker import find_mosquitto
from edge_sdk.tools.credentials.authority import run_openssl
from edge_sdk.tools.credentials.provision import provision
from edge_sdk.tools.diagnostics.access import Part, connect
from edge_sdk.wire.addresses import broker_at
from tests.delivery.fleet import eventually
from tests.wire.sites import SECRET, Papers, Provisioned, copy_site, make_site, provisioner

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    # paho leaves the socket of a handshake that fails to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", SECRET)


def call(site: Path, *arguments: str, code: int = 0) -> None:
    assert main(["provision", str(site), *arguments]) == code


def states(site: Path) -> dict[str, str]:
    """Name -> state of its latest certificate, as `--list` says it."""
    return {one.name: one.state for one in provisioner(site).authority.list_issued()}


@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")
def test_who_is_left_out_of_a_second_call_connects_no_more_until_it_is_named_again(tmp_path: Path) -> None:
    copy_site(tmp_path)
    key = (tmp_path / "nodes" / "b" / "b.key").read_bytes()
    with Provisioned(tmp_path) as broker:
        site = Papers(tmp_path, broker.tls_url)

        def may_speak(name: str) -> bool:
            probe = connect(Part(name, "h", False), broker_at(broker.tls_url), site.tls(name), 5)
            try:
                return probe.up and probe.ask(f"auscult/v1/h/{name}/up/m")
            finally:
                probe.close()

        def is_refused(name: str) -> bool:
            probe = connect(Part(name, "h", False), broker_at(broker.tls_url), site.tls(name), 5)
            let_in = probe.up
            probe.close()
            return not let_in

        assert may_speak("a") and may_speak("b")
        call(tmp_path, "--hospital", "h", "--host", "127.0.0.1", "--devices", "a")
        broker.reload()
        eventually(lambda: is_refused("b"))
        assert may_speak("a")
        call(tmp_path, "--devices", "a", "b")
        broker.reload()
        eventually(lambda: may_speak("b"))
    assert (tmp_path / "nodes" / "b" / "b.key").read_bytes() == key, "it comes with what it has"


def test_who_is_left_out_is_named_with_the_ways_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy_site(tmp_path, devices=("a", "b", "c"))
    capsys.readouterr()
    call(tmp_path, "--devices", "a")
    said = capsys.readouterr().out
    assert "b, c: left out of this call, and locked out" in said and "reload mosquitto" in said
    assert "--revoke b c" in said
    assert "/b/" not in (tmp_path / "broker" / "acl").read_text()
    assert states(tmp_path) | {"127.0.0.1": ""} == {"127.0.0.1": "", "h": "good", "a": "good", "b": "held", "c": "held"}
    call(tmp_path, "--devices", "a", "c")  # named again
    call(tmp_path, "--revoke", "b")
    assert states(tmp_path)["b"] == "revoked" and states(tmp_path)["c"] == "good"
    call(tmp_path, "--devices", "a", "b", "c")
    assert states(tmp_path)["b"] == "good", "a new certificate, since the one before was taken back for good"


def test_devices_come_beside_the_others_with_keep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy_site(tmp_path)
    before = sorted(tmp_path.rglob("*.crt"))
    call(tmp_path, "--devices", "c", code=2)
    said = capsys.readouterr().err
    assert "none of those who are there: a, b" in said and "--keep" in said
    assert sorted(tmp_path.rglob("*.crt")) == before, "nothing was made"
    call(tmp_path, "--devices", "c", "--keep")
    assert states(tmp_path)["a"] == states(tmp_path)["b"] == states(tmp_path)["c"] == "good"
    call(tmp_path, "--port", "9883")  # says nothing of devices
    assert provisioner(tmp_path).known().devices == ("a", "b", "c") and states(tmp_path)["c"] == "good"


def test_hospitals_that_are_left_out_are_locked_out_too(tmp_path: Path) -> None:
    copy_site(tmp_path, hospital=None, devices=(), aggregator="cloud", hospitals=("north", "south"))
    call(tmp_path, "--hospitals", "south")
    assert states(tmp_path)["north"] == "held" and states(tmp_path)["south"] == states(tmp_path)["cloud"] == "good"


@pytest.mark.parametrize("state", ["approved", "suspended"])
@pytest.mark.parametrize("name", ["watch-7", "Watch-7"])
def test_the_name_of_an_enrolled_node_is_not_given_to_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, name: str
) -> None:
    """A line in the access list under that name would let in who was suspended, whose certificate is good."""
    copy_site(tmp_path, devices=("a",))
    here = provisioner(tmp_path)
    here.authority.issue("watch-7", "client", tmp_path / "away", "watch-7")
    shutil.rmtree(tmp_path / "away")
    if state == "approved":
        here.admit(replace(here.known(), enrolled=("h/watch-7",)))
    access = (tmp_path / "broker" / "acl").read_text()
    call(tmp_path, "--devices", "a", name, code=2)
    said = capsys.readouterr().err
    assert name in said and "enrolled" in said and "auscult fleet remove watch-7" in said
    assert (tmp_path / "broker" / "acl").read_text() == access and not (tmp_path / "nodes" / name).exists()
    with pytest.raises(UsageError, match="enrolled"):
        provision(tmp_path, replace(here.known(), devices=("a", name)), SECRET)


def test_a_call_that_was_interrupted_is_typed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed call has made under a name is its own, and is no enrolled node's."""
    monkeypatch.setattr("edge_sdk.tools.credentials.provision.save_site", lambda path, site: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_site(tmp_path)
    monkeypatch.undo()
    make_site(tmp_path)
    assert states(tmp_path)["a"] == "good"


def listed(site: Path) -> int:
    """Number of certificates that the broker refuses."""
    return run_openssl(site / "broker", "crl", "-in", "crl.pem", "-noout", "-text").count("Serial Number")


def test_the_brokers_list_is_right_after_a_call_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_site(tmp_path)
    call(tmp_path, "--devices", "a")
    assert listed(tmp_path) == 1
    for arguments, after in ((("--devices", "a", "b"), 0), (("--revoke", "b"), 1)):
        monkeypatch.setattr("edge_sdk.tools.credentials.authority.Authority.write_list", lambda authority, path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main(["provision", str(tmp_path), *arguments])
        monkeypatch.undo()
        monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", SECRET)
        call(tmp_path, *arguments)
        assert listed(tmp_path) == after
