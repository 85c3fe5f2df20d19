"""paho's client on a Stream, with a short way for the packets that are many: PUBLISH of QoS 0 and 1.

paho reads a packet byte by byte and makes a dozen objects of it, with MQTT 5 a table of all properties among them. That
took longer than all that became of a message afterwards. So a PUBLISH that lies whole in the stream is taken apart
here, and one of QoS 0 is put together here; everything else is paho's, also what is malformed.

paho has no public way to do so, nor to bring a socket of one's own, so these names are private: test each new version
of paho. Beside `mqtt.py` no other module imports it.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import MessageType, MQTTErrorCode

from edge_sdk.wire.link_speed import LARGEST
from edge_sdk.wire.stream import Stream

KIND, QOS, RETAIN = 0xF0, 0x06, 0x01  # bits of a packet's first byte
PUBLISH = int(MessageType.PUBLISH)
MOST = 2 * LARGEST  # bytes of a packet that is taken apart here; room is made for all of it at once
LONGEST = 5  # bytes of a fixed header: the first, and at most four that say how many more follow
HEARD = ("_last_bytes_received", "_last_msg_in")  # where paho keeps when it has read something: as of 2.2, and before
LENGTH = struct.Struct("!H")

Publish = tuple[bytes, bytes, bool]
"""Topic and payload of a message, and whether it was retained."""


class Client(paho.Client):
    """paho's client, with a Stream as its socket.

    Attributes:
        stream: the socket of the present connection.
    """

    stream: Stream | None = None

    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        self.heard = next(name for name in HEARD if hasattr(self, name))

    def _create_socket_connection(self) -> Any:
        sock = super()._create_socket_connection()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if self._ssl else self.wrap_socket(sock)

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> Any:
        return self.wrap_socket(super()._ssl_wrap_socket(tcp_sock))

    def wrap_socket(self, sock: socket.socket) -> Stream:
        """Put a stream around a socket. paho's websocket loses its place when only a part is taken: greedy there."""
        self.stream = Stream(sock, greedy=self._transport == "websockets")
        return self.stream

    def take_publish(self) -> Publish | None:
        """Take the packet that comes next, and acknowledge it, where it is a PUBLISH that has come whole.

        Returns:
            None: it is another one, which `loop_read` reads; or its rest has not come, as `stream.short` says then.
        """
        stream: Any = self._sock
        if not isinstance(stream, Stream) or self._in_packet["command"]:
            return None  # a websocket has frames of its own; what paho has begun is paho's
        if (found := find_packet(stream)) is None:
            return None
        first, head, size = found
        message = take_apart(stream.peek(head + size)[head:], first, self._protocol == paho.MQTTv5)
        if message is None:
            return None
        topic, payload, mid = message
        stream.take(head + size)
        setattr(self, self.heard, time.monotonic())
        if first & QOS:
            self._send_puback(mid)
        return topic, payload, bool(first & RETAIN)

    def publish_light(self, topic: str, payload: bytes) -> MQTTErrorCode:
        """Publish with QoS 0. Nothing is heard of it any more, also not when it is written."""
        if self._sock is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        name = topic.encode()
        properties = b"\0" if self._protocol == paho.MQTTv5 else b""
        length = write_length(LENGTH.size + len(name) + len(properties) + len(payload))
        packet = b"".join((bytes((PUBLISH,)), length, LENGTH.pack(len(name)), name, properties, payload))
        return self._packet_queue(PUBLISH, packet, 0, 1)  # "1": paho reports written packets of QoS 0, at some cost


def find_packet(stream: Stream) -> tuple[int, int, int] | None:
    """First byte of the next packet, bytes of its fixed header and of the rest, where it is a PUBLISH of QoS 0 or 1,
    and all there."""
    head, size, octet = 1, 0, 0x80
    while octet & 0x80:
        if head == LONGEST or not stream.gather(head + 1):
            return None
        held = stream.peek(LONGEST)
        first = held[0]
        if first & KIND != PUBLISH or first & QOS > 2:
            return None
        while octet & 0x80 and head < len(held):
            octet = held[head]
            size |= (octet & 0x7F) << 7 * (head - 1)
            head += 1
    return (first, head, size) if head + size <= MOST and stream.gather(head + size) else None


def take_apart(packet: memoryview, first: int, with_properties: bool) -> tuple[bytes, bytes, int] | None:
    """Topic, payload and number of a PUBLISH; None: it is malformed.

    Args:
        packet: all behind the fixed header.
        first: the packet's first byte.
        with_properties: it is of MQTT 5. None of the properties of a message says anything to a node.
    """
    try:
        at = LENGTH.size + LENGTH.unpack_from(packet)[0]
        topic, mid = bytes(packet[LENGTH.size : at]), 0
        if first & QOS:
            (mid,) = LENGTH.unpack_from(packet, at)
            at += LENGTH.size
        if with_properties:
            if packet[at] & 0x80:
                return None  # more properties than we have ever seen
            at += 1 + packet[at]
    except (struct.error, IndexError):
        return None
    return (topic, bytes(packet[at:]), mid) if topic and at <= len(packet) else None


def write_length(size: int) -> bytes:
    """The length of a packet as MQTT writes it: 7 bits to a byte, the lowest first."""
    found = bytearray()
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    found.append(size)
    return bytes(found)
