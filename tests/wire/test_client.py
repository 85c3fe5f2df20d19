"""The short way for PUBLISH packets: what it takes is what paho would have taken, however the bytes come."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import numpy as np
import paho.mqtt.client as paho
import pytest

from edge_sdk.wire.addresses import Broker
from edge_sdk.wire.client import Client, write_length
from edge_sdk.wire.mqtt import Connection
from edge_sdk.wire.stream import READ, Stream

Message = tuple[str, bytes]


@pytest.fixture(params=[4, 5])
def linked(request: pytest.FixtureRequest) -> Iterator[tuple[Connection, socket.socket]]:
    """A connection of each version of MQTT that believes itself connected, and the broker's end of its socket."""
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        connection = Connection(Broker("localhost", 1883), "a", ["t"], version=request.param)
        connection.client._sock = connection.stream = connection.client.wrap_socket(near)
        yield connection, far


def publish(topic: str, payload: bytes, qos: int, version: int, properties: bytes = b"", first: int = 0x30) -> bytes:
    """A PUBLISH packet as MQTT says."""
    name = topic.encode()
    rest = struct.pack("!H", len(name)) + name + (struct.pack("!H", 7) if qos else b"")
    rest += write_length(len(properties)) + properties if version == 5 else b""
    return bytes((first | qos << 1,)) + write_length(len(rest) + len(payload)) + rest + payload


def read_all(connection: Connection) -> list[Message]:
    """All that comes until the socket has no more."""
    found = []
    while got := connection.read():
        found += got
    return found


@pytest.mark.parametrize("seed", range(6))
def test_messages_are_those_that_were_sent_however_they_are_cut(
    linked: tuple[Connection, socket.socket], seed: int
) -> None:
    connection, far = linked
    rng, version = np.random.default_rng(seed), connection.version
    sizes = [0, 1, 100, 127, 128, 16_300, 16_384, READ - 20, READ + 1, 3 * READ]
    sent = [(f"t/{i}", rng.bytes(int(rng.choice(sizes)))) for i in range(40)]
    packets = [publish(topic, body, int(rng.integers(2)), version) for topic, body in sent]
    packets.insert(20, b"\xd0\x00")  # a PINGRESP, which is paho's
    data, got = b"".join(packets), list[Message]()
    while data:
        cut = int(rng.choice([1, 3, 50, 40_000, 200_000]))
        taken = far.send(data[:cut])
        data = data[taken:]
        got += read_all(connection)
    assert got == sent
    assert not connection.lost


def test_a_part_of_a_message_is_waited_for_and_not_asked_for_again_and_again(
    linked: tuple[Connection, socket.socket],
) -> None:
    connection, far = linked
    packet = publish("t", b"x" * 1000, 0, connection.version)
    far.send(packet[:500])
    assert connection.read() == []
    assert not connection.pending  # or the loop would not sleep
    far.send(packet[500:])
    assert connection.read() == [("t", b"x" * 1000)]


def test_each_message_of_qos_1_is_acknowledged_and_none_of_qos_0(linked: tuple[Connection, socket.socket]) -> None:
    connection, far = linked
    far.send(publish("t", b"a", 1, connection.version) + publish("t", b"b", 0, connection.version))
    assert connection.read() == [("t", b"a"), ("t", b"b")]
    connection.flush()
    assert far.recv(100) == b"\x40\x02" + struct.pack("!H", 7)


def test_retained_messages_are_dropped_and_counted(linked: tuple[Connection, socket.socket]) -> None:
    connection, far = linked
    far.send(publish("t", b"old", 0, connection.version, first=0x31) + publish("t", b"b", 0, connection.version))
    assert connection.read() == [("t", b"b")]
    assert connection.retained == 1


def test_properties_are_passed_over() -> None:
    near, far = socket.socketpair()
    with near, far:
        connection = Connection(Broker("localhost", 1883), "a", ["t"], version=5)
        near.setblocking(False)
        connection.client._sock = connection.stream = connection.client.wrap_socket(near)
        far.send(publish("t", b"body", 0, 5, properties=b"\x01\x01"))  # payload format: text
        far.send(publish("t", b"more", 0, 5, properties=b"\x26\x00\x01a\x00\x01b" * 20))  # of a peer's own: 140 bytes
        assert connection.read() == [("t", b"body"), ("t", b"more")]


@pytest.mark.parametrize(
    "packet",
    [
        b"\x30\xff\xff\xff\xff\x01",  # a length of five bytes
        b"\x30\x03\x00\x09a",  # a topic that is longer than the packet
        b"\x36\x05\x00\x01t\x00\x01",  # QoS 3
        b"\x32\x03\x00\x01t",  # QoS 1 without a number
    ],
)
def test_what_is_malformed_ends_the_connection(linked: tuple[Connection, socket.socket], packet: bytes) -> None:
    connection, far = linked
    far.send(packet)
    far.close()
    assert read_all(connection) == []
    assert connection.lost


def test_the_end_of_a_connection_is_seen_in_the_middle_of_a_message(linked: tuple[Connection, socket.socket]) -> None:
    connection, far = linked
    far.send(publish("t", b"whole", 0, connection.version) + b"\x30\x7fabc")
    far.close()
    assert read_all(connection) == [("t", b"whole")]
    connection.stream.dry = False  # type: ignore[union-attr]
    connection.read()
    assert connection.lost


@pytest.mark.parametrize("version", [4, 5])
def test_what_is_published_light_is_what_paho_would_have_written(version: int) -> None:
    written = []
    for light in (True, False):
        near, far = socket.socketpair()
        with near, far:
            client = Client(paho.CallbackAPIVersion.VERSION2, "a", protocol=version)
            client._sock = client.stream = Stream(near)
            for size in (0, 5, 200, 20_000):
                body = bytes(size)
                _ = client.publish_light("auscult/v1/ä", body) if light else client.publish("auscult/v1/ä", body, 0)
            client.stream.flush()
            written.append(far.recv(1 << 20))
    assert written[0] == written[1]
    assert len(written[0]) > 20_205
