"""Sign-in at a provider of OpenID Connect: a real one in a process of its own, and words that are not its."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from aggregator.service.administration import single_sign_on
from aggregator.service.administration.accounts import SignInError
from aggregator.service.administration.single_sign_on import BACK, ProviderDesk, SingleSignOn
from aggregator.service.application.password_checks import AT_ONCE, EACH
from aggregator.service.server.app import make_app
from edge_sdk.errors import UsageError
from edge_sdk.replay.nodes.broker import find_free_port, wait_until_listening
from tests.delivery.fleet import eventually

pytest.importorskip("joserfc", reason="the extra `oidc` is not installed")
CONSOLE = "http://127.0.0.1"
USERS = ({"sub": "ada", "groups": ["clinic", "admins"]}, {"sub": "bob", "groups": ["clinic"]}, {"sub": "eve"})
ROLES = {"clinic": "viewer", "admins": "admin"}


@pytest.fixture
def database_url() -> str:
    return ""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    if importlib.util.find_spec("oidc_provider_mock") is None:
        pytest.skip("oidc-provider-mock is not installed")
    port = find_free_port()
    users = [part for user in USERS for part in ("--user-claims", json.dumps(user))]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true", *users]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until_listening(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def settings_of(folder: Path, issuer: str, **changes: Any) -> SingleSignOn:
    (folder / "client.secret").write_text("the client's secret\n")
    about = {"issuer": issuer, "client": "auscult", "secret": folder / "client.secret", "console": CONSOLE}
    return SingleSignOn(**{**about, "roles": ROLES, "user": "sub", **changes})


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def sign_in_there(address: str, user: str) -> str:
    """What somebody's browser does at the provider; returns where that sends it."""
    body = urllib.parse.urlencode({"sub": user}).encode()
    try:
        urllib.request.build_opener(Stay).open(address, body, timeout=20)
    except urllib.error.HTTPError as answer:
        answer.close()
        return str(answer.headers["location"])
    raise AssertionError("the provider has not sent the browser back")


def test_people_of_a_provider_have_the_roles_of_their_groups(
    make_service: Callable[..., Any], provider: str, tmp_path: Path
) -> None:
    service = make_service(sign_on=settings_of(tmp_path, provider))

    def sign_in(user: str) -> tuple[Any, Any]:
        browser = TestClient(make_app(service), base_url=CONSOLE, follow_redirects=False)
        assert "Sign in at 127.0.0.1" in browser.get("/sign-in").text
        out = browser.get("/sign-in/provider")
        assert out.status_code == 303 and "code_challenge_method=S256" in out.headers["location"]
        back = sign_in_there(out.headers["location"], user)
        assert back.startswith(CONSOLE + BACK)
        return browser, browser.get(back.removeprefix(CONSOLE))

    ada, answer = sign_in("ada")
    assert answer.status_code == 200 and "ada (127.0.0.1)" in answer.text
    assert re.search(r"auscult-session=[^;]+;.*HttpOnly.*SameSite=strict", str(answer.headers.get_list("set-cookie")))
    settings = ada.get("/settings").text
    assert "ada (127.0.0.1), admin" in settings and "client.secret" in settings and "the client" not in settings
    bob, _ = sign_in("bob")
    assert "bob (127.0.0.1), viewer" in bob.get("/").text and bob.get("/runs/new").status_code == 403
    eve, answer = sign_in("eve")
    assert answer.status_code == 401 and "none of your groups" in answer.text and eve.get("/").status_code == 303
    csrf = re.search(r'name="csrf" value="([^"]+)"', settings)
    assert csrf is not None
    gone = urllib.parse.quote("bob (127.0.0.1)")
    assert f"{gone}/remove" in settings or "bob (127.0.0.1)" in ada.get("/settings").text
    assert ada.post(f"/people/{gone}/remove", data={"csrf": csrf[1]}).status_code == 303
    assert bob.get("/").status_code == 303


