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


def write_node(
    operator: str, inputs: tuple[str, ...], outputs: tuple[str, ...], attribute: bytes = b"", domain: str = ""
) -> bytes:
    """A node of a graph, as its field; `attribute`: the only one, as a message."""
    names = b"".join(write(1, name) for name in inputs) + b"".join(write(2, name) for name in outputs)
    more = (write(5, attribute) if attribute else b"") + (write(7, domain) if domain else b"")
    return write(1, names + write(4, operator) + more)


def write_graph(nodes: bytes, inputs: tuple[str, ...], outputs: tuple[str, ...], domain: str = "") -> bytes:
    """A file with a graph on tensors of float32 of any shape, of operators of ONNX and of one more `domain`."""
    values = b"".join(write(11, write_value(i)) for i in inputs) + b"".join(write(12, write_value(o)) for o in outputs)
    opsets = write(8, write(2, 17)) + (write(8, write(1, domain) + write(2, 1)) if domain else b"")
    return write(1, 8) + opsets + write(7, nodes + write(2, "probe") + values)


def write_value(name: str) -> bytes:
    """A tensor of float32 of any shape."""
    return write(1, name) + write(2, write(1, write(1, 1)))
