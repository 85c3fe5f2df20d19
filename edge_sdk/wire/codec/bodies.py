"""Bodies: the arrays of one message, each written once, and read back as a view of the bytes that arrived.

The header of a message names an array by an extension of msgpack, `[dtype code, shape, index]`. The bodies follow the
header in the order of their index, which is the order in which they are first named. No offset is ever written, so none
can overlap another, leave a gap or point outside.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import DTYPES

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

EXTENSION = 1  # the only extension type in a header
ALIGN = 8  # bytes; every body starts at a multiple of it
AXES = 32  # numpy 1 has no more
DEPTH = 32  # of values inside values; far above any message, far below Python's own limit
DIVERGED = "what was computed here has diverged: a smaller step size (a setting of the method) may help"
PADDING = b"\0" * ALIGN

_TYPES = tuple(np.dtype(name).newbyteorder("<") for name in DTYPES)
_CODES = {dtype: code for code, dtype in enumerate(_TYPES)}
_FLOATS = frozenset(code for code, dtype in enumerate(_TYPES) if dtype.kind == "f")
_BOOL = DTYPES.index("bool")
_PAYLOAD = 512  # bytes of an extension: AXES sizes of 9 bytes and two small numbers fit


class Fault(Exception):
    """An error with its address, which grows from the inside out while it is raised. It never leaves the codec."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem, self.hint, self.path = problem, hint, list[str]()

    def __str__(self) -> str:
        return f"{self.problem} at ${''.join(reversed(self.path))}" + (f"; {self.hint}" if self.hint else "")


def clip(text: str, most: int = 60) -> str:
    """At most so many characters, all printable, of what a peer may have written: an error is one line of a log."""
    text = text if len(text) <= most else f"{text[: most - 3]}..."
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def short(value: object) -> str:
    """A peer's value in printable characters."""
    return clip(ascii(value[:60] if isinstance(value, (str, bytes)) else value))


def describe(shape: tuple[int | str, ...], dtype: str) -> str:
    """A shape and its element type in the words of an error: float32 (64, 3)."""
    return clip(f"{dtype} ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})")


def code_of(array: Array) -> int:
    """The number of an element type in bytes.

    Raises:
        Fault: it is none of DTYPES in little-endian order, or the array's class means more than its elements.
    """
    if type(array) is not np.ndarray or array.dtype not in _CODES or array.ndim > AXES:
        kind = f"{type(array).__name__} {describe(array.shape, str(array.dtype))}"
        raise Fault(f"expected a numpy.ndarray of at most {AXES} axes of {', '.join(DTYPES)}, got {clip(kind)}")
    return _CODES[array.dtype]


def check_finite(array: Array, code: int, hint: str = "") -> None:
    if code in _FLOATS and not (finite := np.isfinite(array)).all():
        raise element_fault("finite numbers", array, finite, hint)


def check_bool(array: Array) -> None:
    """Refuse bytes other than 0 and 1 in an array of bool: numpy takes any, and would count with it."""
    octets = array.view(np.uint8)
    if octets.size and octets.max() > 1:
        raise element_fault("0 or 1 in every byte of an array of bool", octets, octets <= 1)


def element_fault(expected: str, array: Array, good: npt.NDArray[np.bool_], hint: str = "") -> Fault:
    """The fault of the first element that is not good."""
    where = tuple(int(i) for i in np.unravel_index(int(np.argmin(good)), array.shape))
    fault = Fault(f"expected {expected}, got {array[where]}", hint)
    if where:
        fault.path.append(f"[{', '.join(map(str, where))}]")
    return fault


class Nesting:
    """State that reading and writing share: how deep we are, and the size that each symbol of a shape stands for."""

    def __init__(self, finite: bool) -> None:
        self.finite = finite
        self.sizes: dict[str, int] = {}
        self.depth = 0

    def enter(self) -> None:
        self.depth += 1
        if self.depth > DEPTH:
            raise Fault(f"nested more than {DEPTH} deep")