def test_a_sign_in_is_for_the_browser_that_began_it_and_once(
    make_service: Callable[..., Any], provider: str, tmp_path: Path
) -> None:
    desk = ProviderDesk(settings_of(tmp_path, provider))
    state, address = desk.begin()
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(sign_in_there(address, "ada")).query))
    assert query["state"] == state
    for given, kept in ((state, ""), (state, "other"), ("other", "other")):
        with pytest.raises(SignInError, match="not begun in this browser"):
            desk.finish(given, kept, query["code"])
    assert desk.finish(state, state, query["code"]) == ("ada (127.0.0.1)", "admin")
    with pytest.raises(SignInError, match="not begun in this browser"):
        desk.finish(state, state, query["code"])
    fresh, _ = desk.begin()
    with pytest.raises(SignInError, match="the provider refuses"):
        desk.finish(fresh, fresh, "made up")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ProviderDesk, Any]:
    """A desk whose provider has one key, and a function that signs claims with it."""
    from joserfc import jwt
    from joserfc.jwk import KeySet, OctKey, RSAKey

    issuer, key, other = "https://id.example", RSAKey.generate_key(2048, {"kid": "1"}), RSAKey.generate_key(2048)
    found = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
    answers = {f"{issuer}/keys": KeySet([key]).as_dict(private=False)}
    answers[f"{issuer}/.well-known/openid-configuration"] = found
    monkeypatch.setattr(single_sign_on, "fetch", lambda address, *_: answers[address])
    now = int(time.time())
    good = {
        "iss": issuer,
        "aud": "auscult",
        "nonce": "n",
        "exp": now + 60,
        "iat": now,
        "sub": "ada",
        "groups": "clinic",
    }

    def sign(head: dict[str, Any] | None = None, by: str = "", **changes: Any) -> str:
        claims = {k: v for k, v in {**good, **changes}.items() if v is not None}
        secret = OctKey.import_key("the client's secret, which is long enough for it")
        used = {"": key, "other": other, "secret": secret}[by]
        return jwt.encode(head or {"alg": "RS256", "kid": "1"}, claims, used, algorithms=["RS256", "HS256"])

    return ProviderDesk(settings_of(tmp_path, issuer)), sign


