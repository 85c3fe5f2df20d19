"""Frames: what one MQTT payload holds.

    u16 header length | header, a msgpack array | zeros to a multiple of 8 | body

The header begins with a letter, and then has these fields:

    m  run src epoch seq lo acks number asks            a whole message; body: the encoded message
    c  ... size chunk digest index crc report           a chunk of a large message, after the fields of m; body: chunk
    o  ... size chunk digest nonce                      an offer of a large message, after the fields of m: what have
                                                        you got of it?
    p  run src reports                                  what has come: [whom it is for, epoch, seq, bitmap, nonce]
    a  run src acks [epoch closed]                      acknowledgements on their own; of a parent's questions up to
                                                        the number `closed`, none of this receiver's wants an answer
    b  src epoch session run ready refusal gone count nonce [unwilling] [devices]
        [labelled] [facts]                              birth, at each connect; as a will or a goodbye: gone
    h  src epoch session run here to count nonce taken devices refusal
                                                        hello, the answer to a birth; body: the encoded run, or empty

A message is named by (src, epoch, seq). The epoch is drawn when a node's store is made: another epoch is another disk.
`lo` is the lowest seq that the receiver has not acknowledged: it may forget everything below. `session` is drawn at
each connect, so that the will of an old connection cannot bury a new one. An ack is (whom it is for, epoch, seq).

Births and hellos that somebody has recorded must not count when they are played again. A parent takes the first birth
of a connection only if it repeats the `nonce` of the parent's latest hello to that child; else its hello says the
nonce, and the child its birth once more. Later births of that connection are counted up by `count`. A hello names the
birth that it answers by its session (`to`) and `count`, and a child takes no other.

A header may be longer than this table says: later versions append fields, and never reorder them. A field in brackets
was appended once: a peer of an older version does not send it, and does not look at it.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.children.device_facts import DeviceFacts, Reason
from edge_sdk.contract.records import record
from edge_sdk.errors import PeerError
from edge_sdk.wire.fields import (
    ALIGN,
    check_acks,
    check_bitmap,
    check_chunk,
    check_count,
    check_crc,
    check_devices,
    check_digest,
    check_facts,
    check_flag,
    check_index,
    check_labelled,
    check_reason,
    check_size,
    check_text,
    is_sound,
    show,
    split_payload,
)
from edge_sdk.wire.fields import MOST_CHUNKS as MOST_CHUNKS
from edge_sdk.wire.fields import Ack as Ack

Buffer = bytes | memoryview

ACKS_PER_FRAME = 256
"""So many fit into any header: each has at most 64 characters of name and two numbers."""


@record
class Numbered:
    """What the header of a message begins with, and that of a part of one.

    Attributes:
        lo: the receiver may forget all messages of this sender below.
        number: of the question that this asks or answers.
        asks: the receiver owes an answer.
    """

    run: str
    src: str
    epoch: int
    seq: int
    lo: int
    acks: tuple[Ack, ...]
    number: int
    asks: bool


@record
class Message(Numbered):
    """A whole message."""

    body: Buffer = b""


@record
class Large(Numbered):
    """What the header of a chunk and of an offer says of a large message.

    Attributes:
        size: bytes of the whole body.
        chunk: bytes of each chunk but the last.
        digest: made of the checksums of all chunks (see delivery/storage/files.py).
    """

    size: int
    chunk: int
    digest: bytes


@record
class Chunk(Large):
    """A chunk of a large message.

    Attributes:
        index: which chunk this is, from 0.
        crc: checksum of this chunk.
        report: the sender wants to know what has come.
    """

    index: int
    crc: int
    report: bool
    body: Buffer = b""


@record
class Offer(Large):
    """The question of a sender what has come of a large message.

    Attributes:
        nonce: what the report echoes, as an older one has another.
    """

    nonce: int
    body: Buffer = b""


@record
class ChunkReport:
    """Report of what has come of a large message.

    Attributes:
        bitmap: little-endian; bit i: chunk i is there.
        nonce: of the offer that this answers, or 0.
    """

    to: str
    epoch: int
    seq: int
    bitmap: bytes
    nonce: int = 0


@record
class ChunkReports:
    """Reports to one sender or several."""

    run: str
    src: str
    reports: tuple[ChunkReport, ...]
    body: Buffer = b""


@record
class Acks:
    """Acknowledgements that have found no message to travel with, and word of a round that is over.

    Attributes:
        epoch: of the sender's disk, where there is such word.
        closed: the receiver's answers to questions of this sender up to this number would count for nothing any more;
            0: nothing is said of that.
    """

    run: str
    src: str
    acks: tuple[Ack, ...]
    epoch: int = 0
    closed: int = 0
    body: Buffer = b""


@record
class Birth:
    """What a node says of itself when it connects or changes; with `gone`, a will or a goodbye.

    Attributes:
        run: id of the run that it works in, or empty.
        ready: its role has been started.
        refusal: why it cannot take part, or empty.
        count: which birth of this connection it is, from 1.
        nonce: of the latest hello that the node has had; 0: it has had none.
        unwilling: why the node wants no training now; None: it does.
        devices: how many there are behind it, where that may change while a run goes on; 0: it does not say.
        labelled: how many windows were given a label there so far, in steps; 0: it does not say.
        facts: what it tells of its machine; None: nothing.
        asked: number of the latest question of its parent in that run that it has taken; 0: none.
    """

    src: str
    epoch: int
    session: int
    run: str = ""
    ready: bool = False
    refusal: str = ""
    gone: bool = False
    count: int = 0
    nonce: int = 0
    unwilling: Reason | None = None
    devices: int = 0
    labelled: int = 0
    facts: DeviceFacts | None = None
    asked: int = 0
    body: Buffer = b""


@record
class Hello:
    """A parent's answer to a birth. Its body is the run, if the parent is in one.

    Attributes:
        here: the parent counts on the child.
        to, count: session and count of the birth that it answers.
        nonce: which the child's next connection is to repeat in its first birth.
        taken: the birth counts; otherwise it is to be said again, with this nonce.
        devices: how many the parent's settings say there are behind this child; 0: they say nothing.
        refusal: why the parent will have nothing to do with this node, or empty.
        acknowledged: seq of the question that the child's disk has acknowledged and owes an answer to; 0: of none.
        heard: seq of the latest message of the child's disk that the parent has taken; 0: none.
    """

    src: str
    epoch: int
    session: int
    run: str = ""
    here: bool = False
    to: int = 0
    count: int = 0
    nonce: int = 0
    taken: bool = True
    devices: int = 0
    refusal: str = ""
    acknowledged: int = 0
    heard: int = 0
    body: Buffer = b""


Frame = Message | Chunk | Offer | ChunkReports | Acks | Birth | Hello


def check_reports(value: Any) -> tuple[ChunkReport, ...]:
    if type(value) is not list or any(type(p) is not list or len(p) != 5 for p in value):
        raise PeerError("expected a list of [name, epoch, seq, bitmap, nonce]")
    return tuple(
        ChunkReport(check_text(p[0]), check_count(p[1]), check_count(p[2]), check_bitmap(p[3]), check_count(p[4]))
        for p in value
    )


Check = Callable[[Any], Any]

COUNTS: tuple[Check, ...] = (check_count,) * 3
MESSAGE_FIELDS = (check_text, check_text, *COUNTS, check_acks, check_count, check_flag)
DISK: tuple[Check, ...] = (check_text, check_count, check_count, check_text)  # of src, epoch, session and run
BIRTH_FIELDS = (
    *DISK, check_flag, check_text, check_flag, check_count, check_count, check_reason, check_devices, check_labelled,
    check_facts, check_count,
)  # fmt: skip
HELLO_FIELDS = (
    *DISK, check_flag, check_count, check_count, check_count, check_flag, check_devices, check_text, check_count,
    check_count,
)  # fmt: skip

KINDS: dict[str, tuple[type[Frame], tuple[Check, ...]]] = {
    "m": (Message, MESSAGE_FIELDS),
    "c": (Chunk, (*MESSAGE_FIELDS, check_size, check_chunk, check_digest, check_index, check_crc, check_flag)),
    "o": (Offer, (*MESSAGE_FIELDS, check_size, check_chunk, check_digest, check_count)),
    "p": (ChunkReports, (check_text, check_text, check_reports)),
    "a": (Acks, (check_text, check_text, check_acks, check_count, check_count)),
    "b": (Birth, BIRTH_FIELDS),
    "h": (Hello, HELLO_FIELDS),
}
"""Letter -> class of the frame, and the checks of its header's fields in their order."""

