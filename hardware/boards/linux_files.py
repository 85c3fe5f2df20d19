"""Small files in which Linux tells about the machine, read below a root directory that need not be `/`.

Every reader here returns None where a file is missing, may not be read or holds something else: a board that lacks a
sensor is no fault. Tests lay out such files in a folder of their own and name it as the root.
"""

from __future__ import annotations

from pathlib import Path

SMALL = 1 << 16
"""Bytes that are read of a file at most: these files are short, and a wrong root must not fill the memory."""


def read_text(path: Path) -> str | None:
    """Text of a file without the spaces, line ends and zero bytes around it."""
    try:
        with open(path, "rb") as file:
            return file.read(SMALL).decode(errors="replace").strip("\0\n\t ")
    except OSError:
        return None


def read_number(path: Path, scale: float = 1.0) -> float | None:
    """Number in a file, times `scale`; decimal, or hexadecimal with 0x in front."""
    text = read_text(path)
    if text is None:
        return None
    try:
        return (int(text, 16) if text.lower().startswith("0x") else float(text)) * scale
    except ValueError:
        return None


def read_fields(path: Path) -> dict[str, str]:
    """Fields of a file with lines such as `MemTotal:  948208 kB` or `Model : Raspberry Pi 4`; the last one counts."""
    lines = (line.partition(":") for line in (read_text(path) or "").splitlines())
    return {name.strip(): value.strip() for name, colon, value in lines if colon}


def list_folders(folder: Path, pattern: str) -> list[Path]:
    """Folders whose names match, sorted; none where `folder` is missing."""
    return sorted(path for path in folder.glob(pattern) if path.is_dir())
