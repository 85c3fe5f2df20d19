"""What one MQTT payload holds: `u16 header length | header, a msgpack array | zeros to a multiple of 8 | body`.

    m  run src epoch seq lo acks number asks            a whole message; body: the encoded message
    c  ... size chunk digest index crc report           a chunk of a large one, after the fields of m; body: the chunk
    o  ... size chunk digest nonce                      offer of a large one, after the fields of m: what is there?
    p  run src parts                                    chunks that came: [whom it is for, epoch, seq, bitmap, nonce]
    a  run src acks                                     acknowledgements on their own
    b  src epoch session run ready refusal gone         birth, on each connect; as a will: gone
    h  src epoch session run here                       hello, the answer to a birth; body: the encoded run, or empty

A message is named (src, epoch, seq). `epoch` is drawn when a node's database is made: another one means another disk.
`lo` is the lowest seq that the receiver has not acknowledged: it may forget everything below. `session` is drawn at
each connect, so that the will of an old connection cannot bury a new one. An ack is (whom it is for, epoch, seq).

A header may be longer than this table says: later versions append, never reorder.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.records import record
from edge_sdk.errors import PeerError

ALIGN = 8  # bytes; so that arrays in a body can be used where they lie
Buffer = bytes | memoryview
Ack = tuple[str, int, int]

ACKS_PER_FRAME = 256
"""As many fit into any header: 64 characters of name and two numbers each."""

LARGEST = 2**63 - 1  # what SQLite can hold
LARGEST_BODY = 2**32  # bytes
SMALLEST_CHUNK = 16384  # bytes; with the largest body, a bitmap of 32 KB


@record
class Message:
    run: str
    src: str
    epoch: int
    seq: int
    lo: int
    acks: tuple[Ack, ...]
    number: int
    asks: bool
    body: Buffer = b""


@record
class Chunk:
    """`digest`: of the checksums of all chunks. `report`: the sender wants to know what has come."""

    run: str
    src: str
    epoch: int
    seq: int
    lo: int
    acks: tuple[Ack, ...]
    number: int
    asks: bool
    size: int
    chunk: int
    digest: bytes
    index: int
    crc: int
    report: bool
    body: Buffer = b""


@record
class Offer:
    """A sender that does not know what has come asks. The answer echoes the nonce, so that an old one is no answer."""

    run: str
    src: str
    epoch: int
    seq: int
    lo: int
    acks: tuple[Ack, ...]
    number: int
    asks: bool
    size: int
    chunk: int
    digest: bytes
    nonce: int
    body: Buffer = b""


@record
class Held:
    """What has come of one large message: bit i of `bitmap` (little-endian) is chunk i."""

    to: str
    epoch: int
    seq: int
    bitmap: bytes
    nonce: int = 0


@record
class Parts:
    run: str
    src: str
    parts: tuple[Held, ...]
    body: Buffer = b""


@record
class Acks:
    run: str
    src: str
    acks: tuple[Ack, ...]
    body: Buffer = b""


@record
class Birth:
    """`run`: the one this node works in, or empty. `refusal`: why it cannot take part, or empty."""

    src: str
    epoch: int
    session: int
    run: str = ""
    ready: bool = False
    refusal: str = ""
    gone: bool = False
    body: Buffer = b""


@record
class Hello:
    """`here`: the child counts as present. The body is the run, unless the child said that it has it."""

    src: str
    epoch: int
    session: int
    run: str = ""
    here: bool = False
    body: Buffer = b""


Frame = Message | Chunk | Offer | Parts | Acks | Birth | Hello


def _text(value: Any) -> str:
    if type(value) is not str:
        raise PeerError(f"expected text, got {type(value).__name__}")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise PeerError(f"expected a number from 0 to 2^63 - 1, got {value!r:.40}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise PeerError(f"expected true or false, got {value!r:.40}")
    return value


def _acks(value: Any) -> tuple[Ack, ...]:
    """Checked all at once: what is said to all children acknowledges something of each, and each reads all of it."""
    if type(value) is not list or set(map(type, value)) - {list} or set(map(len, value)) - {3}:
        raise PeerError("expected a list of [name, epoch, seq]")
    if not value:
        return ()
    names, *numbers = zip(*value, strict=True)
    figures = numbers[0] + numbers[1]
    if set(map(type, names)) != {str} or set(map(type, figures)) != {int} or min(figures) < 0 or max(figures) > LARGEST:
        raise PeerError("expected a list of [name, epoch, seq], with numbers from 0 to 2^63 - 1")
    return tuple(map(tuple, value))


def _digest(value: Any) -> bytes:
    if type(value) is not bytes or len(value) != 16:
        raise PeerError("expected a digest of 16 bytes")
    return value


def _size(value: Any) -> int:
    if _count(value) > LARGEST_BODY or value == 0:
        raise PeerError(f"body of {value} bytes, it has 1 to {LARGEST_BODY}")
    return int(value)


def _chunk(value: Any) -> int:
    if _count(value) < SMALLEST_CHUNK:
        raise PeerError(f"chunks of {value} bytes, they have at least {SMALLEST_CHUNK}")
    return int(value)


def _parts(value: Any) -> tuple[Held, ...]:
    if type(value) is not list or any(type(p) is not list or len(p) != 5 for p in value):
        raise PeerError("expected a list of [name, epoch, seq, bitmap, nonce]")
    if any(type(p[3]) is not bytes for p in value):
        raise PeerError("a bitmap is bytes")
    return tuple(Held(_text(p[0]), _count(p[1]), _count(p[2]), p[3], _count(p[4])) for p in value)


Check = Callable[[Any], Any]

_ABOUT: tuple[Check, ...] = (_text, _text, _count, _count, _count, _acks, _count, _flag)

KINDS: dict[str, tuple[type[Frame], tuple[Check, ...]]] = {
    "m": (Message, _ABOUT),
    "c": (Chunk, (*_ABOUT, _size, _chunk, _digest, _count, _count, _flag)),
    "o": (Offer, (*_ABOUT, _size, _chunk, _digest, _count)),
    "p": (Parts, (_text, _text, _parts)),
    "a": (Acks, (_text, _text, _acks)),
    "b": (Birth, (_text, _count, _count, _text, _flag, _text, _flag)),
    "h": (Hello, (_text, _count, _count, _text, _flag)),
}
"""Kind -> its class and the checks of its header, in the order of the fields."""

LETTERS = {frame: letter for letter, (frame, _) in KINDS.items()}
HEADERS = {frame: attrgetter(*[f.name for f in dataclasses.fields(frame)][:-1]) for frame in LETTERS}


def pack(frame: Frame) -> bytes:
    """The payload of a frame."""
    kind = type(frame)
    header = msgpack.packb((LETTERS[kind], *HEADERS[kind](frame)), default=plain)
    return b"".join((struct.pack("<H", len(header)), header, bytes(-(2 + len(header)) % ALIGN), frame.body))


def plain(held: Held) -> tuple[str, int, int, bytes, int]:
    return held.to, held.epoch, held.seq, held.bitmap, held.nonce


def unpack(payload: bytes) -> Frame:
    """The frame of a payload.

    Raises:
        PeerError: it is none.
    """
    header, body = split(payload)
    if not header or not isinstance(header[0], str) or header[0] not in KINDS:
        raise PeerError(f"frame of unknown kind {header[0] if header else None!r:.40}")
    frame, checks = KINDS[header[0]]
    make: Callable[..., Frame] = frame
    if len(header) <= len(checks):
        raise PeerError(f"frame {header[0]!r} has {len(header) - 1} fields, expected {len(checks)}")
    try:
        fields = [check(value) for check, value in zip(checks, header[1:], strict=False)]
    except PeerError as e:
        raise PeerError(f"frame {header[0]!r}: {e}") from None
    return make(*fields, body=body)


def split(payload: bytes) -> tuple[list[Any], memoryview]:
    """Header and body."""
    if len(payload) < 2:
        raise PeerError(f"frame of {len(payload)} bytes, it has at least 2")
    size = int.from_bytes(payload[:2], "little")
    start = 2 + size + -(2 + size) % ALIGN
    if len(payload) < start:
        raise PeerError(f"frame says its header ends at byte {start}, it has {len(payload)}")
    try:
        header = msgpack.unpackb(payload[2 : 2 + size])
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as e:
        raise PeerError(f"header is not msgpack: {e}") from None
    if type(header) is not list:
        raise PeerError(f"header is {type(header).__name__}, expected an array")
    return header, memoryview(payload)[start:]
