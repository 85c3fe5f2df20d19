"""Requests that nobody's browser sends: each is answered with a sentence, and none of them ends in a traceback."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.administration.certificates import check_request
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.application.forms import read_form
from aggregator.service.application.guard import WebGuard
from edge_sdk.errors import UsageError
from tests.aggregator.service.asking import CLAIM, request_of
from tests.fuzz.service_targets import CLASSES, WRIST

KEY, NO_KEY = bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2a8648ce3d0a01")  # kinds of a key: EC, and none at all
VERSION, NO_VERSION = bytes.fromhex("020100"), bytes.fromhex("020120")


def changed_request(folder: Path, before: bytes, after: bytes) -> str:
    """A certificate request with other bytes in it."""
    lines = request_of(folder, "watch-7").strip().splitlines()
    der = base64.b64decode("".join(lines[1:-1]))
    assert before in der
    body = base64.b64encode(der.replace(before, after, 1)).decode()
    return "\n".join([lines[0], *(body[i : i + 64] for i in range(0, len(body), 64)), lines[-1], ""])


@pytest.mark.parametrize(("before", "after"), [(KEY, NO_KEY), (VERSION, NO_VERSION)])
def test_a_request_for_a_certificate_of_an_unknown_kind_is_refused(
    browse: Any, tmp_path: Path, before: bytes, after: bytes
) -> None:
    """Anybody may send one, without a token: it left a traceback in the log, and an answer that says nothing."""
    request = changed_request(tmp_path, before, after)
    with pytest.raises(UsageError, match="no certificate request in PEM"):
        check_request(request, "watch-7")
    table = {"name": "watch-7", "claim": CLAIM, "token": "t", "request": request}
    assert browse().post("/enrol/v1/request", json=table).status_code == 422


@pytest.mark.parametrize("text", ["\u00b2", "--5", "5-", "\u0664", "9" * 19, "1e3", "-"])
def test_what_is_no_number_in_a_form_is_said(text: str) -> None:
    with pytest.raises(UsageError, match=r"rounds = .*expected a whole number"):
        read_form({"method": "fedavg", "rounds": text}, [])


@pytest.mark.parametrize("text", ["1" * 5000, "[" * 50_000, "2024-13-01"])
def test_what_is_no_list_in_a_form_is_said(text: str) -> None:
    with pytest.raises(UsageError, match=r"settle.steps = .*: expected something such as"):
        read_form({"method": "fedavg", "rounds": "3", "settle.steps": text}, [])


@pytest.mark.parametrize("key", ["batch", "eta_l"])
def test_a_setting_with_very_many_digits_is_refused(browse: Any, service: Any, key: str) -> None:
    """What compares it with a float had an error that nobody expected: it was answered with 500."""
    token = service.people.make_key("token", "robot", "operator", 60.0, "test")
    body = f'{{"method": "fedavg", "rounds": 3, "settings": {{"{key}": {"1" * 4000}}}}}'
    answer = browse().post("/api/v1/runs", content=body, headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 422 and f"{key} = 111" in answer.json()["error"]


@pytest.mark.parametrize("size", ["\u00b2", "9" * 5000, "-1", "1_0", ""])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    guard = WebGuard(lambda *_: None, ("127.0.0.1",))  # type: ignore[arg-type, return-value]
    answer = guard.refuse({"host": "127.0.0.1", "content-length": size}, 100)
    assert answer is not None and answer.status_code == 413


def test_an_address_that_is_no_text_is_refused(browse: Any) -> None:
    from starlette.testclient import TestClient

    app = browse().app

    async def odd(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "query_string": b"q=\xff"} if scope["type"] == "http" else scope, receive, send)

    assert TestClient(odd, base_url="http://127.0.0.1").get("/fleet?q=a").status_code == 400


@pytest.mark.parametrize("path", ["/sign-in", "/enrol/v1/request", "/enrol/v1/bundle"])
def test_who_goes_before_the_whole_form_has_come_leaves_no_traceback(browse: Any, path: str) -> None:
    """Anybody may begin one, and each left sixty lines in the log."""
    app, sent = browse().app, []
    heads = [
        (b"host", b"127.0.0.1"),
        (b"content-length", b"9"),
        (b"content-type", b"application/x-www-form-urlencoded"),
    ]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": heads, "scheme": "http"}

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, gone, send))
    assert [message.get("status") for message in sent] == [400, None]


def test_a_search_that_is_longer_than_any_entry_is_refused(browse: Any) -> None:
    """The database refused it, and was said not to answer any more."""
    viewer = browse("viewer")
    for path in ("/api/v1/audit", "/audit.csv"):
        assert viewer.get(f"{path}?q={'a' * 201}").status_code == 422
        assert viewer.get(f"{path}?q={'a' * 200}").status_code == 200


@pytest.mark.parametrize("port", ["\u00b2", "99999", "9" * 5000, ""])
def test_a_port_that_is_none_is_told(tmp_path: Path, port: str) -> None:
    with pytest.raises(UsageError, match="listen"):
        FleetFile(
            name="cloud", broker="mqtt://127.0.0.1:1", directory=tmp_path, bundles=(WRIST,), classes=CLASSES,
            listen=f"127.0.0.1:{port}",
        )  # fmt: skip
