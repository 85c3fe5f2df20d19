"""A device or a hospital joins the fleet with a token: over HTTP, with its own key, and nothing copied by hand."""

from __future__ import annotations

import base64
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from aggregator.service.administration.certificates import Enrolling, check_request
from aggregator.service.database.database import tables
from aggregator.service.fleet.enrolment import APPROVE, DENY, REMOVE, REPLACE, SUSPEND, TokenRefusedError
from aggregator.service.fleet.rosters import LEAP, Rosters
from aggregator.service.runs.runs import NotPossibleError
from edge_sdk.cli import main
from edge_sdk.errors import UsageError
from edge_sdk.live.membership.roster import read_roster
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.settings_files import HospitalFile
from edge_sdk.tools.credentials.certificates import load_certificate
from edge_sdk.tools.credentials.enrol import Applicant, Desk, NotEnrolledError
from edge_sdk.tools.credentials.own_key import LibraryTool, OpensslTool, complete_pair, find_key_tool
from edge_sdk.tools.credentials.provision import provision
from edge_sdk.tools.credentials.site import Site
from tests.aggregator.service.asking import CLAIM, ask, request_of
from tests.aggregator.service.fleet.test_fleet import REPORT
from tests.wire.sites import SECRET

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def test_a_device_enrols_with_one_command(
    served: tuple[Any, Desk], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, desk = served
    monkeypatch.chdir(tmp_path)
    token = service.desk.make_token("ada", "north")
    (tmp_path / "w.csv").write_text("")
    command = ["enrol", "watch-7", "--token", token, "--at", desk.url]
    assert main([*command, "--wait", "0"]) == 1  # nobody has approved it yet
    assert "waits for approval" in capsys.readouterr().err
    service.desk.decide("watch-7", APPROVE, "ada")
    assert main(["enrol", "watch-7", "--trace", "w.csv"]) == 0  # it knows the rest
    settings = (tmp_path / "watch-7" / "watch-7.toml").read_text()
    assert 'hospital = "north"' in settings and str(tmp_path / "w.csv") in settings and "[wire]" not in settings
    certificate = load_certificate(tmp_path / "watch-7" / "watch-7.crt")
    assert certificate.name == "watch-7" and certificate.purposes == {"client"}
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "watch-7").iterdir()} == {0}
    assert service.enrolment.list_devices("north") == ("watch-7",)
    assert (tmp_path / "watch-7" / "wrist.bundle").stat().st_size == service.registry.path_of().stat().st_size


def test_a_hospitals_settings_can_be_started_as_they_are(served: tuple[Any, Desk], tmp_path: Path) -> None:
    service, desk = served
    applicant = Applicant("west", tmp_path / "west")
    applicant.begin(desk, service.desk.make_token("ada", approved=True))
    file = read_toml(applicant.take(desk, applicant.wait(desk, 0), None), HospitalFile)
    assert (file.name, file.aggregator, file.devices, file.enrolled) == ("west", "cloud", (), True)
    assert "west" not in service.enrolment.list_barred()
    service.desk.decide("west", SUSPEND, "ada")
    assert service.enrolment.list_barred() == {"west"}


@pytest.mark.parametrize("decision", ["", DENY])
def test_who_only_asks_for_a_hospitals_name_does_not_bar_it(service: Any, tmp_path: Path, decision: str) -> None:
    """A hospital of the settings works in runs, and somebody with any token asks under its name."""
    ask(service, tmp_path, "north", service.desk.make_token("ada"))
    if decision:
        service.desk.decide("north", decision, "ada")
    assert not service.enrolment.list_barred() and "north" in service.find_fleet().present


def test_an_interrupted_enrolment_goes_on(served: tuple[Any, Desk], tmp_path: Path) -> None:
    """Each step once more, as after a kill or an answer that was lost."""
    service, desk = served
    token = service.desk.make_token("ada", "north", approved=True)
    for _ in range(2):
        applicant = Applicant("watch-7", tmp_path / "w")
        applicant.begin(desk, token)
    one, two = (applicant.wait(desk, 0)["certificate"] for _ in range(2))
    assert one == two
    with pytest.raises(NotEnrolledError, match="has been used"):
        Applicant("watch-8", tmp_path / "other").begin(desk, token)
    with pytest.raises(UsageError, match="is the folder of watch-7"):
        Applicant("watch-9", tmp_path / "w").begin(desk, token)


