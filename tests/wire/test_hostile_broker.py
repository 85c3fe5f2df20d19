"""What a broker sends that is no MQTT, or more than anybody asked for: it ends that connection, with a reason."""

from __future__ import annotations

import logging
import random
import select
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.properties import Properties

from edge_sdk.wire.addresses import Broker
from edge_sdk.wire.client import LARGEST_TAKEN, write_length
from edge_sdk.wire.link import Backoff, Link
from edge_sdk.wire.mqtt import Connection
from edge_sdk.wire.stream import READ
from tests.delivery.fleet import eventually
from tests.delivery.live import Net
from tests.wire.test_client import publish, read_all

Ends = tuple[Connection, socket.socket]
USER = b"\x26\x00\x01a\x00\x01b"  # a property that a peer may send any number of


@contextmanager
def linking(version: int) -> Iterator[Ends]:
    """A connection that believes itself connected, and the broker's end of its socket."""
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        connection = Connection(Broker("localhost", 1883), "a", ["t"], version=version)
        connection.client._sock = connection.stream = connection.client.wrap_socket(near)
        connection.client._state = paho._ConnectionState.MQTT_CS_CONNECTED
        yield connection, far


MALFORMED = {
    "a PUBACK of 0 bytes": (4, b"\x40\x00"),
    "a PUBACK of 1 bytes": (5, b"\x40\x01\x00"),
    "a PUBREL of 0 bytes": (4, b"\x62\x00"),
    "a SUBACK of 1 bytes": (5, b"\x90\x01\x00"),
    "a SUBACK of 4 bytes": (5, b"\x90\x04\x00\x01\x00\x55"),
    "a UNSUBACK of 0 bytes": (5, b"\xb0\x00"),
    "a CONNACK of 5 bytes": (5, b"\x20\x05\x00\x00\x02\x7f\x01"),
    "a CONNACK of 6 bytes": (5, b"\x20\x06\x00\x00\x03\x21\x00\x00"),
    "a DISCONNECT of 1 bytes": (5, b"\xe0\x01\x7f"),
    "a DISCONNECT of 3 bytes": (5, b"\xe0\x03\x80\x05\x1f"),
    "a AUTH of 0 bytes": (5, b"\xf0\x00"),
    "a reserved packet 0 of 0 bytes": (4, b"\x00\x00"),
    "a SUBSCRIBE of 0 bytes": (4, b"\x82\x00"),
    "a PINGRESP of 1 bytes": (4, b"\xd0\x01\x00"),
    "a PUBLISH of 0 bytes": (4, b"\x30\x00"),
    "a PUBLISH of 3 bytes": (5, b"\x30\x03\x00\x09a"),
    "QoS 2": (4, publish("t", b"x", 2, 4)),
    "QoS 3": (5, publish("t", b"x", 3, 5)),
    "whose length has more than four bytes": (4, b"\x30\xff\xff\xff\xff\x01"),
}


@pytest.mark.parametrize("why", MALFORMED)
def test_what_is_no_packet_ends_the_connection_and_is_named(why: str) -> None:
    version, packet = MALFORMED[why]
    with linking(version) as (connection, far):
        far.send(packet)
        assert read_all(connection) == []
        assert connection.lost and connection.fileno() < 0
        if "DISCONNECT" in why and why not in connection.lost:
            pytest.skip("this version of paho takes it for one")
        assert why in connection.lost
        assert not connection.was_cut, "it is us who have closed, so this says nothing of the size of packets"


