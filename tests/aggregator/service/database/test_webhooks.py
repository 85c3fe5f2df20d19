"""Webhooks over a real connection: what is told, how it is signed, and what happens to receivers that fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.application.alerts import list_needs
from aggregator.service.database import webhooks
from aggregator.service.database.webhooks import NotTakenError, Webhook, WebhookSender, sign
from aggregator.service.runs.runs import Wanted, add_run, change_run
from edge_sdk.errors import UsageError
from tests.aggregator.service.conftest import CLASSES

KEY = "k" * 32


class Receiver(HTTPServer):
    """Takes events, after it has answered with some codes first."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.codes: list[int] = []
        self.raw = b""  # what is sent in place of an answer
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/in"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.raw:
            self.wfile.write(self.server.raw)
            return
        code = self.server.codes.pop(0) if self.server.codes else 204
        if code == 204:
            assert (
                self.headers["x-auscult-signature"]
                == f"sha256={sign(KEY.encode(), self.headers['x-auscult-time'], body)}"
            )
            self.server.got.append((json.loads(body), dict(self.headers)))
        self.send_response(code)
        if code == 302:
            self.send_header("location", self.server.url)
        self.end_headers()

    def do_GET(self) -> None:
        self.server.got.append(({"event": "redirected"}, {}))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def make_sender(service: Any, receiver: Receiver, tmp_path: Path, *events: str, needs: Any = list) -> WebhookSender:
    (tmp_path / "key").write_text(KEY)
    webhook = Webhook(url=receiver.url, secret=tmp_path / "key", events=events)
    return WebhookSender("cloud", service.database, {"ops": webhook}, needs)


def events(receiver: Receiver) -> list[tuple[str, str]]:
    return [(event["event"], event["subject"]) for event, _ in receiver.got]


def test_a_receiver_is_told_in_order_what_happens_from_now_on(service: Any, receiver: Receiver, tmp_path: Path) -> None:
    add_run(service.database, Wanted(), CLASSES, "ada", "before")
    sender = make_sender(service, receiver, tmp_path, "run.")
    sender.tell_due("ops")
    assert not receiver.got
    add_run(service.database, Wanted(), CLASSES, "ada", "after")
    service.people.add("eve", "viewer", "a long password", "ada")
    change_run(service.database, "after", "stop", "ada")
    sender.tell_due("ops")
    assert events(receiver) == [("run.queue", "after"), ("run.stop", "after")]
    told = receiver.got[0][0]
    assert told["by"] == "ada" and told["service"] == "cloud" and told["detail"]["method"] == "fedslr"


@pytest.mark.parametrize("code", [500, 404, 302])
def test_what_was_not_taken_is_told_again_also_by_a_service_that_was_killed(
    service: Any, receiver: Receiver, tmp_path: Path, code: int
) -> None:
    make_sender(service, receiver, tmp_path, "run.").tell_due("ops")
    for i in range(3):
        add_run(service.database, Wanted(), CLASSES, "ada", f"run-{i}")
    receiver.codes = [204, code]
    with pytest.raises(NotTakenError, match=f"answers {code}"):
        make_sender(service, receiver, tmp_path, "run.").tell_due("ops")
    make_sender(service, receiver, tmp_path, "run.").tell_due("ops")
    assert events(receiver) == [("run.queue", f"run-{i}") for i in range(3)]
    numbers = [event["number"] for event, _ in receiver.got]
    assert numbers == sorted(set(numbers))


def test_a_receiver_that_is_far_behind_is_told_how_much_it_has_missed(
    service: Any, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "BEHIND", 2)
    sender = make_sender(service, receiver, tmp_path)
    sender.tell_due("ops")
    for i in range(5):
        add_run(service.database, Wanted(), CLASSES, "ada", f"run-{i}")
    sender.tell_due("ops")
    assert events(receiver) == [("hook.skipped", "ops"), ("run.queue", "run-3"), ("run.queue", "run-4")]
    assert receiver.got[0][0]["detail"] == {"entries": 3}


