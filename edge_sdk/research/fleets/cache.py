"""What is kept between runs: fleets and results, each in a folder that is named by all that decides its content."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from edge_sdk.plugins import hash_package

MOST = 500
"""Folders of one kind that are kept."""
LIBRARIES = ("numpy", "onnxruntime", "torch", "scikit-learn")
"""Libraries whose versions decide the last bits of a result."""


def cache_of(kind: str) -> Path:
    """The folder of all that is kept of one kind; it may be deleted at any time."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "auscult" / kind


def keep_folder(kind: str, digest: str, write: Callable[[Path], None]) -> Path:
    """A folder with this content; written if it is not there yet, and then in one step."""
    target = cache_of(kind) / digest[:32]
    if target.is_dir():
        os.utime(target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=".part-", dir=target.parent))
    try:
        write(part)
        part.chmod(0o755)
        part.rename(target)
    except OSError:
        if not target.is_dir():  # somebody else was quicker
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def drop_old(kind: str, most: int = MOST) -> None:
    """Removes the folders of one kind that nobody has asked for the longest, where there are very many."""
    every = sorted(cache_of(kind).iterdir(), key=lambda path: path.stat().st_mtime) if cache_of(kind).is_dir() else []
    for path in every[: max(0, len(every) - most)]:
        shutil.rmtree(path, ignore_errors=True)


@cache
def hash_code() -> str:
    """SHA-256 of this package's code and of the libraries that decide a result."""
    found = hashlib.sha256()
    for library in LIBRARIES:
        try:
            found.update(f"{library} {importlib.metadata.version(library)}\0".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    for package in ("edge_sdk", "edge_sdk.models", "edge_sdk.hardware", "aggregator"):
        found.update(hash_package(package).encode())
    return found.hexdigest()


def hash_own_modules() -> str:
    """SHA-256 of the loaded modules that are neither installed nor a part of Python: a method may use them."""
    found = hashlib.sha256()
    for name, file in sorted(own_modules()):
        found.update(f"{name}\0".encode())
        found.update(file.read_bytes())
    return found.hexdigest()


def own_modules() -> Iterator[tuple[str, Path]]:
    """Names and files of modules that their user writes."""
    real = cache(os.path.realpath)  # of folders: thousands of files lie in few
    installed = tuple(real(sysconfig.get_path(key)) + os.sep for key in ("stdlib", "purelib", "platlib"))
    for name, module in list(sys.modules.items()):
        place = getattr(module, "__file__", None)
        if not place or name.partition(".")[0] in ("edge_sdk", "aggregator") or not place.endswith(".py"):
            continue
        folder, last = os.path.split(place)
        file = os.path.join(real(folder), last)
        file = os.path.realpath(file) if os.path.islink(file) else file
        if not file.startswith(installed) and os.path.isfile(file):
            yield name, Path(file)