def test_whatever_paho_raises_ends_the_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of paho differ in what they raise for a malformed packet; 2.1 has no error of its own for most."""

    def stumble(*_: object) -> None:
        raise KeyError(127)

    monkeypatch.setattr(paho.Client, "_handle_pubackcomp", stumble)
    with linking(5) as (connection, far):
        far.send(b"\x40\x02\x00\x07")
        assert read_all(connection) == []
        assert "a PUBACK of 2 bytes that is none: KeyError: 127" in connection.lost


@pytest.mark.parametrize("version", [4, 5])
def test_no_bytes_of_a_broker_raise(version: int) -> None:
    dice = random.Random(version)
    seeds = [packet for kind, packet in MALFORMED.values() if kind == version] + [
        publish("t", b"body", qos, version, USER if version == 5 else b"") for qos in (0, 1, 2)
    ]
    lost = 0
    for _ in range(600):
        packet = bytearray(dice.choice(seeds) if dice.random() < 0.8 else dice.randbytes(dice.randrange(2, 20)))
        for _ in range(dice.randrange(4)):
            packet[dice.randrange(len(packet))] = dice.randrange(256)
        with linking(version) as (connection, far):
            far.send(packet)
            far.shutdown(socket.SHUT_WR)
            for _ in range(8):
                connection.read()
            connection.flush()
            lost += bool(connection.lost)
    assert lost > 300


def test_properties_are_not_read_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """paho takes each off the front of all others: a megabyte of them, which any peer may send, took half a minute."""
    monkeypatch.setattr(Properties, "unpack", None)
    for count in (20, 3000, 150_000):
        with linking(5) as (connection, far):
            packet = publish("t", b"body", 0, 5, properties=USER * count)
            threading.Thread(target=far.sendall, args=(packet,), daemon=True).start()
            got = list[tuple[str, bytes]]()
            eventually(lambda got=got, one=connection: got.extend(one.read()) or got or one.lost)  # type: ignore[misc]
            assert got == [("t", b"body")]


def test_a_length_that_is_announced_costs_no_memory_before_the_bytes_are_there() -> None:
    with linking(4) as (connection, far):
        tracemalloc.start()
        try:
            far.send(b"\x30" + write_length(LARGEST_TAKEN - 10) + b"\x00\x01t")  # that is to come
            read_all(connection)
            far.send(b"x" * 100_000)
            read_all(connection)
            assert tracemalloc.get_traced_memory()[1] < 8 * READ
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_larger_than_any_of_ours_is_passed_over_and_acknowledged(version: int, qos: int) -> None:
    """A peer may send as much as the broker takes, up to 256 MB: it gets neither our memory nor our connection."""
    with linking(version) as (connection, far):
        packets = publish("t", bytes(LARGEST_TAKEN), qos, version) + publish("t", b"next", qos, version)
        threading.Thread(target=far.sendall, args=(packets,), daemon=True).start()
        got = list[tuple[str, bytes]]()
        tracemalloc.start()
        try:
            while not got and not connection.lost:
                got += connection.read()
            assert tracemalloc.get_traced_memory()[1] < 8 * READ
        finally:
            tracemalloc.stop()
        assert got == [("t", b"next")] and not connection.lost
        assert connection.client.oversized == 1
        connection.flush()
        if qos:
            assert far.recv(100) == 2 * b"\x40\x02\x00\x07"


def test_the_end_of_a_connection_is_seen_while_a_message_is_passed_over() -> None:
    with linking(4) as (connection, far):
        far.send(b"\x30\xff\xff\xff\x7f\x00\x01t" + bytes(1000))
        far.close()
        read_all(connection)
        connection.read()
        assert connection.lost


@pytest.mark.parametrize(
    ("answer", "up", "lost"),
    [
        (b"\x90\x03\x00\x01\x01", True, ""),
        (b"\x90\x03\x00\x01\x80", False, "subscription to t refused"),
        (b"\x90\x02\x00\x01", False, "subscription to t refused"),  # it says nothing of t
        (b"\x90\x03\x00\x63\x01", False, ""),  # to what nobody has asked
    ],
)
def test_only_the_answer_to_a_subscription_makes_a_connection_ready(answer: bytes, up: bool, lost: str) -> None:
    with linking(4) as (connection, far):
        far.send(b"\x90\x03\x00\x01\x01")
        connection.read()
        assert not connection.up, "before it was accepted, and asked anything"
        far.send(b"\x20\x02\x00\x00")
        connection.read()
        far.send(answer)
        connection.read()
        assert (connection.up, connection.lost) == (up, lost)


def test_a_message_that_is_refused_says_nothing_of_what_the_broker_takes() -> None:
    with linking(5) as (connection, far):
        connection.up = True
        for answer in (b"\x97", b"\x00", b"\x00"):  # a quota is exceeded; success
            connection.publish("t", bytes(50_000), 1)
            connection.flush()
            far.recv(1 << 20)
            (number,) = connection.flying
            far.send(b"\x40\x03" + number.to_bytes(2, "big") + answer)
            connection.read()
            assert not connection.flying and not connection.lost
            assert (connection.proof.acknowledged[1] > 0) == (answer == b"\x00")
        assert connection.proof.taken > 50_000


# Keepalive ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("payload", [300_000, 5_000_000])  # taken apart here; read by paho
def test_a_large_message_that_is_coming_in_is_heard(monkeypatch: pytest.MonkeyPatch, payload: int) -> None:
    """Over a slow link, for longer than the keepalive, with the answer to a ping behind it."""
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(paho, "time_func", lambda: clock[0])
    with linking(4) as (connection, far):
        connection.up = connection.is_accepted = True
        packet, got = publish("t", b"x" * payload, 0, 4) + b"\xd0\x00", list[tuple[str, bytes]]()
        step, said = len(packet) // 20, b""
        for start in range(0, len(packet), step):
            data = packet[start : start + step]
            while data:
                data = data[far.send(data[:100_000]) :]
                got += read_all(connection)
            clock[0] += connection.keepalive / 3
            connection.check_health(clock[0])
            connection.flush()
            assert not connection.lost, f"after {start} bytes"
            said += far.recv(100) if select.select([far], [], [], 0)[0] else b""
        assert got == [("t", b"x" * payload)]
        assert said.count(b"\xc0\x00") >= 5, "a broker that hears nothing cuts off, too"
        for _ in range(8):  # now it is silent indeed
            clock[0] += connection.keepalive / 3
            connection.check_health(clock[0])
        assert connection.lost


@pytest.mark.parametrize(("said", "kept"), [(8, 8), (0, 60), (900, 60)])
def test_a_broker_that_wants_to_hear_more_often_does(tmp_path: Path, said: int, kept: int) -> None:
    """With MQTT 5 it may say so; the loop went on sleeping for a quarter of its own keepalive, until it was cut off."""
    node = Net(tmp_path, "mqtt://127.0.0.1:1", keepalive=60).device("a", "h")
    with linking(5) as (connection, far):
        connection.client._keepalive = 60
        far.send(b"\x20\x06\x00\x00\x03\x13" + said.to_bytes(2, "big"))
        connection.read()
        assert connection.is_accepted and connection.keepalive == connection.client._keepalive == kept
        assert node.above is not None
        node.above.connection = connection
        connection.up = True
        assert node.get_timer() <= kept / 4


# Answers that paho cannot read while it connects ----------------------------------------------------------------
def test_a_web_server_that_answers_nonsense_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """An attempt that never ended kept the link from making another one."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                with one:
                    one.recv(4096)
                    one.sendall(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nSec-WebSocket-Accept:x\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        where = Broker("127.0.0.1", server.getsockname()[1], path="/mqtt")
        link = Link(lambda: Connection(where, "a", ["t"]), lambda: None, Backoff(0.001, 0.001), logging.getLogger("x"))
        eventually(lambda: link.poll(time.monotonic()) or link.failures >= 2)
        assert "cannot be read: IndexError" in link.why
        eventually(lambda: link.opening is None or link.opened is link.opening)  # nothing is left open
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
