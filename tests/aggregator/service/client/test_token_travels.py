"""The commands' way to a service on another machine: where its token goes, and where it does not."""

from __future__ import annotations

import threading
from argparse import Namespace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from aggregator.service.client.client import RefusedError, ServiceClient, find_service
from edge_sdk.errors import UsageError


@pytest.mark.parametrize(
    ("url", "insecure", "said"),
    [
        ("http://fleet.example", "", "the token would leave this machine as plain text"),
        ("http://fleet.example", "1", ""),
        ("https://fleet.example/", "", ""),
        ("http://127.0.0.1:8080", "", ""),
        ("fleet.example", "1", "expected the address of a service"),
        ("ftp://fleet.example", "1", "expected the address of a service"),
    ],
)
def test_a_token_leaves_this_machine_as_plain_text_only_when_told(
    url: str, insecure: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("URL", url), ("TOKEN", "secret"), ("INSECURE", insecure)):
        monkeypatch.setenv(f"AUSCULT_{name}", value)
    if said:
        with pytest.raises(UsageError, match=said):
            find_service(Namespace(service=None))
    else:
        assert find_service(Namespace(service=None)) == (url.rstrip("/"), "secret", "")


def test_a_token_follows_no_redirect() -> None:
    """Whoever stood there was sent it, be it with TLS or without."""
    asked = list[tuple[str, str | None]]()

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["authorization"]))
            self.send_response(200 if self.path == "/elsewhere" else 302)
            self.send_header("location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        with pytest.raises(RefusedError, match="HTTP 302"):
            ServiceClient(f"http://127.0.0.1:{server.server_port}", "secret").ask("/status")
    finally:
        server.shutdown()
        server.server_close()
    assert asked == [("/api/v1/status", "Bearer secret")]