def test_what_needs_somebody_is_told_when_it_changes(
    service: Any, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "NEEDS_APART", 0.0)
    needed = ["Hospital north: nothing has been heard of it"]
    sender = make_sender(service, receiver, tmp_path, needs=lambda: list(needed))
    for _ in range(2):
        sender.tell_due("ops")
    needed.clear()
    sender.tell_due("ops")
    assert [event["detail"] for event, _ in receiver.got] == [["Hospital north: nothing has been heard of it"], []]


def test_what_is_over_when_the_service_is_started_again_is_told(
    service: Any, receiver: Receiver, tmp_path: Path
) -> None:
    """What had needed somebody before a kill, and no more after it, was never taken back."""
    make_sender(service, receiver, tmp_path, "needs.", needs=lambda: ["a hospital is silent"]).tell_due("ops")
    after = make_sender(service, receiver, tmp_path, "needs.")
    for _ in range(2):
        after.tell_due("ops")
    assert [event["detail"] for event, _ in receiver.got] == [["a hospital is silent"], []]


def test_nobody_who_listens_costs_a_try_and_no_more(service: Any, receiver: Receiver, tmp_path: Path) -> None:
    sender = make_sender(service, receiver, tmp_path)
    sender.tell_due("ops")
    add_run(service.database, Wanted(), CLASSES, "ada")
    receiver.server_close()
    receiver.socket.close()
    with pytest.raises(NotTakenError, match="cannot be told"):
        sender.tell_due("ops")


@pytest.mark.parametrize("says", [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n"])
def test_who_speaks_no_http_is_told_again_later(service: Any, receiver: Receiver, tmp_path: Path, says: bytes) -> None:
    """The error of such an answer is none of a connection: it ended the thread, and nothing was told any more."""
    receiver.raw = says
    sender = make_sender(service, receiver, tmp_path)
    sender.tell_due("ops")
    add_run(service.database, Wanted(), CLASSES, "ada", "mine")
    with pytest.raises(NotTakenError, match="cannot be told"):
        sender.tell_due("ops")
    receiver.raw = b""
    sender.tell_due("ops")
    assert events(receiver) == [("run.queue", "mine")]


def test_a_secret_that_is_gone_for_a_while_costs_a_try(service: Any, receiver: Receiver, tmp_path: Path) -> None:
    sender = make_sender(service, receiver, tmp_path)
    sender.tell_due("ops")
    add_run(service.database, Wanted(), CLASSES, "ada", "mine")
    (tmp_path / "key").unlink()
    with pytest.raises(NotTakenError, match="cannot be told"):
        sender.tell_due("ops")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://a/b",
        "http:///x",
        "http://a b/",
        "http://a/\r\nx: y",
        "https://u:p@host/",
        "gopher://a",
    ],
)
def test_what_is_no_address_of_a_receiver_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    with pytest.raises(UsageError, match="url: "):
        Webhook(url=url, secret=tmp_path / "key")


def test_a_secret_that_is_short_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abc\n")
    for name in ("short", "missing"):
        with pytest.raises(UsageError, match="at least 16"):
            Webhook(url="https://host/x", secret=tmp_path / name)


def test_a_receiver_that_takes_nothing_needs_a_person(
    service: Any, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything was said to be all right, and who relies on being told heard nothing."""
    monkeypatch.setattr(webhooks, "EVERY", 0.01)
    monkeypatch.setattr(webhooks, "WORTH_TELLING", 0.02)
    receiver.codes = [500, 500, 500]
    sender = make_sender(service, receiver, tmp_path, "run.", needs=lambda: [])
    sender.tell_due("ops")  # a new receiver is told nothing of before
    service.untold = sender.untold
    id = add_run(service.database, Wanted(), CLASSES, "ada")
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(sender.stopping, "wait", lambda _: seen.append(needs_of(service)) or len(receiver.got) > 0)
    sender.work("ops")
    assert "Webhook ops takes nothing" not in seen[0] and seen[-2]["Webhook ops takes nothing"] == "answers 500"
    assert "Webhook ops takes nothing" not in needs_of(service) and receiver.got[0][0]["subject"] == id


def needs_of(service: Any) -> dict[str, str]:
    return {need.what: need.why for need in list_needs(service)}
