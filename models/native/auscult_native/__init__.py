"""Products of matrices and operators for onnxruntime, as a shared library: where it lies, and for which processor.

Nothing is loaded at import. `edge_sdk.model.sessions.native` hands the library to onnxruntime and checks what it
computes.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

__version__ = "0.3.0"


def find_library() -> Path:
    """Path of the shared library that onnxruntime registers."""
    return Path(__file__).with_name("libauscult_native.so")


def find_instruction_set() -> str:
    """Name of the instruction set that the library computes with in this process: avx512, avx2, sse2 or neon.

    The best that the processor has, or the one that AUSCULT_NATIVE_SET names.

    Raises:
        OSError: the library cannot be loaded.
        ValueError: AUSCULT_NATIVE_SET names a set that this processor or this library does not have.
    """
    name = ctypes.CDLL(str(find_library())).auscult_native_set
    name.restype = ctypes.c_char_p
    if (found := name()) is None:
        raise ValueError("AUSCULT_NATIVE_SET names an instruction set that is not there")
    return str(found.decode())
