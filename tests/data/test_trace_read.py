from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.traces import cells
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from tests.data.trace_making import write_csv

HEADER = "time,ax,ay,activity"
GOOD = ("0.00,1,2,walk", "0.05,3,4,walk", "0.10,5,6,sit")


def iso(milliseconds: int) -> str:
    return f"2011-03-23T10:39:{milliseconds // 1000:02d}.{milliseconds % 1000:03d}"


def test_a_file_becomes_a_trace(tmp_path: Path) -> None:
    trace = read_trace(write_csv(tmp_path / "m1.csv", HEADER, *GOOD))
    assert (trace.name, trace.channels, trace.classes) == ("m1", ("ax", "ay"), ("sit", "walk"))
    assert trace.time.dtype == np.float64 and trace.time == pytest.approx([0, 0.05, 0.1])
    assert trace.values.dtype == np.float32 and trace.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert trace.codes.tolist() == [1, 1, 0]
    assert trace.rate_hz == pytest.approx(20) and trace.start == "0.00"


def test_iso_times_count_from_the_first_sample(tmp_path: Path) -> None:
    rows = [f"{iso(k * 125 // 4)},0,0,walk" for k in range(100)]
    trace = read_trace(write_csv(tmp_path / "m1.csv", HEADER, *rows))
    assert trace.time[:4] == pytest.approx([0, 0.031, 0.062, 0.093])
    assert trace.rate_hz == pytest.approx(32), "time stamps cut to milliseconds do not shift the rate"
    assert trace.start == "2011-03-23T10:39:00.000"


