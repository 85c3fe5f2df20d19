"""Checks of a frame's header and its fields: what a peer has sent has the right type and range, or is a PeerError."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.children.device_facts import LONGEST, DeviceFacts, Reason
from edge_sdk.contract.children.limits import MOST_DEVICES, MOST_LABELLED
from edge_sdk.errors import PeerError

Ack = tuple[str, int, int]
ALIGN = 8  # bytes; so that arrays in a body can be used where they lie
ITEMS = 1024  # of any list in a header
SOUND = (str, str, int, int, int, list, int, bool)
"""Types of the fields of a message: run, src, epoch, seq, lo, acks, number, asks."""
LARGEST = 2**63 - 1  # what SQLite can hold
LARGEST_BODY = 2**32  # bytes
SMALLEST_CHUNK = 4096  # bytes; small enough for every broker that is worth the name
MOST_CHUNKS = 2**18  # of a body; their bitmap has 32 KB
KIND = re.compile(r"[a-z_]{1,24}")  # of a reason


def show(value: Any, most: int = 40) -> str:
    """The beginning of a peer's value, as an error shows it, whatever it is: also of lists deep within each other."""
    try:
        return f"{value!r:.{most}}"
    except RecursionError:
        return f"a {type(value).__name__} of many within each other"


def check_text(value: Any) -> str:
    if type(value) is not str:
        raise PeerError(f"expected text, got {type(value).__name__}")
    return value


def check_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise PeerError(f"expected a number from 0 to 2^63 - 1, got {show(value)}")
    return value


def check_devices(value: Any) -> int:
    if check_count(value) > MOST_DEVICES:
        raise PeerError(f"{value} devices behind one node, there are at most {MOST_DEVICES}")
    return int(value)


def check_labelled(value: Any) -> int:
    if check_count(value) > MOST_LABELLED:
        raise PeerError(f"{value} labelled windows of one device, there are at most {MOST_LABELLED}")
    return int(value)


def check_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise PeerError(f"expected true or false, got {show(value)}")
    return value


def check_acks(value: Any) -> tuple[Ack, ...]:
    """Check all acknowledgements at once: a frame to all children has some for each, and each child reads all."""
    if type(value) is not list or set(map(type, value)) - {list} or set(map(len, value)) - {3}:
        raise PeerError("expected a list of [name, epoch, seq]")
    if not value:
        return ()
    names, *numbers = zip(*value, strict=True)
    figures = numbers[0] + numbers[1]
    if set(map(type, names)) != {str} or set(map(type, figures)) != {int} or min(figures) < 0 or max(figures) > LARGEST:
        raise PeerError("expected a list of [name, epoch, seq], with numbers from 0 to 2^63 - 1")
    return tuple(map(tuple, value))


def check_digest(value: Any) -> bytes:
    if type(value) is not bytes or len(value) != 16:
        raise PeerError("expected a digest of 16 bytes")
    return value


def check_size(value: Any) -> int:
    if check_count(value) > LARGEST_BODY or value == 0:
        raise PeerError(f"body of {value} bytes, it has 1 to {LARGEST_BODY}")
    return int(value)


def check_chunk(value: Any) -> int:
    if not SMALLEST_CHUNK <= check_count(value) <= LARGEST_BODY:
        raise PeerError(f"chunks of {value} bytes, they have {SMALLEST_CHUNK} to {LARGEST_BODY}")
    return int(value)


def check_index(value: Any) -> int:
    if check_count(value) >= MOST_CHUNKS:
        raise PeerError(f"chunk {value}, counted from 0 there are at most {MOST_CHUNKS}")
    return int(value)


def check_crc(value: Any) -> int:
    if check_count(value) >= 2**32:
        raise PeerError(f"a checksum of {value}, it has 32 bits")
    return int(value)


def check_bitmap(value: Any) -> bytes:
    if type(value) is not bytes:
        raise PeerError("a bitmap is bytes")
    if len(value) > MOST_CHUNKS // 8:
        raise PeerError(f"a bitmap of {len(value)} bytes, for {MOST_CHUNKS} chunks it has {MOST_CHUNKS // 8}")
    return value


def check_facts(value: Any) -> DeviceFacts | None:
    """Check what a device tells of its machine; a later version may tell more behind the three."""
    if value is None:
        return None
    if type(value) is not list or len(value) < 3:
        raise PeerError("expected facts, [version, board, battery]")
    version, board, battery = value[:3]
    if any(type(text) is not str or len(text) > LONGEST or not text.isprintable() for text in (version, board)):
        raise PeerError(f"facts have printable texts of at most {LONGEST} characters")
    if battery is not None and check_count(battery) > 100:
        raise PeerError(f"a battery at {battery} %")
    return DeviceFacts(version, board, battery)


def check_reason(value: Any) -> Reason | None:
    """Check why a peer wants no training. Kinds that this version does not know are taken too: later ones have more."""
    if value is None:
        return None
    if type(value) is not list or len(value) != 3 or type(value[0]) is not str or not KIND.fullmatch(value[0]):
        raise PeerError("expected a reason, [kind, value, limit]")
    if any(type(number) is not float or not isfinite(number) for number in value[1:]):
        raise PeerError(f"a reason has two finite numbers, got {show(value[1:], 60)}")
    return Reason(*value)


def is_sound(fields: list[Any]) -> bool:
    """The fields of a message are right, but perhaps for `acks`. All are looked at together, as most frames are of this
    kind; where this says no, the checks of single fields say what is wrong."""
    if tuple(map(type, fields)) != SOUND:
        return False
    counts = fields[2], fields[3], fields[4], fields[6]
    return bool(min(counts) >= 0 and max(counts) <= LARGEST)


def split_payload(payload: bytes) -> tuple[list[Any], memoryview]:
    """Header and body."""
    if len(payload) < 2:
        raise PeerError(f"frame of {len(payload)} bytes, it has at least 2")
    size = int.from_bytes(payload[:2], "little")
    start = 2 + size + -(2 + size) % ALIGN
    if len(payload) < start:
        raise PeerError(f"frame says its header ends at byte {start}, it has {len(payload)}")
    try:
        # limits: msgpack makes room for what an array's length promises before it looks whether that is there
        header = msgpack.unpackb(payload[2 : 2 + size], max_array_len=ITEMS, max_map_len=ITEMS, max_ext_len=0)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as e:
        raise PeerError(f"header is not msgpack: {e}") from None
    if type(header) is not list:
        raise PeerError(f"header is {type(header).__name__}, expected an array")
    return header, memoryview(payload)[start:]