def test_a_token_works_once_for_whom_it_is_for_until_it_ends(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = service.desk.make_token("ada", "north", name="watch-7", hours=1)
    with pytest.raises(TokenRefusedError, match="is for watch-7, not for watch-8"):
        ask(service, tmp_path, "watch-8", token)
    with pytest.raises(TokenRefusedError, match="none of this service's"):
        ask(service, tmp_path, "watch-7", "guessed." + token.partition(".")[2])
    assert ask(service, tmp_path, "watch-7", token)["state"] == "waiting"
    with pytest.raises(TokenRefusedError, match="has been used"):
        ask(service, tmp_path, "watch-7", token, claim="d" * 40)
    late = service.desk.make_token("ada", "north", hours=1)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3700)
    with pytest.raises(TokenRefusedError, match="has ended"):
        ask(service, tmp_path, "watch-8", late)
    kept = repr([service.database.read(sql.select(table)) for table in tables.sorted_tables])
    kept += repr([path.read_bytes() for path in service.file.directory.glob("service.db*")])  # pages may have more
    assert "watch-7" in kept and token.partition(".")[0] not in kept and CLAIM not in kept


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "../x"}, "letters, digits"),
        ({"name": "cloud-console"}, "a meaning of its own"),
        ({"name": "Cloud-run-2"}, "a meaning of its own"),
        ({"name": "broker"}, "a meaning of its own"),
        ({"name": ""}, "name is missing"),
        ({"claim": "short"}, "32 characters"),
        ({"request": "no request"}, "no certificate request"),
        ({"mask_key": "AAAA"}, "32 bytes in base64"),
        ({"mask_key": "?"}, "32 bytes in base64"),
        ({"mask_key": base64.b64encode(bytes(32)).decode()}, "no public key of X25519"),
    ],
)
def test_what_cannot_be_used_is_refused_and_costs_no_token(
    service: Any, tmp_path: Path, changes: dict[str, str], says: str
) -> None:
    token, name = service.desk.make_token("ada", "north"), changes.get("name", "watch-7")
    about = {"request": request_of(tmp_path, name.replace("/", "") or "x"), **changes}
    if name != "watch-7":
        about["request"] = about["request"]
    with pytest.raises(UsageError, match=says if name == "watch-7" or not name else f"{says}|is for"):
        service.desk.ask({"name": name, "token": token, "claim": CLAIM, **about})
    assert ask(service, tmp_path, "watch-7", token)["state"] == "waiting"


@pytest.mark.parametrize("what", ["ask", "fetch", "renew", "find_bundle"])
@pytest.mark.parametrize("odd", ["\ud800", "\0"])
def test_what_no_database_can_keep_is_refused_before_it_gets_there(
    browse: Any, service: Any, what: str, odd: str
) -> None:
    """Half a character made the service fail for anybody who sent it, each time with a traceback in the log."""
    path = {"ask": "request", "fetch": "state", "find_bundle": "bundle"}.get(what, what)
    about = {"name": f"watch{odd}", "claim": CLAIM, "request": "r", "token": "t", "signature": "s"}
    for key in about:
        table = {**about, "name": "watch-7"} | {key: odd * 40}
        answer = browse().post(f"/enrol/v1/{path}", content=json.dumps(table))
        assert answer.status_code in (403, 422) and "no text" in answer.json()["error"], (key, answer.text)


