"""Traces at the bounds of what is told apart: how a text is written, rows that stray, and the line of an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.traces.read import read_trace
from edge_sdk.data.traces.repairs import Repair, Repairs
from edge_sdk.data.traces.rows import STRAY, Rows, fill_sparse_channels, order_times
from edge_sdk.data.traces.text import find_encoding
from edge_sdk.data.traces.times import find_unit, find_zone, from_local
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


@pytest.mark.parametrize("whole", ["0.0,1,walk", "0.0,,walk"])
def test_half_a_label_at_the_end_is_left_out_also_where_cells_are_empty(tmp_path: Path, whole: str) -> None:
    rows = [whole, *(f"{n / 10},{n},walk" for n in range(1, 6)), '0.6,"6,walk', "0.7,7,wal"]
    (tmp_path / "a.csv").write_text("\n".join(["time,x,activity", *rows]))
    trace = read_trace(tmp_path / "a.csv")
    assert trace.classes == ("walk",) and trace.time[-1] == pytest.approx(0.5 - float(whole == "0.0,,walk") / 10)
    assert "the file ends within this line (first: line 9 'wal')" in trace.told


def test_a_channel_of_a_lower_rate_is_filled_over_gaps_of_four_of_its_steps() -> None:
    time, own = np.arange(21.0) / 2, [0, 2, 4, 6, 14]  # at 0, 1, 2, 3 and 7 s: usually 1 s apart
    values = np.stack([np.ones(21), np.full(21, np.nan)], 1).astype(np.float32)
    values[own, 1] = time[own]
    rows = Rows(time, values, ("fast", "slow"), np.zeros(21, np.int32), [""], np.arange(21, dtype=np.int32))
    fill_sparse_channels(rows, Repairs(Path("a.csv")))
    assert rows.values[:15, 1].tolist() == time[:15].tolist() and np.isnan(rows.values[15:, 1]).all()
    rows.values[:, 1] = np.nan
    rows.values[[0, 2, 4, 6, 15], 1] = 1
    fill_sparse_channels(rows, Repairs(Path("a.csv")))
    assert np.isfinite(rows.values[:7, 1]).all() and np.isnan(rows.values[7:15, 1]).all()


def test_local_times_of_an_autumn_night_are_of_two_hours() -> None:
    """Berlin is two hours ahead until 03:00 of 29 October 2023, which is then 02:00, and one hour from then on."""
    midnight, hour = 1698537600.0, 3600.0
    local = midnight + hour * np.array([1.0, 2.25, 2.75, 2.25, 2.75, 4.0])
    found, twice = from_local(local, find_zone("Europe/Berlin"))
    assert twice == 4 and ((local - found) / hour).tolist() == [2, 2, 2, 1, 1, 1]


def test_what_was_guessed_and_put_right_is_said() -> None:
    assert find_unit(Path("a"), ["5", "6"], ".", "ms") == (1e-3, "times are in ms")
    assert find_unit(Path("a"), ["5", "6"], ".", "s") == (1.0, "")
    assert str(Repair("no time", "left out", 2, 7, "x")) == "2 rows left out: no time (first: line 7 'x')"
    assert str(Repair("no time", "left out", 1)) == "1 row left out: no time"
