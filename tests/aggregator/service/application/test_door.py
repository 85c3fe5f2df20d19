"""The console as an attacker would try it: other hosts, foreign forms, missing roles, texts that want to be scripts."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from argon2.exceptions import VerificationError

from aggregator.service.administration.accounts import ADMIN, TOKEN, SignInError
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.wrong_passwords import TRIES, TRIES_OF_ALL
from aggregator.service.application import forms
from aggregator.service.application.guard import HEADERS, LARGEST_FORM
from aggregator.service.application.password_checks import AT_ONCE, EACH, WAITING, Door
from aggregator.service.database.database import keys
from aggregator.service.fleet.monitor import to_hospital
from aggregator.service.runs.runs import Wanted, add_run, find_run
from edge_sdk.errors import UsageError
from tests.aggregator.service.conftest import CLASSES, PASSWORD, secret_in
from tests.delivery.fleet import eventually

PAGES = (
    "/",
    "/fleet",
    "/runs",
    "/models",
    "/audit",
    "/compare",
    "/events",
    "/runs/fedslr-1",
    "/runs/fedslr-1/rounds.csv",
)
SCRIPT = "<script>alert(1)</script>"


@pytest.mark.parametrize("page", [*PAGES, "/runs/new", "/api/v1/runs", "/api/v1/fleet"])
def test_nobody_reads_anything_without_signing_in(browse: Any, page: str) -> None:
    answer = browse().get(page)
    assert (answer.status_code, answer.headers.get("location")) in [(303, "/sign-in"), (401, None)]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", ""])
def test_another_host_is_not_answered(browse: Any, host: str) -> None:
    """A foreign name that points here must not make this console part of a foreign page."""
    assert browse().get("/sign-in", headers={"host": host}).status_code == 421


def test_every_answer_has_its_headers(browse: Any) -> None:
    for page in ("/sign-in", "/nothing", "/static/style.css", "/api/v1/runs"):
        answer = browse().get(page)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert browse().get("/sign-in").headers["cache-control"] == "no-store"
    assert "script-src 'self'" in HEADERS["content-security-policy"]


def test_a_form_without_the_secret_of_its_session_changes_nothing(browse: Any, service: Any) -> None:
    id = add_run(service.database, Wanted(), CLASSES, "test")
    browser = browse("operator")
    right = secret_in(browser.get(f"/runs/{id}").text)
    other = secret_in(browse("admin").get(f"/runs/{id}").text)
    for given in ({}, {"csrf": ""}, {"csrf": other}, {"csrf": right[:-1]}):
        assert browser.post(f"/runs/{id}/stop", data=given).status_code == 403
    assert browser.post(f"/api/v1/runs/{id}/stop", json={}).status_code == 403
    assert find_run(service.database, id)["state"] == "queued"
    foreign = {"origin": "https://evil.example"}
    assert browser.post(f"/runs/{id}/stop", data={"csrf": right}, headers=foreign).status_code == 403
    assert browser.post(f"/runs/{id}/stop", data={"csrf": right}).status_code == 303
    assert find_run(service.database, id)["state"] == "stopped"


def test_a_viewer_reads_and_changes_nothing(browse: Any, service: Any) -> None:
    id = add_run(service.database, Wanted(), CLASSES, "test")
    browser = browse("viewer")
    page = browser.get(f"/runs/{id}")
    assert page.status_code == 200 and "Pause" not in page.text
    secret = {"csrf": secret_in(page.text)}
    assert browser.post(f"/runs/{id}/stop", data=secret).status_code == 403
    assert browser.post("/runs", data=secret | {"method": "fedavg"}).status_code == 403
    assert browser.get("/runs/new").status_code == 403


def test_wrong_passwords_are_counted_and_names_are_not_told(browse: Any, service: Any) -> None:
    service.people.add("ada", "viewer", PASSWORD, "test")
    browser = browse()
    said = set()
    for name in ("ada", "nobody"):
        answers = [browser.post("/sign-in", data={"name": name, "password": "wrong"}) for _ in range(TRIES)]
        said |= {answer.text for answer in answers}
        assert {answer.status_code for answer in answers} == {401}
    assert len(said) == 1
    assert "too many" in browser.post("/sign-in", data={"name": "ada", "password": PASSWORD}).text


def post(url: str, name: str) -> int:
    """Status of an attempt to sign in at a service that is served for real."""
    body = urllib.parse.urlencode({"name": name, "password": "guessed"}).encode()
    try:
        with urllib.request.urlopen(f"{url}/sign-in", body, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_guessed_passwords_do_not_keep_the_console_from_others(
    served: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checking a password takes long on purpose: nobody else was answered meanwhile, and anybody can send guesses."""
    service, desk = served
    goes_on, begun = threading.Event(), []

    def verify(kept: str, password: str) -> None:
        begun.append(password)
        assert goes_on.wait(60)
        raise VerificationError

    monkeypatch.setattr(type(service.people.hasher), "verify", lambda self, kept, password: verify(kept, password))
    try:
        with ThreadPoolExecutor(EACH + 5) as pool:
            answers = [pool.submit(post, desk.url, f"name{i}") for i in range(EACH + 5)]
            try:
                eventually(lambda: sum(answer.done() for answer in answers) == 5)
                with urllib.request.urlopen(f"{desk.url}/sign-in", timeout=30) as answer:
                    assert answer.status == 200
                assert len(begun) == AT_ONCE
            finally:
                goes_on.set()
            assert sorted(answer.result() for answer in answers) == [401] * EACH + [503] * 5
    finally:
        goes_on.set()


