"""People invite and decide: in the console, on the command line, and while the service is killed in between."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.administration.certificates import Enrolling
from aggregator.service.database import audit
from aggregator.service.database.database import runs
from aggregator.service.fleet.enrolment import APPROVE, REMOVE
from aggregator.service.runs.runs import RUNNING, Wanted, add_run
from edge_sdk.cli import main
from edge_sdk.errors import AuscultError
from edge_sdk.nodes.daemon.hospital_service import HospitalService
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from edge_sdk.tools.credentials.enrol import Applicant, Desk
from tests.aggregator.service.asking import CLAIM, ask
from tests.aggregator.service.conftest import CLASSES, secret_in
from tests.delivery.fleet import eventually
from tests.wire.sites import SECRET, make_site

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def test_operators_invite_and_decide_in_the_console(browse: Callable[..., Any], service: Any, tmp_path: Path) -> None:
    viewer, operator = browse("viewer"), browse("operator")
    csrf = secret_in(operator.get("/enrolment").text)
    form = {"csrf": csrf, "hospital": "north", "hours": "1"}
    assert viewer.post("/enrolment/token", data=form).status_code == 403
    assert operator.post("/enrolment/token", data={**form, "csrf": "x"}).status_code == 403
    page = operator.post("/enrolment/token", data=form).text
    token = page.partition("--token ")[2].partition(" ")[0]
    assert "approved at once" in page and token not in operator.get("/enrolment").text
    ask(service, tmp_path, "watch-7", token)
    assert "watch-7 asks to be enrolled" in operator.get("/").text
    assert viewer.post("/enrolment/watch-7/approve", data={"csrf": csrf}).status_code == 403
    assert "Approve watch-7" not in viewer.get("/enrolment").text
    assert operator.post("/enrolment/watch-7/approve", data={"csrf": csrf}).status_code == 303
    assert "Remove watch-7" in operator.get("/enrolment?q=watch").text
    assert operator.post("/enrolment/watch-7/approve", data={"csrf": csrf}).status_code == 409
    assert "auscult enrol" in operator.post("/enrolment/watch-7/replace", data={"csrf": csrf}).text
    said = viewer.get("/api/v1/fleet/watch-7").json()["error"]
    assert said == "'watch-7': no hospital reports it; it has enrolled here, and is lost"
    assert operator.post("/enrolment/token", data={**form, "hours": "soon"}).status_code == 422
    assert browse().get("/enrolment").status_code == 303  # to the page for signing in


def commands_of(service: Any, desk: Desk, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Words of `auscult fleet` -> what it prints."""
    service.write_connection(desk.url)

    def fleet(*words: str) -> str:
        assert main(["fleet", *words, "--service", str(service.file.directory)]) == 0
        return capsys.readouterr().out

    return fleet


