"""Nothing is read or written beyond an array: each ends where a page begins that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

from tests.native.products import check_close, multiply, open_product

PAGE = mmap.PAGESIZE
NO_ACCESS = 0
SHAPES = [(1, 7, 1), (1, 40, 33), (3, 5, 2), (5, 33, 17), (8, 256, 10), (29, 31, 50), (40, 257, 49), (60, 300, 70)]


class Guarded:
    """A float32 array in front of a page that ends the process if it is touched."""

    def __init__(self, values: Any) -> None:
        pages = -(-values.nbytes // PAGE) + 1
        self.room = mmap.mmap(-1, pages * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.room))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(start + (pages - 1) * PAGE), ctypes.c_size_t(PAGE), NO_ACCESS) == 0
        at = (pages - 1) * PAGE - values.nbytes
        self.array = np.frombuffer(self.room, np.float32, values.size, at).reshape(values.shape)
        self.array[...] = values


@pytest.mark.parametrize(("rows", "depth", "columns"), SHAPES)
@pytest.mark.parametrize("swaps", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_ends_of_arrays(library: str, rows: int, depth: int, columns: int, swaps: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    shapes = {"a": (rows, depth)[:: -1 if swaps[0] else 1], "b": (depth, columns)[:: -1 if swaps[1] else 1]}
    shapes |= {"c": (columns,), "y": (rows, columns)}
    arrays = {name: Guarded(rng.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()}
    session = open_product(library, "Gemm", 3, transA=swaps[0], transB=swaps[1])._session
    binding = session.io_binding()
    for name, one in arrays.items():
        bind = binding.bind_output if name == "y" else binding.bind_input
        bind(name, "cpu", 0, np.float32, one.array.shape, one.array.ctypes.data)
    session.run_with_iobinding(binding)
    a, b, c = (arrays[name].array for name in "abc")
    want, size, count = multiply(a.T if swaps[0] else a, b.T if swaps[1] else b)
    check_close(arrays["y"].array, want + c.astype(np.float64), size + np.abs(c), count)
