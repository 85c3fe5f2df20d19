"""The stream that makes few system calls of many: the bytes and their order are those of the calls."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import numpy as np
import pytest

from edge_sdk.replay.nodes.broker import EmbeddedBroker
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.mqtt import Connection
from edge_sdk.wire.stream import ENOUGH, READ, SMALL, Stream


@pytest.fixture
def ends() -> Iterator[tuple[Stream, socket.socket]]:
    """A stream, and the plain socket at its other end."""
    a, b = socket.socketpair()
    with a, b:
        a.setblocking(False)
        b.setblocking(False)
        yield Stream(a), b


def everything(sock: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            found += sock.recv(1 << 20)
        except BlockingIOError:
            return found


def test_small_pieces_wait_and_go_with_the_next_large_one(ends: tuple[Stream, socket.socket]) -> None:
    stream, other = ends
    large = bytes(range(256)) * 8
    assert stream.send(b"ab") == 2
    assert everything(other) == b""
    assert stream.send(large) == len(large)
    assert everything(other) == b"ab" + large
    assert not stream.out


def test_a_burst_of_small_pieces_does_not_wait(ends: tuple[Stream, socket.socket]) -> None:
    stream, other = ends
    for _ in range(ENOUGH // 4):
        stream.send(b"ackn")
    assert everything(other) == b"ackn" * (ENOUGH // 4)


def test_flush_and_close_send_what_waits(ends: tuple[Stream, socket.socket]) -> None:
    stream, other = ends
    stream.send(b"1")
    stream.flush()
    assert everything(other) == b"1"
    stream.send(b"2")
    stream.close()
    assert other.recv(10) == b"2"


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_reordered_when_the_socket_is_full(ends: tuple[Stream, socket.socket], seed: int) -> None:
    stream, other = ends
    stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    rng = np.random.default_rng(seed)
    pieces = [rng.bytes(int(rng.choice([1, 4, SMALL - 1, SMALL, 20_000]))) for _ in range(120)]
    got, queue = b"", list(pieces)
    while queue or stream.out:
        try:
            taken = stream.send(queue[0]) if queue else stream.flush() or 0
            assert taken > 0 or not queue
            if queue:
                queue[0] = queue[0][taken:]
                queue = queue if queue[0] else queue[1:]
        except BlockingIOError:
            got += everything(other)
        if rng.random() < 0.2:
            got += everything(other)
    assert got + everything(other) == b"".join(pieces)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_is_what_was_sent_however_it_is_asked_for(ends: tuple[Stream, socket.socket], seed: int) -> None:
    stream, other = ends
    rng = np.random.default_rng(seed)
    data, got, sent = rng.bytes(600_000), b"", 0
    while len(got) < len(data):
        with_room = data[sent : sent + int(rng.integers(1, 90_000))]
        sent += other.send(with_room) if with_room and rng.random() < 0.7 else 0
        stream.dry = False
        try:
            for _ in range(20):
                got += stream.recv(int(rng.choice([1, 2, 100, READ - 1, READ, 3 * READ])))
        except BlockingIOError:
            assert stream.dry
            assert not stream.held
    assert got == data


def test_one_look_at_a_socket_that_has_nothing_more(ends: tuple[Stream, socket.socket]) -> None:
    stream, other = ends
    other.send(b"abc")
    assert stream.recv(1) == b"a"
    assert stream.dry
    assert stream.recv(10) == b"bc"
    other.send(b"d")
    with pytest.raises(BlockingIOError):
        stream.recv(1)
    stream.dry = False
    assert stream.recv(1) == b"d"


def test_the_end_of_the_stream_is_seen(ends: tuple[Stream, socket.socket]) -> None:
    stream, other = ends
    other.send(b"x")
    other.close()
    assert stream.recv(5) == b"x"
    stream.dry = False
    assert stream.recv(5) == b""


def test_connections_use_it() -> None:
    """paho has no public seam for it: should a new version go another way, this is where it shows."""
    with EmbeddedBroker() as broker:
        connection = Connection(broker_at(broker.url), "a", ["t"])
        connection.open()
        assert connection.client.socket() is connection.stream
        connection.drop()