def test_a_stranger_who_begins_very_many_sign_ins_ends_nobody_elses(
    desk: tuple[ProviderDesk, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them once pushed out everybody who was typing a password at the provider."""
    desk_, sign = desk
    answers = {"issuer": "https://id.example", **{key: "https://id.example/x" for key in ENDPOINTS}}
    before, taken = single_sign_on.fetch, list[str]()

    def fetch(address: str, body: bytes | None = None, heads: Any = None) -> Any:
        return {"id_token": taken[-1]} if body else answers if "well-known" in address else before(address)

    monkeypatch.setattr(single_sign_on, "fetch", fetch)
    answers["jwks_uri"] = "https://id.example/keys"
    state, address = desk_.begin()
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(address).query))
    others = {desk_.begin()[0] for _ in range(1001)}
    assert len(others) == 1001 and state not in others
    taken.append(sign(nonce=query["nonce"]))
    assert desk_.finish(state, state, "code") == ("ada (id.example)", "viewer")
    assert len(desk_.spent) == 1, "of those that are under way nothing is kept"


@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: "x" + s, lambda s: s, lambda s: ""])
def test_a_state_that_was_not_made_here_begins_nothing(desk: tuple[ProviderDesk, Any], change: Any) -> None:
    made = change(ProviderDesk(desk[0].settings).make_state())  # by a process with another key, or altered
    with pytest.raises(SignInError, match="not begun in this browser"):
        desk[0].finish(made, made, "code")


def test_a_sign_in_that_took_too_long_is_over(desk: tuple[ProviderDesk, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_sign_on, "BEGUN_FOR", -1.0)
    late = desk[0].make_state()
    with pytest.raises(SignInError, match="too long ago"):
        desk[0].finish(late, late, "code")


def test_the_desk_tells_whose_name_it_is(desk: tuple[ProviderDesk, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[str, str]]()
    own = ProviderDesk(desk[0].settings, lambda subject, name: told.append((subject, name)) or "ada")
    monkeypatch.setattr(own, "fetch_token", lambda *_: "")
    monkeypatch.setattr(own, "read_token", lambda *_: {"sub": "17", "groups": "clinic", "preferred_username": "x"})
    state = own.make_state()
    assert own.finish(state, state, "code") == ("ada", "viewer")
    assert told == [("https://id.example 17", "17 (id.example)")]
    monkeypatch.setattr(own, "read_token", lambda *_: {"groups": "clinic"})
    state = own.make_state()
    with pytest.raises(SignInError, match="no name"):
        own.finish(state, state, "code")


ENDPOINTS = ("authorization_endpoint", "token_endpoint")
IN_A_THOUSAND_YEARS = 33_000_000_000


def test_a_good_word_is_taken(desk: tuple[ProviderDesk, Any]) -> None:
    claims = desk[0].read_token(desk[1](), "n")
    assert desk[0].find_name(claims) == "ada (id.example)" and desk[0].find_role(claims) == "viewer"


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"iat": IN_A_THOUSAND_YEARS},
        {"azp": "another"},
        {"by": "other"},
        {"by": "secret", "head": {"alg": "HS256", "kid": "1"}},
    ],
    ids=str,
)
def test_a_word_that_is_not_the_providers_for_us_now_is_refused(desk: tuple[ProviderDesk, Any], wrong: Any) -> None:
    with pytest.raises(SignInError, match=r"not good|for somebody else"):
        desk[0].read_token(desk[1](**wrong), "n")


def test_a_word_without_a_signature_is_refused(desk: tuple[ProviderDesk, Any]) -> None:
    head, body, _ = desk[1]().split(".")
    none = "eyJhbGciOiJub25lIn0"  # {"alg":"none"}
    for token in (f"{none}.{body}.", f"{head}.{body}.", "", "x", f"{head}.{body}"):
        with pytest.raises(SignInError, match="not good"):
            desk[0].read_token(token, "n")


@pytest.mark.parametrize("claims", [{"sub": "a" * 80}, {"sub": "a\nb"}, {"sub": 5}, {}])
def test_a_name_that_is_none_is_refused(desk: tuple[ProviderDesk, Any], claims: Any) -> None:
    with pytest.raises(SignInError, match="is no name"):
        desk[0].find_name(claims)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"issuer": "http://id.example"}, "expected https"),
        ({"console": "console.example"}, "expected https"),
        ({"roles": {"clinic": "root"}}, "expected one of viewer"),
        ({"scopes": ("profile",)}, "openid has to be"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, changes: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        settings_of(tmp_path, **{"issuer": "https://id.example", **changes})


def answer_with(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    """A provider that says this of itself."""
    monkeypatch.setattr(single_sign_on, "fetch", lambda *_: {"issuer": "https://id.example", **found})


@pytest.mark.parametrize(
    "address",
    [None, 5, "", "javascript:alert(1)", "http://id.example/", "file:///etc/passwd", "//id.example", "http://["],
)
def test_no_address_without_tls_is_taken_from_a_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: Any
) -> None:
    """The client's secret goes to one of them; a file was read as if it were the provider's answer, and a document
    without one of them ended in a traceback."""
    desk = ProviderDesk(settings_of(tmp_path, "https://id.example"))
    for key, do in (
        ("authorization_endpoint", desk.begin),
        ("token_endpoint", lambda: desk.fetch_token("code", "verifier")),
        ("jwks_uri", lambda: desk.read_token("token", "nonce")),
    ):
        answer_with(monkeypatch, **({} if address is None else {key: address}))
        with pytest.raises(SignInError, match=f"the provider's {key} is"):
            do()


@pytest.mark.parametrize(
    "says",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n",
    ],
    ids=["no HTTP", "headers", "brackets", "redirect"],
)
def test_a_provider_that_answers_with_nonsense_lets_nobody_in(says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:

        def answer() -> None:
            browser, _ = line.accept()
            with browser:
                browser.recv(65536)
                browser.sendall(says)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SignInError, match="refuses: 302" if b"302" in says else "does not answer"):
            single_sign_on.fetch(f"http://127.0.0.1:{line.getsockname()[1]}/")
        thread.join()


def test_a_provider_is_asked_by_a_few_at_a_time(
    make_service: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may have it asked: while it was slow, they took all threads of the service."""
    app = make_app(make_service(sign_on=settings_of(tmp_path, "https://id.example")))
    goes_on, begun = threading.Event(), []

    def ask(*_: Any) -> dict[str, Any]:
        begun.append(0)
        assert goes_on.wait(60)
        return {"issuer": "https://id.example", "authorization_endpoint": "https://id.example/in"}

    monkeypatch.setattr(single_sign_on, "fetch", ask)
    with TestClient(app, base_url=CONSOLE, follow_redirects=False) as browser, ThreadPoolExecutor(EACH + 5) as pool:
        answers = [pool.submit(browser.get, "/sign-in/provider") for _ in range(EACH + 5)]
        try:
            eventually(lambda: sum(answer.done() for answer in answers) == 5)
            assert len(begun) == AT_ONCE and browser.get("/sign-in/provider/back?state=a").status_code == 503
        finally:
            goes_on.set()
        assert sorted(answer.result().status_code for answer in answers) == [303] * EACH + [503] * 5