class BodyWriter(Nesting):
    """Collects the bodies of one message."""

    def __init__(self, finite: bool) -> None:
        super().__init__(finite)
        self.bodies: list[Array] = []
        self._known: dict[int, tuple[Array, msgpack.ExtType]] = {}  # holds the array, or its id could be reused

    def array(self, array: Array, code: int) -> msgpack.ExtType:
        """Add an array; returns what stands for it in the header. The same object a second time adds no body."""
        if known := self._known.get(id(array)):
            return known[1]
        if self.finite:
            check_finite(array, code, DIVERGED)
        extension = array_extension(code, array.shape, len(self.bodies))
        self._known[id(array)] = (array, extension)
        self.bodies.append(array if array.flags.c_contiguous else array.copy(order="C"))
        return extension


class BodyReader(Nesting):
    """Hands out the bodies of one message, which start at `position` of `data`."""

    def __init__(self, data: memoryview, position: int, finite: bool) -> None:
        super().__init__(finite)
        self.data, self.position = data, position
        self._arrays: list[tuple[int, Array]] = []

    def array(self, code: int, shape: Shape, index: int) -> Array:
        """The array of an extension that was checked, read-only."""
        if index < len(self._arrays):
            return self._repeated(code, shape, index)
        if index > len(self._arrays):
            raise Fault(f"expected array {len(self._arrays)} or an earlier one, got {short(index)}")
        array = self._view(_TYPES[code], shape)
        if self.finite:
            check_finite(array, code)
        if code == _BOOL:
            check_bool(array)
        self._arrays.append((code, array))
        return array

    def _repeated(self, code: int, shape: Shape, index: int) -> Array:
        known, array = self._arrays[index]
        if (known, array.shape) != (code, shape):
            was, is_now = describe(array.shape, DTYPES[known]), describe(shape, DTYPES[code])
            raise Fault(f"expected {was} of array {index}, got {is_now}")
        return array

    def _view(self, dtype: np.dtype[Any], shape: Shape) -> Array:
        size, there = prod(shape) * dtype.itemsize, len(self.data) - self.position
        if size > there:
            raise Fault(f"truncated: {there} of {short(size)} bytes of the array")
        try:
            array: Array = np.ndarray(shape, dtype, self.data, self.position)
        except ValueError as error:  # no elements, but other axes beyond numpy's sizes
            raise Fault(f"{describe(shape, dtype.name)}: {error}") from error
        if not array.flags.aligned:
            array = array.copy()
        array.flags.writeable = False
        self.position += size
        self.skip_padding()
        return array

    def skip_padding(self) -> None:
        """To the next multiple of ALIGN. Only zeros may be passed over."""
        end = self.position + -self.position % ALIGN
        padding = self.data[self.position : end]
        if padding != PADDING[: end - self.position]:
            raise Fault(f"expected {end - self.position} zeros as padding, got {short(bytes(padding))}")
        self.position = end


@lru_cache(256)
def array_extension(code: int, shape: Shape, index: int) -> msgpack.ExtType:
    """The extension that `array_header` reads. Cached: a node writes the same few shapes again and again."""
    return msgpack.ExtType(EXTENSION, msgpack.packb([code, shape, index]))


def array_header(raw: Any) -> tuple[int, Shape, int] | None:
    """dtype code, shape and index of what msgpack unpacked; None if that is no well-formed array extension."""
    if type(raw) is not msgpack.ExtType or raw.code != EXTENSION or len(raw.data) > _PAYLOAD:
        return None
    try:
        # limits: msgpack makes room for what an array's length promises before it looks whether that is there
        parts = msgpack.unpackb(raw.data, use_list=False, max_array_len=AXES, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException):
        return None
    if type(parts) is not tuple or len(parts) != 3 or type(parts[1]) is not tuple:
        return None
    code, shape, index = parts
    sound = all(type(i) is int and i >= 0 for i in (code, index, *shape)) and code < len(DTYPES)
    return (code, shape, index) if sound else None
