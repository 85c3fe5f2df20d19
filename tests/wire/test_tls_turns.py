"""TLS that must write before it can read, and read before it can write: its loop sleeps until that can be done."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.wire.addresses import Broker
from edge_sdk.wire.mqtt import Connection
from edge_sdk.wire.stream import SMALL, Stream
from edge_sdk.wire.waiter import Waiter
from tests.conftest import missing
from tests.wire.test_client import publish

pytestmark = pytest.mark.skipif(bool(missing("openssl")), reason=missing("openssl") or "")


class Server:
    """A server's end of TLS 1.3 whose bytes go over `far` only when `pump` says so."""

    def __init__(self, far: socket.socket, certificate: Path, key: Path):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.post_handshake_auth = True
        self.far, self.came, self.goes = far, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.came, self.goes, server_side=True)

    def pump(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := self.far.recv(1 << 16):
                self.came.write(data)
        self.far.sendall(self.goes.read())


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Connection, Server]]:
    """A connection over TLS that believes itself connected, and the server's end."""
    key, certificate = tmp_path / "k", tmp_path / "c"
    words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    subprocess.run(["openssl", *words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname, context.post_handshake_auth = False, True
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    server = Server(far, certificate, key)
    client = context.wrap_socket(near, do_handshake_on_connect=False)
    with client, far:
        for _ in range(4):
            for shake in (client.do_handshake, server.tls.do_handshake):
                with contextlib.suppress(ssl.SSLWantReadError):
                    shake()
                server.pump()
        connection = Connection(Broker("localhost", 8883), "a", ["t"])
        connection.client._sock = connection.stream = connection.client.wrap_socket(client)
        yield connection, server


def fill(near: socket.socket) -> int:
    """Fill a socket behind TLS's back; returns how many bytes that took."""
    behind, count = socket.socket(fileno=os.dup(near.fileno())), 0
    with behind, contextlib.suppress(BlockingIOError):
        while True:
            count += behind.send(bytes(4096))
    return count


def test_tls_that_must_write_before_it_can_read_is_waited_for(ends: tuple[Connection, Server]) -> None:
    """A server asks for a certificate after the handshake, while the socket takes nothing more."""
    connection, server = ends
    stream = connection.stream
    assert stream is not None and not stream.plain
    junk = fill(stream.sock)
    server.tls.verify_client_post_handshake()
    server.tls.write(publish("t", b"body", 0, 4))
    server.far.sendall(server.goes.read())
    assert connection.read() == []
    assert not connection.lost and stream.broken is None
    assert stream.needs_write and connection.wants_write and not connection.pending
    with Waiter() as waiter:
        waiter.wait([connection], 0.0, 0.0)
        assert not connection.ready, "the loop would not sleep"
        while junk:
            junk -= len(server.far.recv(min(junk, 1 << 16)))
        waiter.wait([connection], 5.0, float("inf"))
        assert connection.ready
    assert connection.read() == [("t", b"body")]
    assert not stream.needs_write and not connection.wants_write
    server.pump()
    with contextlib.suppress(ssl.SSLWantReadError):
        server.tls.read(1)
    assert not connection.lost


class Turned:
    """A socket whose TLS has to read before it can write, until it has read."""

    def __init__(self, sock: socket.socket):
        self.sock, self.has_read = sock, False

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def send(self, data: bytes) -> int:
        if not self.has_read:
            raise ssl.SSLWantReadError
        return self.sock.send(data)

    def recv_into(self, view: memoryview) -> int:
        got = self.sock.recv_into(view)
        self.has_read = True
        return got


@pytest.mark.parametrize("size", [10, 2 * SMALL])
def test_tls_that_must_read_before_it_can_write_is_waited_for(size: int) -> None:
    near, far = socket.socketpair()
    with near, far, Waiter() as waiter:
        near.setblocking(False)
        connection = Connection(Broker("localhost", 1883), "a", ["t"])
        stream = connection.client._sock = connection.stream = Stream(Turned(near))  # type: ignore[arg-type]
        stream.plain = False
        assert connection.read() == []
        connection.client.publish_light("t", bytes(size))
        connection.flush()
        assert not connection.lost and stream.needs_read and not connection.wants_write
        waiter.wait([connection], 0.0, 0.0)
        assert not connection.ready, "the socket takes bytes all the time: the loop would not sleep"
        far.send(b"\xd0\x00")
        waiter.wait([connection], 5.0, float("inf"))
        assert connection.ready and connection.read() == []
        assert connection.wants_write
        connection.write()
        assert not connection.wants_write and len(far.recv(1 << 16)) > size
