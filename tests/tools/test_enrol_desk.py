"""What a node that enrols takes from whoever answers: no more than there is room for, and nothing from elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from edge_sdk.tools.credentials import enrol
from edge_sdk.tools.credentials.enrol import Desk, NotEnrolledError

Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def answering() -> Iterator[Callable[[Answer], str]]:
    """Begins a server that answers so, and returns its address."""
    servers = list[HTTPServer]()

    def begin(answer: Answer) -> str:
        kind = type("Handler", (BaseHTTPRequestHandler,), {"do_POST": answer, "do_GET": answer, "log_message": silent})
        servers.append(HTTPServer(("127.0.0.1", 0), kind))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def silent(*_: object) -> None:
    return None


def saying(status: int, body: bytes, **heads: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("content-length", 0)))
        handler.send_response(status)
        for name, value in heads.items():
            handler.send_header(name, value)
        handler.end_headers()
        try:
            handler.wfile.write(body)
        except OSError:
            return  # nobody reads on

    return answer


@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_without_an_end_is_not_read_to_it(
    answering: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A device has some 100 MB of memory, and whoever stands between may answer where there is no TLS."""
    monkeypatch.setattr(enrol, "LARGEST_ANSWER", 1000)
    text = b'{"state": "' + b"a" * 2000 + b'", "error": "because"}'
    with pytest.raises(NotEnrolledError, match="more than 1000 bytes" if status == 200 else "HTTP 404"):
        Desk(answering(saying(status, text))).ask("state", {})
    monkeypatch.setattr(enrol, "LARGEST_ANSWER", 3000)
    if status == 200:
        assert len(Desk(answering(saying(status, text))).ask("state", {})["state"]) == 2000
    else:
        with pytest.raises(NotEnrolledError, match="because"):
            Desk(answering(saying(status, text))).ask("state", {})


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff", b"7", b"{}"])
def test_a_refusal_that_says_nothing_is_named_by_its_number(answering: Callable[[Answer], str], body: bytes) -> None:
    with pytest.raises(NotEnrolledError, match="HTTP 500"):
        Desk(answering(saying(500, body))).ask("state", {})


def test_nobody_else_is_asked(answering: Callable[[Answer], str]) -> None:
    """A redirect would lead from TLS to plain text, and what came from there was taken."""
    elsewhere = answering(saying(200, b'{"state": "approved"}'))
    with pytest.raises(NotEnrolledError, match="HTTP 302"):
        Desk(answering(saying(302, b"", location=elsewhere))).ask("state", {})
