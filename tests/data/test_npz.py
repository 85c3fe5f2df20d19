"""NPZ files from elsewhere: damaged ones, and ones that would fill the memory."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.npz import read_npz
from edge_sdk.data.samples import read_samples
from edge_sdk.errors import UsageError


def test_arrays_come_back(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((1000, 100)), y=np.arange(3))
    found = read_npz(tmp_path / "a.npz")
    assert found["x"].shape == (1000, 100) and list(found["y"]) == [0, 1, 2]


@pytest.mark.parametrize("read", [read_npz, read_samples])
def test_a_bomb_is_not_unpacked(tmp_path: Path, read: object) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("x.npy", "w", force_zip64=True) as x:
        np.lib.format.write_array_header_1_0(x, {"descr": "<f4", "fortran_order": False, "shape": (75 * 2**20,)})
        for _ in range(300):
            x.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="unpack to 31457"):
            read(path)  # type: ignore[operator]
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(10**15,), (2**62, 4)])
def test_a_header_that_promises_too_much(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file, file.open("x.npy", "w") as x:
        np.lib.format.write_array_header_1_0(x, {"descr": "<f4", "fortran_order": False, "shape": shape})
        x.write(bytes(100))
    with pytest.raises(UsageError, match="no NPZ file that can be read"):
        read_npz(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"garbage" * 100])
def test_what_is_no_npz_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UsageError, match="no NPZ file that can be read"):
        read_npz(tmp_path / "a.npz")


def test_a_damaged_array_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(5000.0))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[20_000] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UsageError, match="Bad CRC-32"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize(("at", "value"), [(8, 99), (8, 14), (6, 1)], ids=["unknown", "lzma", "encrypted"])
def test_a_packing_that_numpy_does_not_write_is_refused(tmp_path: Path, at: int, value: int) -> None:
    """at: byte of an entry's head in the file; in the directory at the end it lies two bytes further on."""
    np.savez(path := tmp_path / "a.npz", x=np.arange(5.0))
    content = bytearray(path.read_bytes())
    for start in (content.index(b"PK\3\4") + at, content.index(b"PK\1\2") + at + 2):
        content[start] = value
    path.write_bytes(content)
    with pytest.raises(UsageError, match="encrypted or packed"):
        read_npz(path)