def test_nobody_enrols_under_the_name_of_a_node_that_was_made_by_hand(
    make_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device's token once was good for a certificate of the name of a hospital, which may speak for that hospital."""
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", SECRET)
    files = tmp_path / "site"
    site = Site(host="fleet.example", hospital="west", devices=("bed-1",), aggregator="cloud", hospitals=("east",))
    provision(files, site, SECRET)
    service = make_service(enrolment=Enrolling(site=files), hospitals={"north": 2})
    service.monitor.take("auscult/v1/cloud/south/up/f", json.dumps({**REPORT, "node": "south"}).encode())
    for i, name in enumerate(("west", "east", "bed-1", "BED-1", "fleet.example", "north", "south")):
        token = service.desk.make_token("ada", "north", approved=True)
        with pytest.raises(UsageError, match="is another node's"):
            ask(service, tmp_path, name, token)
        with pytest.raises(UsageError, match="is another node's"):
            service.desk.make_token("ada", "north", name=name)
        assert ask(service, tmp_path, f"watch-{i}", token)["state"] == "approved"  # it was not used up
        if name in ("north", "south"):  # the hospital itself enrols
            assert ask(service, tmp_path, name, service.desk.make_token("ada"))["kind"] == "hospital"
            continue
        with pytest.raises(UsageError, match="is another node's"):
            ask(service, tmp_path, name, service.desk.make_token("ada"))


def test_nobody_is_approved_under_a_name_that_was_made_by_hand_meanwhile(
    make_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", SECRET)
    files = tmp_path / "site"
    site = Site(host="fleet.example", hospital="west", devices=("bed-1",), aggregator="cloud")
    provision(files, site, SECRET)
    service = make_service(enrolment=Enrolling(site=files), hospitals={"north": 2})
    assert ask(service, tmp_path, "bed-2", service.desk.make_token("ada", "west"))["state"] == "waiting"
    provision(files, replace(site, devices=("bed-1", "bed-2")), SECRET)
    with pytest.raises(UsageError, match="is another node's"):
        service.desk.decide("bed-2", "approve", "ada")
    assert service.enrolment.find("bed-2")["state"] == "waiting"
    assert service.desk.decide("bed-2", "deny", "ada")["state"] == "denied"
    service.desk.bring_up()
    issued = service.office.provisioner.authority.list_issued()
    assert not [one for one in issued if one.revoked], "what was made by hand was taken back with the request"


def test_a_request_is_for_its_own_name_and_strong(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    with pytest.raises(UsageError, match="is for north, expected watch-7"):
        check_request(request_of(tmp_path, "north"), "watch-7")
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "watch-7")])
    weak = x509.CertificateSigningRequestBuilder().subject_name(name)
    signed = weak.sign(rsa.generate_private_key(65537, 1024), hashes.SHA256())
    with pytest.raises(UsageError, match="its key is weak"):
        check_request(signed.public_bytes(serialization.Encoding.PEM).decode(), "watch-7")


def test_both_tools_make_what_the_service_takes(tmp_path: Path) -> None:
    for tool in (OpensslTool(), LibraryTool()):
        path = tmp_path / f"{type(tool).__name__}.key"
        tool.make_key(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert len(check_request(tool.make_request(path, "watch-7"), "watch-7")) == 64


def test_a_machine_without_either_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"openssl command .* or the library cryptography"):
        find_key_tool()


# What people decide -------------------------------------------------------------------------------------------------


def test_each_decision_is_possible_where_it_makes_sense(service: Any, tmp_path: Path) -> None:
    token = service.desk.make_token("ada", "north")
    ask(service, tmp_path, "watch-7", token)
    with pytest.raises(NotPossibleError, match="watch-7 is waiting; possible: approve, deny"):
        service.desk.decide("watch-7", SUSPEND, "ada")
    states = [service.desk.decide("watch-7", a, "ada")["state"] for a in (APPROVE, SUSPEND, APPROVE, REMOVE)]
    assert states == ["approved", "suspended", "approved", "removed"]
    with pytest.raises(NotPossibleError, match="possible: nothing but asking anew"):
        service.desk.decide("watch-7", APPROVE, "ada")
    again = service.desk.make_token("ada", "south")
    ask(service, tmp_path, "watch-7", again, claim="e" * 40)
    assert service.desk.decide("watch-7", DENY, "ada")["state"] == "denied"


def test_a_lost_device_is_replaced_under_its_name(served: tuple[Any, Desk], tmp_path: Path) -> None:
    service, desk = served
    lost = Applicant("watch-7", tmp_path / "lost")
    lost.begin(desk, service.desk.make_token("ada", "north", approved=True))
    serial = lost.wait(desk, 0)
    token = service.desk.decide("watch-7", REPLACE, "ada")["token"]
    assert service.enrolment.list_devices("north") == ()
    with pytest.raises(NotEnrolledError, match="is lost"):
        lost.wait(desk, 0)
    found = Applicant("watch-7", tmp_path / "new")
    found.begin(desk, token)
    assert found.wait(desk, 0)["certificate"] != serial["certificate"]
    issued = service.office.provisioner.authority.list_issued()
    assert [one.revoked for one in issued if one.name == "watch-7"] == [True, False]
    with pytest.raises(NotEnrolledError, match="with this claim"):
        lost.wait(desk, 0)


