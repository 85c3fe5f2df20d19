"""Libraries of products for tests: the installed one for each instruction set, and wrong ones, compiled here."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

SETS = ("neon",) if platform.machine() == "aarch64" else ("avx512", "avx2", "sse2")
SOURCES = Path(__file__).parents[2] / "models" / "native" / "src"


def find_obstacle() -> str:
    """Why nothing native can be tried here; "": it can."""
    return "" if importlib.util.find_spec("auscult_native") else "auscult-native is not installed (make native)"


def installed() -> Path:
    """The installed library; the test is skipped where there is none."""
    if why := find_obstacle():
        pytest.skip(why)
    import auscult_native

    return auscult_native.find_library()


def of_set(name: str, folder: Path) -> str:
    """A copy of the installed library that computes with one instruction set, which each copy chooses once."""
    copy = str(shutil.copy(installed(), folder / f"{name}.so"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUSCULT_NATIVE_SET", name)
        ask = ctypes.CDLL(copy).auscult_native_set
        ask.restype = ctypes.c_char_p
        if ask() is None:
            pytest.skip(f"this processor has no {name}")
        assert ask() == name.encode()
    return copy


def compile_library(folder: Path, product: str) -> Path:
    """The library with another product: the body of `void multiply(const Product& p, long first, long last)`."""
    compiler, made = find_compiler(), folder / "stub.so"
    function = f"void multiply(const Product& p, long first, long last) {{ {product} }}"
    rest = '#define multiply right\n#include "one_set.cc"\n#undef multiply\n'
    (folder / "stub.cc").write_text(f"#include <cstdlib>\n{rest}namespace SET {{ {function} }}")
    parts = [path for path in SOURCES.glob("*.cc") if path.name != "one_set.cc"]
    set_ = ["-DHAS_plain", "-DSET=plain", "-DWIDTH=4", "-Wno-psabi"]
    command = [compiler, "-std=gnu++17", "-fPIC", "-shared", *set_, f"-I{SOURCES}", *parts, folder / "stub.cc"]
    subprocess.run([*map(str, command), "-o", str(made)], check=True)
    return made


def compile_old_library(folder: Path) -> Path:
    """A library without operators, as before there were any; products are then onnxruntime's."""
    (folder / "old.cc").write_text('extern "C" void* RegisterCustomOps(void*, void*) { return nullptr; }')
    made = folder / "old.so"
    subprocess.run([find_compiler(), "-fPIC", "-shared", str(folder / "old.cc"), "-o", str(made)], check=True)
    return made


def find_compiler() -> str:
    """A C++ compiler; the test is skipped where there is none."""
    if found := shutil.which("c++"):
        return found
    pytest.skip("no C++ compiler is installed")
