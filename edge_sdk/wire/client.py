"""paho's client on a Stream, with a short way for the packets that are many: PUBLISH of QoS 0 and 1.

paho reads a packet byte by byte and makes a dozen objects of it, with MQTT 5 a table of all properties among them. That
took longer than all that became of a message afterwards. So a PUBLISH that lies whole in the stream is taken apart
here, and one of QoS 0 is put together here; everything else is paho's, also what is malformed.

Whatever a broker sends ends its connection at worst. paho has an error for most of what is malformed; what it raises
beside that (another version of it raises more) is caught where a packet is taken up, and `malformed` says why.

paho has no public way to do so, nor to bring a socket of one's own, so these names are private: test each new version
of paho. Beside `mqtt.py` no other module imports it.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import MessageType, MQTTErrorCode

from edge_sdk.wire.codec.bodies import clip
from edge_sdk.wire.link_limits import LARGEST
from edge_sdk.wire.stream import Stream

KIND, QOS, RETAIN = 0xF0, 0x06, 0x01  # bits of a packet's first byte
PUBLISH = int(MessageType.PUBLISH)
MOST = 2 * LARGEST  # bytes of a packet that is taken apart here; room is made for all of it at once
LARGEST_TAKEN = 16 * LARGEST  # bytes of a packet that is taken at all; a node's are an eighth of that, a report a third
LONGEST = 5  # bytes of a fixed header: the first, and at most four that say how many more follow
KINDS = {int(kind): kind.name for kind in MessageType}
HEARD = ("_last_bytes_received", "_last_msg_in")  # where paho keeps when it has read something: as of 2.2, and before
LENGTH = struct.Struct("!H")

CLOSED = "the connection was closed by the other end"
Publish = tuple[bytes, bytes, bool]
"""Topic and payload of a message, and whether it was retained."""


class Client(paho.Client):
    """paho's client, with a Stream as its socket.

    Attributes:
        stream: the socket of the present connection.
        malformed: what is wrong with the packet that has ended it; "": there was none.
        oversized: messages that were passed over for their size, and not counted yet; `left`: bytes of the present one
            that are still to come.
    """

    stream: Stream | None = None
    malformed = ""
    oversized = left = 0

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

    def _packet_read(self) -> MQTTErrorCode:
        result = super()._packet_read()
        if result == MQTTErrorCode.MQTT_ERR_PROTOCOL and not self.malformed:
            self.malformed = "the broker has sent a packet whose length has more than four bytes"
        return result

    def _packet_handle(self) -> MQTTErrorCode:
        """Handle the packet that paho has read. Nothing is raised for what is in it, nor by what paho calls for it."""
        packet, why = self._in_packet, ""
        first = packet["command"]
        try:
            if first & KIND == PUBLISH and first & QOS > 2:
                raise ValueError(f"QoS {(first & QOS) >> 1}, and no topic was asked for with more than 1")
            result = super()._packet_handle()
            if result == MQTTErrorCode.MQTT_ERR_PROTOCOL:
                why = paho.error_string(result)
        except Exception as error:
            result, why = MQTTErrorCode.MQTT_ERR_PROTOCOL, f"{type(error).__name__}: {error}"
        if why:
            kind = KINDS.get(first & KIND, f"reserved packet {first >> 4}")
            size = packet["remaining_length"]
            self.malformed = clip(f"the broker has sent a {kind} of {size} bytes that is none: {why}", 200)
        return result

    @property
    def alert(self) -> str:
        """What the other end has said over TLS of why it closes, as of a revoked certificate; "": nothing."""
        error = None if self.stream is None else self.stream.broken
        said = (getattr(error, "reason", None) or "").partition("_ALERT_")[2]
        return said.replace("_", " ").lower()

    @property
    def why_closed(self) -> str:
        """What is known of why the other end has closed."""
        return f"{CLOSED}: {self.alert}" if self.alert else CLOSED

    def hear_end(self) -> str:
        """Why the other end has closed, where it has said so before a write failed; else ""."""
        if self.stream is not None:
            self.stream.hear_end()
        return self.why_closed if self.alert else ""

    def keep_alive(self, seconds: int) -> None:
        """Ping the broker after so many seconds of silence, whatever it has said."""
        self._keepalive = seconds

    def note_heard(self) -> None:
        """Let a packet count that is still coming in: paho hears of it when all of it is there, and cuts a slow link
        off for its silence meanwhile. The answer to a ping may wait behind that packet: the ping counts as answered, so
        that the next one is sent in time, and the broker goes on hearing us."""
        heard = 0.0 if self.stream is None else self.stream.heard
        if heard > getattr(self, self.heard):
            setattr(self, self.heard, heard)
        if heard > self._ping_t:
            self._ping_t = 0

    def take_publish(self) -> Publish | None:
        """Take the packet that comes next, and acknowledge it, where it is a PUBLISH that has come whole.

        Returns:
            None: it is another one, which `loop_read` reads; or its rest has not come, as `stream.short` says then.
        """
        stream: Any = self._sock
        if not isinstance(stream, Stream) or self._in_packet["command"]:
            return None  # a websocket has frames of its own; what paho has begun is paho's
        if self.left:
            self.pass_over(stream)
            return None
        if (found := find_packet(stream)) is None:
            return None
        first, head, size = found
        if head + size > LARGEST_TAKEN:
            self.begin_to_pass(stream, first, head, size)
            return None
        message = take_apart(stream.peek(head + size)[head:], first, self._protocol == paho.MQTTv5)
        if message is None:
            return None
        topic, payload, mid = message
        stream.take(head + size)
        setattr(self, self.heard, stream.heard)
        if first & QOS:
            self._send_puback(mid)
        return topic, payload, bool(first & RETAIN)

    def begin_to_pass(self, stream: Stream, first: int, head: int, size: int) -> None:
        """Pass over a message that is larger than any of ours, as if it had come and was dropped: to end the connection
        would let any peer end it, and to keep the message would let it use a device's memory."""
        if first & QOS:
            (name,) = LENGTH.unpack(stream.peek(head + LENGTH.size)[head:])
            at = head + LENGTH.size + name
            if not stream.gather(at + LENGTH.size):
                return
            self._send_puback(LENGTH.unpack(stream.peek(at + LENGTH.size)[at:])[0])
        self.oversized, self.left = self.oversized + 1, head + size
        self.pass_over(stream)

    def pass_over(self, stream: Stream) -> None:
        while self.left and stream.gather(1):
            some = min(self.left, stream.held)
            stream.take(some)
            self.left -= some

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
    and all there; of one that is larger than LARGEST_TAKEN only the length of its topic."""
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
    whole = head + size
    if whole > LARGEST_TAKEN:
        return (first, head, size) if stream.gather(head + LENGTH.size) else None
    return (first, head, size) if whole <= MOST and stream.gather(whole) else None


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
            at = pass_over_properties(packet, at)
    except (struct.error, IndexError):
        return None
    return (topic, bytes(packet[at:]), mid) if topic and at <= len(packet) else None


def pass_over_properties(packet: memoryview, at: int) -> int:
    """Where the properties end that begin at `at`. They are not read: paho takes time for them that grows with the
    square of their number, and a peer may send a megabyte of them.

    Raises:
        IndexError: the packet ends before, or their length has more than four bytes.
    """
    size = 0
    for shift in (0, 7, 14, 21):
        octet = packet[at]
        at, size = at + 1, size | (octet & 0x7F) << shift
        if not octet & 0x80:
            return at + size
    raise IndexError("a length of more than four bytes")


def write_length(size: int) -> bytes:
    """The length of a packet as MQTT writes it: 7 bits to a byte, the lowest first."""
    found = bytearray()
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    found.append(size)
    return bytes(found)