def test_the_command_line_does_the_same(
    served: tuple[Any, Desk], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service, desk = served
    fleet = commands_of(service, desk, capsys)
    printed = fleet("token", "--hospital", "north", "--name", "watch-7")
    assert printed.startswith("auscult enrol watch-7 --token ") and desk.url in printed
    Applicant("watch-7", tmp_path / "w").begin(desk, printed.split()[4])
    assert "waiting" in fleet("requests")
    assert fleet("approve", "watch-7") == "watch-7: approved\n"
    assert fleet("suspend", "watch-7") == "watch-7: suspended\n"
    assert "--token" in fleet("replace", "watch-7")
    assert '"state": "lost"' in fleet("requests", "--json")
    assert main(["fleet", "approve", "nobody", "--service", str(service.file.directory)]) == 1


def test_an_invitation_that_somebody_else_has_read_is_ended(
    served: tuple[Any, Desk], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could be found nowhere: whoever had read it came in with it for as long as it lasted, up to a year."""
    service, desk = served
    fleet = commands_of(service, desk, capsys)
    token = fleet("token", "--hospital", "north", "--approved", "--hours", "8760").split()[4]
    listed = fleet("invitations")
    assert "any device of north" in listed and "approved at once" in listed and token.partition(".")[0] not in listed
    id = listed.split()[0]
    assert fleet("revoke", id) == f"{id}: nobody can enrol with it any more\n" and fleet("invitations") == ""
    with pytest.raises(AuscultError, match="none of this service's"):
        Applicant("watch-9", tmp_path / "w").begin(desk, token)
    assert main(["fleet", "revoke", id, "--service", str(service.file.directory)]) == 1


def test_an_invitation_is_ended_in_the_console(browse: Callable[..., Any], service: Any) -> None:
    service.desk.make_token("ada", "north")
    id, operator = service.enrolment.list_tokens()[0]["id"], browse("operator")
    page = operator.get("/enrolment").text
    assert "any device of north" in page and "any device of north" not in browse("viewer").get("/enrolment").text
    form = {"csrf": secret_in(page)}
    assert operator.post(f"/enrolment/token/{id}/revoke", data=form).status_code == 303
    assert not service.enrolment.list_tokens()
    assert operator.post(f"/enrolment/token/{id}/revoke", data=form).status_code == 404


def test_who_is_removed_leaves_no_invitation_behind(service: Any, tmp_path: Path) -> None:
    """Neither does a node: with what it was invited with before it came back, approved."""
    service.people.make_key("token", "robot", "operator", 60.0, "test")
    service.desk.make_token("robot", "north", hours=8760, approved=True)
    kept = service.desk.make_token("ada", "north", "watch-7")
    service.people.remove("robot", "test")
    assert [row["by"] for row in service.enrolment.list_tokens()] == ["ada"]
    ask(service, tmp_path, "watch-7", kept)
    service.desk.decide("watch-7", APPROVE, "ada")
    service.desk.make_token("ada", "north", "watch-7", approved=True)
    service.desk.decide("watch-7", REMOVE, "ada")
    assert service.enrolment.list_tokens() == []


def test_who_may_invite_no_more_leaves_no_invitation_behind(service: Any) -> None:
    """An operator who became a viewer could still let a device in, approved, with an invitation of before."""
    service.people.add("eve", "operator", "a long password", "test")
    service.desk.make_token("eve", "north", hours=8760, approved=True)
    service.people.add("eve", "approver", "a long password", "test")
    assert [row["by"] for row in service.enrolment.list_tokens()] == ["eve"], "an approver may invite, too"
    service.people.add("eve", "viewer", "a long password", "test")
    assert service.enrolment.list_tokens() == []


def test_with_a_leaked_token_ends_what_was_invited_with_it(service: Any) -> None:
    """Whoever had it could make invitations for a year, which stayed good when it was revoked."""
    service.desk.make_token("robot", "north", "watch-1")  # before, with another one
    service.people.make_key("token", "robot", "operator", 60.0, "test")
    service.desk.make_token("robot", "north", "watch-2", hours=8760, approved=True)
    service.desk.make_token("ada", "north", "watch-3")
    service.people.revoke_token(service.people.list_tokens()[0]["id"], "test")
    assert sorted(row["name"] for row in service.enrolment.list_tokens()) == ["watch-1", "watch-3"]
    entry = audit.list_latest(service.database, 1)[0]
    assert entry["action"] == "token.revoke" and json.loads(entry["detail"])["invitations"] == 1


def begin_run(service: Any, method: str, **settings: Any) -> str:
    """A run that is under way at hospital north, as the table says."""
    id = add_run(service.database, Wanted(method=method, **settings), CLASSES, "test")
    with service.database.transaction() as t:
        t.execute(runs.update().where(runs.c.id == id).values(state=RUNNING, hospitals={"north": 2}))
    return id


def test_whoever_changes_the_fleet_is_told_which_runs_that_does_not_change(
    browse: Callable[..., Any], service: Any, tmp_path: Path
) -> None:
    """It once stood in the documentation alone."""
    operator = browse("operator")
    csrf = {"csrf": secret_in(operator.get("/enrolment").text)}
    for name, hospital in (("watch-7", "north"), ("watch-8", "west"), ("east", "")):
        ask(service, tmp_path, name, service.desk.make_token("test", hospital, name))
    begin_run(service, "fedavg")  # it can do with others
    assert operator.post("/enrolment/watch-7/approve", data=csrf).status_code == 303
    noisy = begin_run(service, "fedavg", privacy={"clip": 1.0, "epsilon": 8.0, "cohort": 1})
    said = operator.post("/enrolment/watch-7/suspend", data=csrf)
    assert said.status_code == 200 and f"Run {noisy} keeps the devices of its start: what its noise hides" in said.text
    assert operator.post("/enrolment/watch-8/approve", data=csrf).status_code == 303  # a device of another hospital
    assert f"Run {noisy} keeps the hospitals of its start" in operator.post("/enrolment/east/approve", data=csrf).text


def test_a_killed_service_carries_out_what_was_decided(make_service: Callable[..., Any], tmp_path: Path) -> None:
    service = make_service()
    ask(service, tmp_path, "watch-7", service.desk.make_token("ada", "north", approved=True))
    service.desk.fetch({"name": "watch-7", "claim": CLAIM})
    service.enrolment.change("watch-7", REMOVE, "ada")  # and killed before anything followed from it
    assert [one.is_good for one in service.office.provisioner.authority.list_issued()] == [True]
    again = make_service()
    again.desk.bring_up()
    assert [one.is_good for one in again.office.provisioner.authority.list_issued()] == [False]


def test_a_running_hospital_takes_in_who_is_approved_and_lets_go_who_is_removed(
    tmp_path: Path, quick: LocalBroker, make_service: Callable[..., Any]
) -> None:
    """Over a real broker, with no file edited and nothing started again."""
    service = make_service(broker=quick.url, hospitals={})
    bundle = find_shipped_bundle("wrist.bundle")
    text = f'name = "north"\naggregator = "cloud"\nbroker = "{quick.url}"\nbundle = "{bundle}"\n'
    path = tmp_path / "north.toml"
    path.write_text(text + 'directory = "north"\nenrolled = true\nreports = "names"\n')
    hospital = HospitalService(path)
    thread = threading.Thread(target=hospital.run, daemon=True)
    service.monitor.start()
    eventually(lambda: service.monitor.is_connected)  # else the first report is missed, and the next is long in coming
    thread.start()
    try:
        ask(service, tmp_path, "watch-7", service.desk.make_token("ada", "north"))
        eventually(lambda: [h.name for h in service.monitor.list_hospitals()] == ["north"])
        assert hospital.runtime.children == ()
        service.desk.decide("watch-7", APPROVE, "ada")
        eventually(lambda: hospital.runtime.children == ("watch-7",))
        eventually(lambda: service.find_fleet().present == {"north": 1})
        service.desk.decide("watch-7", REMOVE, "ada")
        eventually(lambda: hospital.runtime.children == ())
        assert HospitalService(path).file.devices == ()  # as a restart would read it
    finally:
        hospital.stop()
        thread.join(20)
        service.monitor.stop()


def test_of_two_who_tell_the_broker_the_later_one_has_the_last_word(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads the list of members and is slow to write it; meanwhile another one is approved."""
    told: list[list[tuple[str, str]]] = []
    has_read, is_over = threading.Event(), threading.Event()
    monkeypatch.setattr(service.office, "tell_broker", lambda pairs: told.append([*pairs]))

    def write_slowly(devices: Any) -> None:
        if not has_read.is_set():
            has_read.set()
            is_over.wait(0.3)

    monkeypatch.setattr(service.desk.masks, "write_list", write_slowly)
    slow = threading.Thread(target=service.desk.tell_all)
    slow.start()
    assert has_read.wait(60)
    ask(service, tmp_path, "d1", service.desk.make_token("ada", "north", approved=True))
    is_over.set()
    slow.join()
    assert told[-1] == [("north", "d1")]


def test_a_broker_that_could_not_be_told_needs_a_person(make_service: Any, tmp_path: Path) -> None:
    """Who was removed might still come, and only the log said so."""
    from aggregator.service.application.alerts import list_needs

    (tmp_path / "reload").write_text("echo not allowed >&2; exit 3")
    service = make_service(enrolment=Enrolling(reload=("sh", str(tmp_path / "reload"))))
    service.office.reload_broker()
    [need] = [need for need in list_needs(service) if need.link == "/enrolment"]
    assert need.what == "The broker was not told who may come"
    assert need.why.endswith("exit code 3: not allowed; who was removed may still come")
    (tmp_path / "reload").write_text("")
    service.office.reload_broker()
    assert "/enrolment" not in {need.link for need in list_needs(service)}
    gone = make_service(enrolment=Enrolling(reload=(str(tmp_path / "nothing"),)))
    gone.office.reload_broker()
    assert "No such file or directory; who was" in gone.office.trouble


def test_a_folder_of_the_broker_that_cannot_be_written_needs_a_person(
    make_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service ended with two tracebacks, of which the last one was that a thread had not been started."""
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", SECRET)
    make_site(tmp_path / "site")
    service = make_service(enrolment=Enrolling(site=tmp_path / "site"))
    folder = tmp_path / "site" / "broker"
    folder.rename(tmp_path / "away")
    folder.touch()
    service.desk.bring_up()
    assert service.office.trouble.endswith(f"enrolment.site: {folder}: Not a directory; who was removed may still come")
    folder.unlink()
    (tmp_path / "away").rename(folder)
    service.desk.bring_up()
    assert not service.office.trouble
    service.supervisor.stop()
    service.monitor.stop()
