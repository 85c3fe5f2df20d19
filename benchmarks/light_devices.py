"""Scripted devices for fan_in.py: many MQTT connections in one process, which answer with prepared uploads.

    python benchmarks/light_devices.py PORT FIRST COUNT BUNDLE RUN HOSPITAL

They are FIRST, FIRST + 1, ... of hospital HOSPITAL, have a model like BUNDLE's, and speak what a device of ours does,
but save nothing: a birth, the run's acceptance, and for each question an acknowledgement and an answer in one frame.
RUN: the run as JSON. Models must be small enough to travel whole.
MQTT 3.1.1 is written out here, because a client library takes more memory for a connection than a broker.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.evaluation.evaluation import Evaluate, Scores
from edge_sdk.model.bundle import Bundle, read_bundle
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Birth, Hello, Message, pack_frame, unpack_frame

AT_ONCE = 200
"""Connections that are opened before the answers of earlier ones are looked at."""


def name_of(hospital: str, number: int) -> str:
    """Devices of a hospital have its name before their own, so it can be split by it."""
    return f"{hospital}-{number:05d}"


# MQTT -----------------------------------------------------------------------------------------------------------
def packet(kind: int, body: bytes) -> bytes:
    size, length = bytearray(), len(body)
    while True:
        length, digit = divmod(length, 128)
        size.append(digit | (128 if length else 0))
        if not length:
            return bytes([kind]) + bytes(size) + body


def text(value: str) -> bytes:
    data = value.encode()
    return len(data).to_bytes(2, "big") + data


def connect(name: str) -> bytes:
    return packet(0x10, text("MQTT") + bytes([4, 2, 0, 0]) + text(name))


def subscribe(names: tuple[str, ...]) -> bytes:
    return packet(0x82, b"\0\1" + b"".join(text(name) + b"\1" for name in names))


def publish(topic: str, payload: bytes) -> bytes:
    return packet(0x30, text(topic) + payload)


def packets(buffer: bytearray) -> list[tuple[int, bytes]]:
    """Whole packets at the front of a buffer, which are taken out of it."""
    found, at = [], 0
    while True:
        length, shift, start = 0, 0, at + 1
        while start < len(buffer):
            digit = buffer[start]
            start += 1
            length |= (digit & 127) << shift
            shift += 7
            if not digit & 128:
                break
        else:
            break
        if len(buffer) < start + length:
            break
        found.append((buffer[at], bytes(buffer[start : start + length])))
        at = start + length
    del buffer[:at]
    return found


# Devices --------------------------------------------------------------------------------------------------------
@dataclass
class LightDevice:
    """One connection.

    Attributes:
        births: said so far.
        joined: it has taken up the run.
        met: session of the hospital in which it did.
        latest: number of the last question, and the frame that answered it.
    """

    name: str
    hospital: str
    socket: socket.socket
    session: int
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    seq: int = 0
    births: int = 0
    joined: bool = False
    met: int = 0
    latest: tuple[int, bytes] = (0, b"")

    def say_birth(self, nonce: int, run: str = "") -> None:
        self.births += 1
        birth = Birth(self.name, self.session, self.session, run, bool(run), "", False, self.births, nonce)
        self.send(topics.BIRTHS, pack_frame(birth))

    def send(self, channel: str, payload: bytes) -> None:
        self.outgoing += publish(topics.upward(self.hospital, self.name, channel), payload)

    def flush(self) -> None:
        if self.outgoing:
            try:
                del self.outgoing[: self.socket.send(self.outgoing)]
            except BlockingIOError:
                return


class Answers:
    """Uploads that are made once for each question, whoever is asked."""

    def __init__(self, run: Run, bundle: Bundle) -> None:
        env = make_env(run, bundle.layout, bundle.theta0)
        self.codec = make_assembly(run, "device", env).messages
        self.upload = bundle.theta0
        self.known: dict[bytes, bytes] = {}

    def __call__(self, body: bytes) -> bytes:
        if body not in self.known:
            self.known = {body: self.codec.encode(self.answer(self.codec.decode(body)))}
        return self.known[body]

    def answer(self, question: Any) -> Any:
        if isinstance(question, Evaluate):
            return Scores(question.round, {"devices": 1.0, "samples": 10.0, "global_correct": 5.0})
        return Sum(self.upload, 1.0, 1, {"loss": 0.5})


class Crowd:
    """All devices of this process.

    Attributes:
        answered: questions so far.
    """

    def __init__(self, port: int, names: list[str], hospital: str, run: Run, bundle: Bundle) -> None:
        self.port, self.names, self.hospital, self.run = port, names, hospital, run
        self.answers, self.answered = Answers(run, bundle), 0
        self.selector = selectors.DefaultSelector()

    def open(self, name: str) -> None:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        device = LightDevice(name, self.hospital, connection, time.time_ns() % 2**53 + 1)
        device.outgoing += connect(name) + subscribe(topics.heard_by_child(self.hospital, name))
        self.selector.register(connection, selectors.EVENT_READ, device)
        device.flush()

    def play(self) -> None:
        """Opens all connections, and answers for ever."""
        for start in range(0, len(self.names), AT_ONCE):
            for name in self.names[start : start + AT_ONCE]:
                self.open(name)
            self.look(0.05)
        print("open", flush=True)
        while True:
            self.look(1.0)

    def look(self, patience: float) -> None:
        for key, _ in self.selector.select(patience):
            device: LightDevice = key.data
            data = device.socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"{device.name}: the broker has closed the connection")
            device.incoming += data
            for kind, body in packets(device.incoming):
                self.take(device, kind, body)
            device.flush()
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if device.outgoing else 0)
            if key.events != wanted:
                self.selector.modify(device.socket, wanted, device)

    def take(self, device: LightDevice, kind: int, body: bytes) -> None:
        if kind >> 4 == 9:  # subscribed
            device.say_birth(0)
        if kind >> 4 != 3:
            return
        size = int.from_bytes(body[:2], "big")
        at = 2 + size
        if kind & 6:
            device.outgoing += packet(0x40, body[at : at + 2])
            at += 2
        frame = unpack_frame(body[at:])
        if isinstance(frame, Hello) and frame.to == device.session:
            if not frame.taken:
                device.say_birth(frame.nonce)
            elif frame.run and not device.joined:
                device.joined, device.met = True, frame.session
                device.say_birth(frame.nonce, frame.run)
        elif isinstance(frame, Birth) and not frame.gone and frame.session != device.met:
            device.joined = False  # the hospital has come after us, or again
            device.say_birth(0)
        elif isinstance(frame, Message):
            self.reply(device, frame)

    def reply(self, device: LightDevice, frame: Message) -> None:
        """An answer with the acknowledgement in it; the same again, if the question is repeated."""
        if frame.number != device.latest[0] and frame.asks:
            device.seq += 1
            self.answered += 1
            acks = ((frame.src, frame.epoch, frame.seq),)
            numbers = (device.session, device.seq, device.seq)
            body = self.answers(bytes(frame.body))
            answer = Message(frame.run, device.name, *numbers, acks, frame.number, False, body)
            device.latest = frame.number, pack_frame(answer)
        device.send(topics.MESSAGES, device.latest[1])


def main() -> None:
    port, first, count, bundle, run, hospital = sys.argv[1:]
    names = [name_of(hospital, int(first) + i) for i in range(int(count))]
    told = json.loads(run)
    described = Run(**{name: tuple(value) if isinstance(value, list) else value for name, value in told.items()})
    Crowd(int(port), names, hospital, described, read_bundle(bundle)).play()


if __name__ == "__main__":
    main()