def test_columns_are_found_by_name_and_channels_come_in_the_order_wanted(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", "what,az,time,ax,ay", "walk,3,0,1,2", "walk,6,1,4,5")
    assert read_trace(file, "what").channels == ("az", "ax", "ay")
    chosen = read_trace(file, "what", ["ay", "ax"])
    assert chosen.channels == ("ay", "ax") and chosen.values.tolist() == [[2, 1], [5, 4]]


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{k / 10},{k},{-k},{'zyx'[k * 3 // 50]}" for k in range(50)]
    file = write_csv(tmp_path / "t.csv", HEADER, *rows)
    whole = read_trace(file)
    monkeypatch.setattr(cells, "BLOCK", 7)
    pieces = read_trace(file)
    for name in ("time", "values", "codes", "classes"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name))
    assert [whole.classes[c] for c in whole.codes] == ["zyx"[k * 3 // 50] for k in range(50)]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("0.15,x7,8,walk", ("column ax", "'x7'", "no finite number")),
        ("0.15,,8,walk", ("no number in ax", "left out")),
        ("0.15,7,nan,walk", ("no number in ay", "left out")),
        ("0.15,7,-inf,walk", ("no number in ay",)),
        ("0.15,7,1e39,walk", ("column ay", "'1e39'", "no finite number")),
        ("0.15,1_000,8,walk", ("column ax", "'1_000'", "no finite number")),
        ("0.10,7,8,walk", ("the time of the row before", "left out")),
        ("0.05,7,8,walk", ("a time before that of an earlier row", "put in order")),
        ("nan,7,8,walk", ("no time", "'nan'")),
        ("2011-03-23T10:39:18.031,7,8,walk", ("no time", "'2011-03-23T10:39:18.031'")),
        ("0.15,7,walk", ("3 cells", "'0.15,7,walk'", "expected 4")),
        ("0.15,7,8,walk,9", ("5 cells", "expected 4")),
        ("", ("a line without anything",)),
    ],
)
@pytest.mark.parametrize("block", [1, 2, 8192])
def test_a_bad_line_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, bad: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(cells, "BLOCK", block)
    file = write_csv(tmp_path / "t.csv", HEADER, *GOOD, bad, "0.20,9,9,walk")
    with pytest.raises(UsageError) as error:
        read_trace(file, strict=True)
    for word in (f"{file} line 5", *words):
        assert word in str(error.value)
    trace = read_trace(file)
    late = bad.startswith("0.05,")  # the same time as the third line's, so it is put there, and left out as repeated
    assert [r.rows for r in trace.repairs] == [1, 1][: 1 + late] and trace.repairs[0].line == 5
    assert trace.values[:, 0].tolist() == [1, 3, 5, 9] and trace.time.tolist() == pytest.approx([0, 0.05, 0.1, 0.2])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), "empty"),
        ((HEADER,), "a header and no samples"),
        ((HEADER, GOOD[0]), "one sample"),
        (("when,ax,activity", "0,1,a"), "no column 'time' among when, ax, activity"),
        (("time,Time,ax,activity", "0,0,1,a"), "2 columns 'time'"),
        (("time,ax", "0,1"), "no column 'activity' among time, ax"),
        (("time,ax,ax,activity", "0,1,1,a"), "2 columns 'ax'"),
        (("time,activity", "0,a"), "no column of numbers"),
        ((HEADER, "yesterday,1,2,a"), "line 2, column time: 'yesterday'; expected ISO time"),
        ((HEADER, "inf,1,2,a"), "line 2, column time: 'inf'"),
        ((HEADER, "0,1"), "line 2: 2 cells"),
        ((HEADER, "2011-03-23T10:00:00,1,2,a", "2011-03-23T10:00:01+01:00,1,2,a"), "line 3"),
        ((HEADER, "03/04/2020 10:00:00,1,2,a", "03/04/2020 10:00:01,1,2,a"), "day or month first?"),
        (("0,1,2,a", "1,1,2,a"), "no column 'time'"),
        (("0,1,2", "1,1,2"), "expected the names of columns"),
        ((HEADER, "0,1,2,a", "1e7,1,2,a"), "samples per second"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, lines: tuple[str, ...], words: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text("\n".join(lines))
    with pytest.raises(UsageError) as error:
        read_trace(file, strict=True)
    assert str(file) in str(error.value) and words in str(error.value)


def test_a_sample_without_a_label_has_no_class(tmp_path: Path) -> None:
    labels = ("", " ", "unlabelled", "walk", "", "rest")
    file = write_csv(tmp_path / "t.csv", "time,ax,activity", *(f"{i / 10},{i},{name}" for i, name in enumerate(labels)))
    trace = read_trace(file)
    assert trace.classes == ("rest", "walk") and trace.codes.tolist() == [-1, -1, -1, 1, -1, 0]
    nobody = read_trace(write_csv(tmp_path / "n.csv", "time,ax,activity", "0,1,", "0.1,2,unlabelled"))
    assert nobody.classes == () and nobody.codes.tolist() == [-1, -1]
    assert [t.codes.tolist() for t in load_folder(tmp_path)] == [[-1, -1], [-1, -1, -1, 1, -1, 0]]


def test_arguments_are_checked(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", HEADER, *GOOD)
    with pytest.raises(UsageError, match="no column 'az' among time, ax, ay, activity"):
        read_trace(file, channels=["ax", "az"])
    with pytest.raises(UsageError, match="no column 'label'"):
        read_trace(file, label="label", channels=["ax"])
    with pytest.raises(UsageError, match="each once"):
        read_trace(file, channels=["ax", "ax"])
    with pytest.raises(UsageError, match="label = 'time'"):
        read_trace(file, label="time")
    with pytest.raises(UsageError, match=r"bytes, the limit for one trace is 10"):
        read_trace(file, limit=10)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    for data, words in (
        (bytes(range(256)) * 9, "bytes of zeros"),
        (b"\x1f\x8bjunk", "cannot be unpacked"),
        (b"", "empty"),
        (b"\xff\xfet\0i", "not a CSV text|no samples"),
    ):
        file.write_bytes(data)
        with pytest.raises(UsageError, match=words):
            read_trace(file)
    for path in (tmp_path / "missing.csv", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_trace(path)


def test_recorded_traces_are_read(wrist: Path) -> None:
    trace = read_trace(wrist / "m8.csv")
    assert trace.values.shape == (1344, 3) and trace.rate_hz == pytest.approx(32, abs=0.1)
    assert trace.classes == ("drink_glass", "sitdown_chair", "standup_chair")
    assert np.median(np.linalg.norm(trace.values, axis=1)) == pytest.approx(1, abs=0.1)


def test_a_row_without_numbers_counts_once(tmp_path: Path) -> None:
    """It was told once for each channel."""
    bad = ("0.15,nan,nan,walk", "0.20,nan,,walk", "0.25,1,nan,walk")
    trace = read_trace(write_csv(tmp_path / "t.csv", HEADER, *GOOD, *bad, "0.30,9,9,walk", "0.35,9,9,walk"))
    found = {repair.what: (repair.rows, repair.line) for repair in trace.repairs}
    assert found == {"no number in ax, ay": (2, 5), "no number in ay": (1, 7)}


def test_ever_other_channels_without_numbers_are_told_together(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(10)]
    rows = [f"{k / 10},{','.join('nan' if n == k % 20 else '1' for n in range(10))},a" for k in range(60)]
    trace = read_trace(write_csv(tmp_path / "t.csv", f"time,{','.join(names)},activity", *rows))
    (repair,) = trace.repairs
    assert repair.rows == 30 and repair.what == f"no number in some of {', '.join(names)}"
