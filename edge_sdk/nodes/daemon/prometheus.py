"""What a node counts, for Prometheus: text on a port of its own, read from another thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Protocol

from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.errors import UsageError

PREFIX = "auscult_"


class Measured(Protocol):
    """What is needed of a runtime."""

    name: str

    @property
    def counters(self) -> Counters: ...

    def gauges(self) -> Mapping[str, float]: ...


def exposition(node: Measured) -> str:
    """Counters by peer or reason, and gauges, in Prometheus' text format."""
    families: dict[str, list[str]] = {}
    for name, value in sorted(dict(node.counters).items()):
        family, _, of = name.partition(".")
        families.setdefault(f"{PREFIX}{family}_total", []).append(f"{{{labels(node, of)}}} {value}")
    for name, gauge in sorted(node.gauges().items()):
        family, _, of = name.partition(".")
        families.setdefault(PREFIX + family, []).append(f"{{{labels(node, of)}}} {gauge:.12g}")
    lines = []
    for family, samples in families.items():
        lines.append(f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}")
        lines += [family + sample for sample in samples]
    return "\n".join(lines) + "\n"


def labels(node: Measured, of: str) -> str:
    """Labels of a figure; `of`: the peer or reason that it is about, or empty."""
    return f'node="{node.name}"' + (f',of="{escaped(of)}"' if of else "")


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Endpoint:
    """Answers GET /metrics while the `with` lasts.

    Args:
        node: whose counters are shown.
        port: to listen on; 0: a free one, see `port`.
        host: of this machine; by default only this machine can ask.

    Raises:
        UsageError: the port is another process's, or nobody's who is not root.
    """

    def __init__(self, node: Measured, port: int = 0, host: str = "127.0.0.1"):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/metrics"
                body = exposition(node).encode() if found else b"see /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: it is asked every few seconds."""

        try:
            self.server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise UsageError(f"metrics_port = {port}: cannot be listened on at {host}: {error.strerror}") from error
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]

    def __enter__(self) -> Endpoint:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()
