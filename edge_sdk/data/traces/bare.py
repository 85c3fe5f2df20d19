"""Files without a header or without times: what is missing is put before their lines, as somebody has said it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from edge_sdk.data.traces.form import DELIMITERS, Stated, split_line


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
