"""A small MQTT 5 broker that means its limits: who exceeds one is thrown out with the standard's code, and noted.

It acknowledges late, one at a time, so that a client which does not count its own publishes is bound to exceed them.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from types import TracebackType

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 1, 2, 3, 4, 8, 9, 12, 13, 14
QUOTA_EXCEEDED, TOO_LARGE = 0x93, 0x95
ACK_AFTER = 0.03  # seconds


@dataclass(eq=False)
class Client:
    """One connection. `unacked`: publishes that wait for our acknowledgement; `waiting`: ours that wait for theirs."""

    writer: asyncio.StreamWriter
    filters: list[str] = field(default_factory=list)
    unacked: int = 0
    sent: int = 0


class StrictBroker:
    """Listens while the `with` lasts.

    Args:
        receive_maximum: publishes that a client may have unacknowledged.
        packet: bytes of the largest packet.

    Attributes:
        violations: what clients did that they may not.
        most: the largest number of unacknowledged publishes seen.
        connections: how many there have been.
    """

    def __init__(self, receive_maximum: int, packet: int):
        self.receive_maximum, self.packet = receive_maximum, packet
        self.violations: list[str] = []
        self.most = self.connections = self.port = 0
        self.clients: set[Client] = set()
        self.loop = asyncio.new_event_loop()
        self.listening = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def __enter__(self) -> StrictBroker:
        self.thread.start()
        assert self.listening.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join(10)

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self.serve())

    async def serve(self) -> None:
        self.end = asyncio.Event()
        server = await asyncio.start_server(self.talk, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.listening.set()
        await self.end.wait()
        server.close()
        for client in self.clients:
            client.writer.close()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client, self.connections = Client(writer), self.connections + 1
        self.clients.add(client)
        try:
            while (packet := await read_packet(reader)) is not None:
                if not self.handle(client, *packet):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.clients.discard(client)
            writer.close()

    def handle(self, client: Client, head: int, body: bytes) -> bool:
        """True if the client may stay."""
        kind = head >> 4
        if len(body) > self.packet:
            return self.refuse(client, TOO_LARGE, f"packet of {len(body)} bytes")
        if kind == CONNECT:
            limits = b"\x21" + self.receive_maximum.to_bytes(2, "big") + b"\x27" + self.packet.to_bytes(4, "big")
            self.send(client, CONNACK << 4, b"\0\0" + number(len(limits)) + limits)
        elif kind == SUBSCRIBE:
            self.subscribe(client, body)
        elif kind == PUBLISH:
            return self.publish(client, head, body)
        elif kind == PINGREQ:
            self.send(client, PINGRESP << 4, b"")
        return kind != DISCONNECT

    def subscribe(self, client: Client, body: bytes) -> None:
        rest, codes = body[3 + body[2] :], b""
        while rest:
            size = int.from_bytes(rest[:2], "big")
            client.filters.append(rest[2 : 2 + size].decode())
            codes, rest = codes + b"\x01", rest[3 + size :]
        self.send(client, SUBACK << 4, body[:2] + b"\0" + codes)

    def publish(self, client: Client, head: int, body: bytes) -> bool:
        size = int.from_bytes(body[:2], "big")
        topic, rest = body[2 : 2 + size].decode(), body[2 + size :]
        if head & 6:
            client.unacked += 1
            self.most = max(self.most, client.unacked)
            if client.unacked > self.receive_maximum:
                return self.refuse(client, QUOTA_EXCEEDED, f"{client.unacked} publishes unacknowledged")
            self.loop.call_later(ACK_AFTER * client.unacked, self.acknowledge, client, rest[:2])
            rest = rest[2:]
        payload = rest[1 + rest[0] :]
        for other in self.clients:
            if any(matches(each, topic) for each in other.filters):
                other.sent = other.sent % 60000 + 1
                name = len(topic).to_bytes(2, "big") + topic.encode()
                self.send(other, PUBLISH << 4 | 2, name + other.sent.to_bytes(2, "big") + b"\0" + payload)
        return True

    def acknowledge(self, client: Client, identifier: bytes) -> None:
        client.unacked -= 1
        self.send(client, PUBACK << 4, identifier)

    def refuse(self, client: Client, code: int, why: str) -> bool:
        self.violations.append(why)
        self.send(client, DISCONNECT << 4, bytes([code]))
        return False

    def send(self, client: Client, head: int, body: bytes) -> None:
        if not client.writer.is_closing():
            client.writer.write(bytes([head]) + number(len(body)) + body)


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes] | None:
    """First byte and the rest of a packet; None at the end."""
    head = await reader.read(1)
    if not head:
        return None
    size = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        size |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return head[0], await reader.readexactly(size)


def number(value: int) -> bytes:
    """A variable byte integer."""
    found = b""
    while True:
        value, low = divmod(value, 128)
        found += bytes([low | (128 if value else 0)])
        if not value:
            return found


def matches(pattern: str, topic: str) -> bool:
    wanted, found = pattern.split("/"), topic.split("/")
    return len(wanted) == len(found) and all(w in ("+", f) for w, f in zip(wanted, found, strict=True))