def test_no_machine_alone_stands_in_the_door_for_all_others() -> None:
    """Whoever sent guesses without an end, under ever new names, kept everybody from signing in."""

    async def crowd(addresses: list[str]) -> list[bool]:
        door, goes_on = Door(), threading.Event()
        checks = [asyncio.create_task(door.check(a, lambda: goes_on.wait(60) and ("", ""))) for a in addresses]
        await asyncio.sleep(0)
        full = [door.is_full(address) for address in ("192.0.2.1", "2001:db8::2", "192.0.2.9")]
        goes_on.set()
        await asyncio.gather(*checks)
        assert not door.inside
        return full

    one, network = ["192.0.2.1"] * EACH, [f"2001:db8::{i:x}" for i in range(EACH)]
    assert asyncio.run(crowd(one)) == [True, False, False]
    assert asyncio.run(crowd(network)) == [False, True, False]
    assert asyncio.run(crowd(one + network)) == [True] * 3 and len(one + network) == AT_ONCE + WAITING


def test_who_is_removed_while_the_password_is_checked_gets_no_session(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.people.add("eve", "viewer", PASSWORD, "test")
    monkeypatch.setattr(type(service.people.hasher), "verify", lambda *_: service.people.remove("eve", "test"))
    with pytest.raises(SignInError):
        service.people.sign_in("eve", PASSWORD)
    assert service.people.list_with_sessions() == []


def test_guesses_under_ever_new_names_fill_no_memory(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(self: Any, kept: str, password: str) -> None:
        raise VerificationError

    monkeypatch.setattr(type(service.people.hasher), "verify", verify)
    monkeypatch.setattr("aggregator.service.administration.wrong_passwords.MOST_COUNTED", 50)
    for name in [*map(str, range(200)), "x" * 200_000, "\0"]:
        with pytest.raises(SignInError):
            service.people.sign_in(name, "guessed")
    kept = service.people.wrong.tries
    assert len(kept) == 50 and max(len(name) for name, _ in kept) < 65


def guess(service: Any, name: str, address: str, count: int) -> None:
    for _ in range(count):
        with pytest.raises(SignInError, match="do not go together"):
            service.people.sign_in(name, "guessed", address)


def test_a_stranger_keeps_nobody_out(service: Any) -> None:
    """Five guesses make the stranger wait; the one who has the name signs in from elsewhere meanwhile."""
    service.people.add("ada", "admin", PASSWORD, "test")
    for address, neighbour in (("192.0.2.7", "192.0.2.8"), ("2001:db8::7", "2001:db8:0:1::7")):
        guess(service, "ada", address, TRIES)
        with pytest.raises(SignInError, match="too many"):
            service.people.sign_in("ada", PASSWORD, address)
        assert service.people.sign_in("ada", PASSWORD, neighbour)
    with pytest.raises(SignInError, match="too many"):
        service.people.sign_in("ada", PASSWORD, "2001:db8::8")  # another address of the same machine


def test_a_crowd_of_strangers_keeps_nobody_out_who_was_here_before(service: Any) -> None:
    service.people.add("ada", "admin", PASSWORD, "test")
    service.people.add("eve", "viewer", PASSWORD, "test")
    _, proof = service.people.sign_in("ada", PASSWORD, "192.0.2.1")
    _, other = service.people.sign_in("eve", PASSWORD, "192.0.2.2")
    for i in range(TRIES_OF_ALL // TRIES):
        guess(service, "ada", f"198.51.100.{i}", TRIES)
    for wrong in ("", other, "made up"):
        with pytest.raises(SignInError, match="too many"):
            service.people.sign_in("ada", PASSWORD, "203.0.113.1", wrong)
    assert service.people.sign_in("ada", PASSWORD, "203.0.113.1", proof)[1] == proof
    for _ in range(TRIES):
        with pytest.raises(SignInError, match="do not go together"):
            service.people.sign_in("ada", "guessed", "203.0.113.1", proof)
    with pytest.raises(SignInError, match="too many"):
        service.people.sign_in("ada", PASSWORD, "203.0.113.1", proof)  # a stolen proof has five tries, too


def test_the_proof_of_a_browser_opens_nothing(browse: Any, service: Any) -> None:
    service.people.add("ada", "admin", PASSWORD, "test")
    browser = browse()
    answer = browser.post("/sign-in", data={"name": "ada", "password": PASSWORD})
    proof = next(c for c in answer.headers.get_list("set-cookie") if c.startswith("auscult-browser="))
    value = proof.split(";")[0].partition("=")[2]
    assert "HttpOnly" in proof and "SameSite=strict" in proof
    browser.cookies.clear()
    browser.cookies.set("auscult-session", value)
    assert browser.get("/").status_code == 303
    assert browser.get("/api/v1/runs", headers={"authorization": f"Bearer {value}"}).status_code == 401


def test_a_session_is_for_this_site_alone_and_ends(browse: Any, service: Any) -> None:
    service.people.add("ada", "viewer", PASSWORD, "test")
    browser = browse()
    answer = browser.post("/sign-in", data={"name": "ada", "password": PASSWORD})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    page = browser.get("/")
    assert page.status_code == 200
    held = dict(browser.cookies)
    assert browser.post("/sign-out", data={"csrf": secret_in(page.text)}).status_code == 303
    browser.cookies.update(held)
    assert browser.get("/").status_code == 303  # the cookie that somebody has kept is worth nothing


def test_a_token_has_a_role_and_an_end(browse: Any, service: Any) -> None:
    browser = browse()
    token = service.people.make_key(TOKEN, "robot", "viewer", 60.0, "test")
    heads = {"authorization": f"Bearer {token}"}
    assert browser.get("/api/v1/runs", headers=heads).status_code == 200
    assert browser.post("/api/v1/runs", json={}, headers=heads).status_code == 403
    with service.database.transaction() as t:
        t.execute(keys.update().values(expires=time.time() - 1))
    assert browser.get("/api/v1/runs", headers=heads).status_code == 401
    assert browser.get("/api/v1/runs", headers={"authorization": "Bearer "}).status_code == 401
    with service.database.engine.connect() as t:
        assert token not in str(t.execute(keys.select()).all())  # what is on the disk opens nothing


def test_a_body_that_is_larger_than_any_form_is_not_read(browse: Any) -> None:
    assert browse().post("/sign-in", content=b"a" * (LARGEST_FORM + 1)).status_code == 413
    assert browse().post("/sign-in", content=iter([b"a"] * 3)).status_code == 413


@pytest.mark.parametrize("path", ["/static/../__init__.py", "/static/%2e%2e/__init__.py", "/runs/..%2f..%2fservice.db"])
def test_no_file_is_reached_that_is_none_of_the_consoles(browse: Any, path: str) -> None:
    assert browse("viewer").get(path).status_code == 404


def test_what_others_say_is_text_and_no_page(browse: Any, service: Any) -> None:
    """Names are checked where they enter; reasons, settings and logs may hold anything."""
    child = {
        "name": "a",
        "state": "refuses",
        "refusal": SCRIPT,
        "heard": None,
        "bytes_in": 0,
        "bytes_out": 0,
        "late": 0,
    }
    report = {
        "run": "",
        "refusal": SCRIPT,
        "waiting": SCRIPT,
        "counts": {"refuses": 1},
        "devices": 1,
        "children": [child],
    }
    service.monitor.seen["north"] = to_hospital("north", time.time(), report)
    id = add_run(service.database, Wanted(robust={}), CLASSES, SCRIPT)
    service.supervisor.processes.logs.mkdir(parents=True)
    (service.supervisor.processes.logs / f"{id}.log").write_text(SCRIPT)
    browser = browse("admin")
    for page in ("/", "/fleet", f"/runs/{id}", f"/fleet?q={SCRIPT}", f"/runs/new?from={id}", "/audit"):
        text = browser.get(page).text
        assert (SCRIPT not in text and "&lt;script&gt;" in text) or page.startswith("/runs/new")


def test_plain_http_is_not_offered_to_other_machines(service: Any) -> None:
    with pytest.raises(UsageError, match="put a proxy with TLS in front"):
        FleetFile(**{**vars(service.file), "listen": "0.0.0.0:8080"})


def test_the_one_who_may_do_everything_is_not_made_by_itself(browse: Any, service: Any) -> None:
    assert not service.people.list_all()
    assert "auscult people add" in browse().get("/sign-in").text
    with pytest.raises(UsageError, match="at least 10 characters"):
        service.people.add("ada", ADMIN, "short", "test")


def test_a_method_plug_in_that_cannot_be_loaded_leaves_the_others_in_the_form(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(name: str) -> Any:
        raise UsageError(f"method {name}, theirs:METHOD of theirs 1.0: ImportError: no module named gone")

    found = {name for name, _ in forms.list_methods()}
    monkeypatch.setattr(forms, "METHODS", Broken({"broken": ""}, load))
    assert forms.list_methods() == [] and "method broken, theirs:METHOD of theirs 1.0" in caplog.text
    assert "fedavg" in found


class Broken(dict[str, str]):
    """A catalogue whose methods cannot be loaded."""

    def __init__(self, names: dict[str, str], load: Any) -> None:
        super().__init__(names)
        self.load = load

    def __getitem__(self, name: str) -> Any:
        return self.load(name)
