"""The lines of a text file as loggers and spreadsheets leave it: gzip or not, UTF-8, UTF-16 or Latin-1, cut short."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO

from edge_sdk.data.traces.form import DELIMITERS, Stated, split_line
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError

LOOK = 1 << 16
"""Bytes that are looked at to know how the text is written."""
LONGEST_LINE = 1 << 17
"""Characters of a line: a few of them are looked at at once, and one without an end would fill the memory."""
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def find_encoding(data: bytes) -> str:
    """Finds how the first bytes of a text are written. Latin-1 shows further on, if at all: see `open_lines`."""
    for mark, name in MARKS:
        if data.startswith(mark):
            return name
    head = data[:200]
    if len(head) > 3 and 0 not in head[::2] and not any(head[1::2]):
        return "utf-16-le"
    if len(head) > 3 and 0 not in head[1::2] and not any(head[::2]):
        return "utf-16-be"
    return "utf-8"


def open_bytes(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """A file to read; what is packed by gzip is unpacked."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else open(path, "rb")


def look_encoding(path: Path) -> str:
    """Finds how a file is written, by its first bytes.

    Raises:
        UsageError: they cannot be unpacked.
    """
    try:
        with open_bytes(path) as file:
            return find_encoding(file.read1(LOOK))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"{path}: packed by gzip, and it cannot be unpacked ({error})") from error


@contextmanager
def open_lines(path: Path, encoding: str, limit: int, repairs: Repairs) -> Iterator[Iterator[str]]:
    """The lines of a file, each with its "\\n" but for a last one that lacks it. A packed file that is cut ends there.

    Args:
        encoding: as Python knows it.
        limit: characters; a file that has more is refused.
        repairs: are told if a packed file is cut.

    Raises:
        UsageError: it is longer, or has a line of more than LONGEST_LINE characters.
        UnicodeDecodeError: it is written otherwise.
        OSError: it cannot be read.
    """
    with open_bytes(path) as file, io.TextIOWrapper(file, encoding=encoding) as text:
        yield count_lines(path, text, limit, repairs)


def count_lines(path: Path, text: IO[str], limit: int, repairs: Repairs) -> Iterator[str]:
    total = 0
    try:
        while line := text.readline(LONGEST_LINE + 1):
            total += len(line)
            if len(line) > LONGEST_LINE:
                raise UsageError(f"{path}: a line of more than {LONGEST_LINE} characters; expected one row in each")
            if total > limit:
                raise UsageError(
                    f"{path}: more than {limit} characters, the limit for one trace: cut it into shorter ones"
                )
            yield line
    except (EOFError, gzip.BadGzipFile, zlib.error):
        repairs.doubt("packed by gzip and cut, the rest is missing")


# What is missing in files without a header or without times ------------------------------------------------------
def completed(lines: Iterator[str], said: Stated) -> Iterator[str]:
    """The lines with a header of `said.header`, and with times by `said.rows_hz` in a first column, where these are
    said; else as they are."""
    if not said.header and not said.rows_hz:
        return lines
    first = next(lines, None)
    if first is None:
        return lines
    sign = said.delimiter or max(DELIMITERS, key=lambda one: len(split_line(first, one)))
    body = chain([first], lines)
    if said.header:
        body = chain([sign.join(said.header) + "\n"], body)
    return with_times(body, said.rows_hz, sign) if said.rows_hz else body


def with_times(lines: Iterator[str], rate_hz: float, sign: str) -> Iterator[str]:
    """A header and rows with seconds since the first row before each; lines without anything stay as they are."""
    yield f"time{sign}{next(lines)}"
    n = 0
    for line in lines:
        if line.strip("\0\r\n "):
            yield f"{n / rate_hz:.6f}{sign}{line}"
            n += 1
        else:
            yield line