APPENDED = {"a": 2, "b": 5, "h": 2}
"""Letter -> how many of its fields were appended after the first version, so that they may be missing."""

LETTERS = {frame: letter for letter, (frame, _) in KINDS.items()}
HEADERS = {frame: attrgetter(*[f.name for f in dataclasses.fields(frame)][:-1]) for frame in LETTERS}


def pack_frame(frame: Frame) -> bytes:
    """Write a frame as the payload of an MQTT message."""
    kind = type(frame)
    fields = HEADERS[kind](frame)
    if isinstance(frame, Acks) and not frame.closed:
        fields = fields[: -APPENDED["a"]]  # most of them, and there are many
    if isinstance(frame, Birth) and not frame.asked:
        fields = fields[: -1 if frame.facts is not None else -2 if frame.labelled else -3]
    if isinstance(frame, Hello) and not (frame.acknowledged or frame.heard):
        fields = fields[: -APPENDED["h"]]
    header = msgpack.packb((LETTERS[kind], *fields), default=list_fields)
    return b"".join((struct.pack("<H", len(header)), header, bytes(-(2 + len(header)) % ALIGN), frame.body))


def list_fields(part: ChunkReport | Reason | DeviceFacts) -> tuple[Any, ...]:
    if isinstance(part, DeviceFacts):
        return part.version, part.board, part.battery
    if isinstance(part, Reason):
        return part.kind, float(part.value), float(part.limit)
    return part.to, part.epoch, part.seq, part.bitmap, part.nonce


def unpack_frame(payload: bytes) -> Frame:
    """Read a payload.

    Raises:
        PeerError: it is no frame.
    """
    header, body = split_payload(payload)
    if not header or not isinstance(header[0], str) or header[0] not in KINDS:
        raise PeerError(f"frame of unknown kind {show(header[0] if header else None)}")
    frame, checks = KINDS[header[0]]
    make: Callable[..., Frame] = frame
    least = len(checks) - APPENDED.get(header[0], 0)
    if len(header) <= least:
        raise PeerError(f"frame {header[0]!r} has {len(header) - 1} fields, expected {least}")
    try:
        if frame is Message and is_sound(header[1:9]):
            run, src, epoch, seq, lo, acks, number, asks = header[1:9]
            return Message(run, src, epoch, seq, lo, check_acks(acks), number=number, asks=asks, body=body)
        fields = [check(value) for check, value in zip(checks, header[1:], strict=False)]
    except PeerError as e:
        raise PeerError(f"frame {header[0]!r}: {e}") from None
    return make(*fields, body=body)
