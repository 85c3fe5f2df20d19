"""A scan of an ONNX file, which reads its protobuf without the onnx package.

A bundle may come from anywhere. Before onnxruntime sees a graph we want to know that it holds only operators of allowed
domains, and no tensor that lives in another file. Field numbers are those of onnx.proto3 (IR version 9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_DEPTH = 16

# message -> field number -> (name, the message inside it or "")
FIELDS: dict[str, dict[int, tuple[str, str]]] = {
    "model": {1: ("ir", ""), 7: ("graph", "graph"), 8: ("opset", "opset"), 20: ("training", ""), 25: ("function", "")},
    "opset": {1: ("domain", ""), 2: ("version", "")},
    "graph": {1: ("node", "node"), 5: ("tensor", "tensor"), 15: ("sparse", "")},
    "node": {4: ("operator", ""), 5: ("attribute", "attribute"), 7: ("domain", "")},
    "attribute": {
        5: ("tensor", "tensor"), 6: ("graph", "graph"), 10: ("tensor", "tensor"), 11: ("graph", "graph"), 22:
        ("sparse", ""),
        23: ("sparse", ""),
    },
    "tensor": {13: ("external", ""), 14: ("location", "")},
}  # fmt: skip


@dataclass
class Facts:
    """The findings of a scan.

    Attributes:
        operators: number of nodes.
        domains: of the operators.
        opsets: domain -> version.
        forbidden: things that no bundle may have, in words.
    """

    operators: int = 0
    domains: set[str] = field(default_factory=set)
    opsets: dict[str, int] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)


def scan(data: memoryview) -> Facts:
    """Walks the whole file.

    Raises:
        ValueError: not a protobuf message of this kind.
    """
    facts = Facts()
    walk(data, "model", facts, 0)
    return facts


def walk(data: memoryview, message: str, facts: Facts, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"graphs nested deeper than {MAX_DEPTH}")
    values: dict[str, int | str] = {}
    for number, wire, value in read_fields(data):
        name, inner = FIELDS[message].get(number, ("", ""))
        if name in WORDS and (wire == BYTES or value):
            facts.forbidden.add(WORDS[name])
        elif inner and isinstance(value, memoryview):
            walk(value, inner, facts, depth + 1)
        elif name and isinstance(value, memoryview):
            values[name] = bytes(value).decode("utf-8", "strict")
        elif name and isinstance(value, int):
            values[name] = value
    note_facts(message, values, facts)


WORDS = {
    "external": "a tensor stored in another file",
    "location": "a tensor stored in another file",
    "function": "functions of its own",
    "training": "training information",
    "sparse": "sparse tensors",
}


def note_facts(message: str, values: dict[str, int | str], facts: Facts) -> None:
    if message == "node":
        facts.operators += 1
        facts.domains.add(str(values.get("domain", "")))
    if message == "opset":
        facts.opsets[str(values.get("domain", ""))] = int(values.get("version", 0))


def read_fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Reads the fields of one message: field number, wire type, number or bytes."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = read_varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = read_varint(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes at byte {at} of {len(data)}")
        yield number, wire, data[at : at + size]
        at += size


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number without an end at byte {at}")
