"""Traces at the bounds of what is told apart: how a text is written, rows that stray, and the line of an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.traces import read_trace
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.rows import STRAY, Rows, order_times
from edge_sdk.data.traces.text import find_encoding
from edge_sdk.errors import UsageError


def test_zeros_are_no_text_of_two_bytes() -> None:
    assert [find_encoding("t,ax".encode(name)) for name in ("utf-16-le", "utf-16-be", "utf-8")] == [
        "utf-16-le",
        "utf-16-be",
        "utf-8",
    ]
    assert find_encoding(bytes(8)) == "utf-8" and find_encoding(b"") == "utf-8"


@pytest.mark.parametrize(("stray", "left"), [(STRAY, 100), (STRAY + 1, 101 + STRAY)])
def test_so_many_rows_far_ahead_are_left_out_and_more_are_another_clock(stray: int, left: int) -> None:
    time = np.concatenate([np.arange(60.0), 1000.0 + np.arange(stray), np.arange(60.0, 100.0)])
    n = len(time)
    rows = Rows(time, np.zeros((n, 1), np.float32), ("x",), np.zeros(n, np.int32), [""], np.arange(n, dtype=np.int32))
    repairs = Repairs(Path("a.csv"))
    order_times(rows, repairs)
    assert len(rows.time) == left and (np.diff(rows.time) > 0).all()
    assert ("clock was set back" in str(*repairs.found.values())) == (stray > STRAY)


def test_a_file_without_a_header_is_refused_with_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n2,3\n3,4\n")
    with pytest.raises(UsageError, match=r"a\.csv line 1: numbers"):
        read_trace(tmp_path / "a.csv")


@pytest.mark.parametrize("sign", [",", ";"])
def test_what_stands_in_quotes_is_no_empty_cell(tmp_path: Path, sign: str) -> None:
    """Where other cells were empty, a label "a,,b" once became "a,nan,b"."""
    rows = [sign.join((f"{n / 10}", f"{n}" if n % 3 else "", f'"a{sign * 2}b"')) for n in range(30)]
    (tmp_path / "a.csv").write_text("\n".join([sign.join(("time", "x", "activity")), *rows]) + "\n")
    trace = read_trace(tmp_path / "a.csv")
    assert trace.classes == (f"a{sign * 2}b",) and len(trace.time) == 20
