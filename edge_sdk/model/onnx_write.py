"""The little of ONNX's protobuf that a device writes itself, without the onnx package: see onnx_scan.py."""

from __future__ import annotations

from edge_sdk.model.onnx_scan import read_fields

MICROSOFT = "com.microsoft"
OPSET = 8  # field of a model: a domain and the version of its operators


def write(number: int, value: int | str | bytes) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return write_count(number << 3) + write_count(value)
    data = value.encode() if isinstance(value, str) else value
    return write_count(number << 3 | 2) + write_count(len(data)) + data


def write_count(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + write_count(value >> 7)


def write_domain(data: bytes) -> bytes:
    """A graph that says which version of onnxruntime's own operators it may be optimised to have.

    One that does not say so is taken to have the latest; and where a library has added an operator to their domain,
    none of the others is known in that.
    """
    opsets = [value for number, _, value in read_fields(memoryview(data)) if number == OPSET]
    if any(write(1, MICROSOFT) in bytes(value) for value in opsets if isinstance(value, memoryview)):
        return data
    return data + write(OPSET, write(1, MICROSOFT) + write(2, 1))  # a repeated field goes on wherever it stands