def test_rosters_have_rising_numbers_also_after_an_old_database_was_put_back(service: Any, tmp_path: Path) -> None:
    rosters = Rosters(service.database, service.enrolment)
    assert rosters.bring_up("north", 0) == (0, [])
    for name in ("watch-7", "watch-8"):
        ask(service, tmp_path, name, service.desk.make_token("ada", "north", approved=True))
    assert rosters.bring_up("north", 0) == (1, ["watch-7", "watch-8"]) == rosters.bring_up("north", 1)
    service.desk.decide("watch-8", SUSPEND, "ada")
    assert rosters.bring_up("north", 1) == (2, ["watch-7"])
    assert rosters.bring_up("north", 40) == (41, ["watch-7"])
    assert rosters.bring_up("north", 2**31 - 1) == (41 + LEAP + 1, ["watch-7"])  # a lie takes it as far, and no further
    assert rosters.bring_up("south", 2**31 - 1) == (LEAP + 1, [])

    class Line:
        up, room = True, 1
        sent: tuple[str, bytes] = ("", b"")

        def publish(self, topic: str, payload: bytes, quality: int) -> None:
            self.sent = topic, payload

    line = Line()
    rosters.answer(line, "north", 7)  # type: ignore[arg-type]
    assert line.sent[0] == "auscult/v1/cloud/north/down/r" and read_roster(line.sent[1], "north")[1] == ("watch-7",)
    line = Line()
    rosters.answer(line, "north", 41 + LEAP + 1)  # type: ignore[arg-type]
    rosters.answer(line, "south", None)  # type: ignore[arg-type]
    assert line.sent == ("", b"")


# Certificates -------------------------------------------------------------------------------------------------------


def test_a_certificate_is_renewed_with_the_key_of_the_present_one(served: tuple[Any, Desk], tmp_path: Path) -> None:
    service, desk = served
    applicant = Applicant("watch-7", tmp_path / "w")
    applicant.begin(desk, service.desk.make_token("ada", "north", approved=True))
    applicant.take(desk, applicant.wait(desk, 0), None)
    before = {name: (tmp_path / "w" / f"watch-7.{name}").read_text() for name in ("key", "crt")}
    assert applicant.renew(desk, before=60) is None  # it is good for 825 days
    days = applicant.renew(desk, before=1000)
    assert days is not None and days > 800
    after = {name: (tmp_path / "w" / f"watch-7.{name}").read_text() for name in ("key", "crt")}
    assert before["key"] != after["key"] and before["crt"] != after["crt"]
    shutil.copy(tmp_path / "w" / "watch-7.key", tmp_path / "w" / "watch-7.key.next")
    assert applicant.renew(desk, before=1000) is not None  # as if our answer had been lost: the same key once more
    stranger = LibraryTool()
    stranger.make_key(tmp_path / "stranger.key")
    forged = stranger.make_request(tmp_path / "stranger.key", "watch-7")
    table = {
        "name": "watch-7",
        "request": forged,
        "signature": stranger.sign(tmp_path / "stranger.key", forged.encode()),
    }
    with pytest.raises(NotEnrolledError, match="not signed with the key of the present certificate"):
        desk.ask("renew", table)
    with pytest.raises(NotEnrolledError, match="not signed with the key"):
        desk.ask("renew", {**table, "signature": base64.b64encode(b"x" * 70).decode()})
    service.desk.decide("watch-7", SUSPEND, "ada")
    with pytest.raises(NotEnrolledError, match="watch-7 is suspended"):
        applicant.renew(desk, before=1000)


def test_a_renewal_that_was_cut_between_two_files_is_ended(tmp_path: Path) -> None:
    for name, text in (("w.key", "old"), ("w.crt", "old"), ("w.key.next", "new"), ("w.crt.next", "new")):
        (tmp_path / name).write_text(text)
    (tmp_path / "w.key.next").replace(tmp_path / "w.key")  # killed here
    complete_pair(tmp_path, "w")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"w.key": "new", "w.crt": "new"}
    (tmp_path / "w.key.next").write_text("newer")  # asked, and not answered yet
    complete_pair(tmp_path, "w")
    assert (tmp_path / "w.key").read_text() == "new"


def test_another_authority_than_the_tokens_is_not_believed(served: tuple[Any, Desk], tmp_path: Path) -> None:
    service, desk = served
    token = service.desk.make_token("ada", "north", approved=True)
    applicant = Applicant("watch-7", tmp_path / "w")
    applicant.begin(desk, token.partition(".")[0] + "." + "0" * 32)
    with pytest.raises(NotEnrolledError, match="not the one that the token names"):
        applicant.take(desk, applicant.wait(desk, 0), None)
    assert not (tmp_path / "w" / "watch-7.toml").exists()


def test_a_token_does_not_leave_the_machine_as_plain_text() -> None:
    with pytest.raises(UsageError, match="as plain text; use https"):
        Desk("http://fleet.example")
    assert Desk("https://fleet.example") and Desk("http://fleet.example", insecure=True)
    with pytest.raises(UsageError, match="expected the address"):
        Desk("fleet.example")
