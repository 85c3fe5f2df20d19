"""The little of ONNX's protobuf that a device writes itself, without the onnx package: see onnx_scan.py."""

from __future__ import annotations


def write(number: int, value: int | str | bytes) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return write_count(number << 3) + write_count(value)
    data = value.encode() if isinstance(value, str) else value
    return write_count(number << 3 | 2) + write_count(len(data)) + data


def write_count(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + write_count(value >> 7)
