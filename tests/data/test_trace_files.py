"""Files as loggers, spreadsheets and cards that were pulled out leave them: each is read as it is meant, and told."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.traces import cells
from edge_sdk.data.traces.form import split_line
from edge_sdk.data.traces.read import Trace, read_trace
from edge_sdk.data.traces.text import LONGEST_LINE
from edge_sdk.data.traces.windows import cut_windows
from edge_sdk.errors import UsageError

ROWS = 200
RATE = 20
VALUES = np.round(np.random.default_rng(4).normal(size=(ROWS, 2)), 4)
EPOCH = 1_700_000_000.0


def lines_of(
    times: Callable[[int], str] = lambda i: f"{i / RATE:.2f}",
    label: Callable[[int], str] = lambda i: "walk" if i < ROWS // 2 else "sit",
    header: str = "time,ax,ay,activity",
) -> list[str]:
    rows = zip(range(ROWS), VALUES.tolist(), strict=True)
    return [header, *(f"{times(i)},{x:.4f},{y:.4f},{label(i)}" for i, (x, y) in rows)]


def read_bytes(folder: Path, data: bytes, name: str = "a.csv") -> Trace:
    (folder / name).write_bytes(data)
    return read_trace(folder / name)


def check(trace: Trace, rows: int = ROWS) -> None:
    """Holds a trace to be the one that was meant."""
    assert trace.channels == ("ax", "ay") and trace.classes == ("sit", "walk") and trace.name == "a"
    assert np.allclose(trace.values, VALUES[:rows]) and trace.rate_hz == pytest.approx(RATE, rel=1e-3)
    assert trace.time == pytest.approx(np.arange(rows) / RATE, abs=2e-6)
    assert np.bincount(trace.codes).tolist() == [rows - ROWS // 2, ROWS // 2]


PLAIN = "\n".join(lines_of()) + "\n"
GERMAN = PLAIN.replace(",", ";").replace(".", ",")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (PLAIN.encode(), ""),
        (PLAIN.rstrip().encode(), ""),
        (PLAIN.replace("\n", "\r\n").encode(), ""),
        (PLAIN.encode("utf-8-sig"), ""),
        (PLAIN.encode("utf-16"), ""),
        (PLAIN.encode("utf-16-le"), ""),
        (gzip.compress(PLAIN.encode()), ""),
        (PLAIN.replace(",", "\t").encode(), "tabs"),
        (PLAIN.replace(",", "  ").encode(), "spaces"),
        (GERMAN.encode(), "semicolons; decimal commas"),
        (PLAIN.replace("time,ax,ay,activity", "Date,ax,ay,Label").encode(), "column Date; labels are in column Label"),
        (("# made by a logger\nDevice: 7\n\n" + PLAIN).encode(), "2 lines above the header"),
        (PLAIN.replace("time", "t [s]", 1).encode(), "column t [s]"),
        (PLAIN.replace("\n", ",\n").encode(), ""),
        (PLAIN.replace('walk', '"walk"').encode(), ""),
        (("note," + PLAIN.replace("\n", "\nworn,")).removesuffix("worn,").encode(), "column note left out"),
    ],
)  # fmt: skip
def test_forms_are_found_by_looking(tmp_path: Path, data: bytes, said: str) -> None:
    trace = read_bytes(tmp_path, data)
    check(trace)
    assert said in trace.told and not trace.repairs and bool(said) == bool(trace.told)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (lambda i: f"{EPOCH + i / RATE:.3f}", ""),
        (lambda i: f"{(EPOCH + i / RATE) * 1e3:.0f}", "ms since 1970"),
        (lambda i: f"{(EPOCH + i / RATE) * 1e6:.0f}", "us since 1970"),
        (lambda i: f"{(EPOCH + i / RATE) * 1e9:.0f}", "ns since 1970"),
        (lambda i: f"2024-01-01 10:00:{i / RATE:06.3f}", ""),
        (lambda i: f"2024-01-01T10:00:{i / RATE:06.3f}Z", ""),
        (lambda i: f"2024-01-01T10:00:{i / RATE:06.3f}+02:00", ""),
        (lambda i: f"2024-01-01T{10 + i % 2}:00:{i / RATE:06.3f}+0{1 + i % 2}:00", ""),
        (lambda i: f"10:00:{i / RATE:06.3f}", "read as %H:%M:%S"),
        (lambda i: f"24.12.2023 10:00:{i / RATE:06.3f}", "%d.%m.%Y"),
        (lambda i: f"12/24/2023 10:00:{i / RATE:06.3f}", "%m/%d/%Y"),
    ],
)
def test_times_are_found_by_looking(tmp_path: Path, times: Callable[[int], str], said: str) -> None:
    trace = read_bytes(tmp_path, "\n".join(lines_of(times)).encode())
    check(trace)
    assert said in trace.told and not trace.repairs and bool(said) == bool(trace.told)


@pytest.mark.parametrize(
    ("unit", "factor"), [("time_ms", 1e3), ("Timestamp (us)", 1e6), ("time [ns]", 1e9), ("Time/ms", 1e3)]
)
def test_a_header_tells_the_unit_of_small_times(tmp_path: Path, unit: str, factor: float) -> None:
    data = "\n".join(lines_of(lambda i: f"{i / RATE * factor:.0f}", header=f"{unit},ax,ay,activity"))
    check(read_bytes(tmp_path, data.encode()))


def test_offsets_are_kept(tmp_path: Path) -> None:
    began = [
        read_bytes(tmp_path, f"time,ax\n2024-01-01T10:00:00{zone},1\n2024-01-01T10:00:01{zone},2\n".encode()).began
        for zone in ("Z", "+02:00", "-01:30")
    ]
    assert began == [1704103200, 1704103200 - 7200, 1704103200 + 5400]


def test_a_date_of_its_own_column_belongs_to_the_time(tmp_path: Path) -> None:
    lines = [f"2024-02-29,{line}" for line in lines_of(lambda i: f"10:00:{i / RATE:06.3f}")]
    for extra in ([], ["2024-02-29,10:00:11,x,1,sit"]):  # at once, and cell by cell
        trace = read_bytes(tmp_path, "\n".join([lines[0].replace("2024-02-29", "date"), *lines[1:], *extra]).encode())
        check(trace)
        assert trace.began == 1709200800


def test_empty_cells_do_not_slow_a_file_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "\n".join(line.replace(",walk", ",,walk") for line in lines_of(header="time,ax,ay,hr,activity"))
    monkeypatch.setattr(cells, "convert_cells", None)  # it is not called
    trace = read_bytes(tmp_path, data.replace(",sit", ",61,sit").encode())
    assert trace.channels == ("ax", "ay", "hr") and trace.classes == ("sit",) and trace.repairs[0].rows == ROWS // 2


@pytest.mark.parametrize("step", [1, 1200])  # late rows are put in order, and such far ones are none
def test_a_file_that_begins_with_its_end_is_turned_round(tmp_path: Path, step: int) -> None:
    lines = lines_of(lambda i: f"{i * step / RATE:.2f}")
    trace = read_bytes(tmp_path, "\n".join([lines[0], *lines[:0:-1]]).encode())
    assert np.allclose(trace.values, VALUES) and (np.diff(trace.time) > 0).all() and len(trace.repairs) == 1
    assert "200 rows turned round" in trace.told


def swapped(lines: list[str], one: int, other: int) -> list[str]:
    lines[one], lines[other] = lines[other], lines[one]
    return lines


@pytest.mark.parametrize(
    ("data", "what", "rows", "line"),
    [
        ("\n".join(swapped(lines_of(), 50, 51)), "put in order", 1, 52),
        ("\n".join([*lines_of()[:21], *lines_of()[121:], *lines_of()[21:121]]), "put in order", 100, 102),
        ("\n".join([*lines_of()[:51], lines_of()[50], *lines_of()[51:]]), "the time of the row before", 1, 52),
        (PLAIN.replace("\n", "\n\n", 1), "a line without anything", 1, 2),
        (PLAIN + "1000", "the file ends within this line", 1, 202),
        (PLAIN + "10.00,1.0,2.0,si", "the file ends within this line", 1, 202),
        (PLAIN + "\0" * 100, "a line without anything", 1, 202),
        (PLAIN + "10.0\0\0\0\0", "the file ends within this line", 1, 202),
        ("\n".join([*lines_of()[:51], "999999999,0,0,walk", *lines_of()[51:]]), "far from those around", 1, 52),
        ("\n".join([*lines_of()[:51], "-500,0,0,walk", *lines_of()[51:]]), "far from those around", 1, 52),
    ],
)  # fmt: skip
def test_rows_are_put_right_and_counted(tmp_path: Path, data: str, what: str, rows: int, line: int) -> None:
    trace = read_bytes(tmp_path, data.encode())
    check(trace)
    assert [(r.rows, r.line) for r in trace.repairs] == [(rows, line)] and what in trace.told
    with pytest.raises(UsageError, match=f"a.csv line {line}.*without strict"):
        read_trace(tmp_path / "a.csv", strict=True)


def test_a_packed_file_that_is_cut_gives_what_is_there(tmp_path: Path) -> None:
    trace = read_bytes(tmp_path, gzip.compress(PLAIN.encode())[:-900])
    assert 20 < len(trace.time) < ROWS and "packed by gzip and cut" in trace.told
    assert np.allclose(trace.values, VALUES[: len(trace.time)])


@pytest.mark.parametrize("hole", ["", "NaN", "null", "-"])
def test_a_sensor_that_dropped_out_ends_a_recording(tmp_path: Path, hole: str) -> None:
    lines = [
        line if not 60 <= n < 80 else ",".join([line.split(",")[0], hole, "1", "walk"])
        for n, line in enumerate(lines_of())
    ]
    trace = read_bytes(tmp_path, "\n".join(lines).encode())
    assert trace.repairs[0].rows == 20 and trace.repairs[0].line == 61 and "no number in ax" in trace.told
    assert trace.time[59] - trace.time[58] == pytest.approx(1.05) and np.isfinite(trace.values).all()
    assert not any(first < 59 <= first + 15 for first in cut_windows(trace, 16, 1).first)


def test_one_word_in_five_forms_is_one_class(tmp_path: Path) -> None:
    forms = ["café", "cafe\u0301", " café", "café ", "Café"]
    trace = read_bytes(tmp_path, "\n".join(lines_of(label=lambda i: forms[i % 5])).encode())
    assert trace.classes == ("café",) and not trace.codes.any()
    assert "'Café' is 'café'" in trace.told
    assert read_trace(tmp_path / "a.csv", classes=["Café"]).classes == ("Café",)
    with pytest.raises(UsageError, match="labels: "):
        read_trace(tmp_path / "a.csv", strict=True)


def test_words_that_stand_for_no_label(tmp_path: Path) -> None:
    words = ["walk", "", "Unlabelled", "?"]
    (tmp_path / "a.csv").write_text("\n".join(lines_of(label=lambda i: words[i % 4])))
    trace = read_trace(tmp_path / "a.csv", missing=["?"])
    assert trace.classes == ("walk",) and trace.codes.tolist()[:4] == [0, -1, -1, -1]


def test_a_file_without_a_label_column_has_no_labels(tmp_path: Path) -> None:
    trace = read_bytes(tmp_path, "\n".join(line.rpartition(",")[0] for line in lines_of()).encode())
    assert trace.classes == () and (trace.codes == -1).all() and "no column 'activity'" in trace.told


def test_a_counter_that_float32_cannot_hold_is_told(tmp_path: Path) -> None:
    rows = [f"{i / RATE},{2**31 + i},1,walk" for i in range(50)]
    trace = read_bytes(tmp_path, "\n".join(["time,count,ax,activity", *rows]).encode())
    assert "channel count: numbers above 2^24" in trace.told
    with pytest.raises(UsageError, match="channel count"):
        read_trace(tmp_path / "a.csv", strict=True)


def test_times_of_whole_seconds_are_spread(tmp_path: Path) -> None:
    trace = read_bytes(tmp_path, "\n".join(lines_of(lambda i: f"2024-01-01T00:00:{i // RATE:02d}")).encode())
    check(trace)
    assert "spread evenly" in trace.told


def test_a_clock_that_is_set_back_begins_a_recording(tmp_path: Path) -> None:
    times = lambda i: f"{i / RATE - 3600 * (i >= 100):.2f}"  # noqa: E731
    trace = read_bytes(tmp_path, "\n".join(lines_of(times)).encode())
    assert len(trace.time) == ROWS and np.allclose(trace.values, VALUES) and (np.diff(trace.time) > 0).all()
    assert trace.time[100] - trace.time[99] > 1 and trace.repairs[0].line == 102 and "set back" in trace.told


def test_a_stream_of_a_lower_rate_is_brought_to_the_clock_of_the_others(tmp_path: Path) -> None:
    rows = [f"{i / RATE:.2f},{VALUES[i, 0]:.4f},{60 + i if i % RATE == 0 else ''}" for i in range(ROWS)]
    trace = read_bytes(tmp_path, "\n".join(["time,ax,pulse", *rows]).encode())
    last = ROWS - RATE + 1  # after the last number there is none
    assert len(trace.time) == last and trace.values[:, 1] == pytest.approx(60 + np.arange(last))
    assert "pulse has a number in 1 of 20 rows" in trace.told


def test_a_text_in_latin_1_is_read_and_told(tmp_path: Path) -> None:
    trace = read_bytes(tmp_path, "\n".join(lines_of(label=lambda i: "Müll")).encode("latin-1"))
    assert trace.classes == ("Müll",) and "Latin-1" in trace.told


def test_a_sensor_of_one_sample_a_second_has_windows(tmp_path: Path) -> None:
    trace = read_bytes(tmp_path, "\n".join(lines_of(lambda i: str(i))).encode())
    assert trace.rate_hz == 1 and len(cut_windows(trace, 10, 10)) == ROWS // 10


# Files that would eat memory ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [True, False])
def test_a_line_without_an_end_is_refused_before_it_is_read_whole(packed: bool, tmp_path: Path) -> None:
    """13 MB of a packed file once became a line of 3 GB."""
    text = b"time,ax\n0,1\n" + b"a" * (8 * LONGEST_LINE)
    (tmp_path / "a.csv").write_bytes(gzip.compress(text) if packed else text)
    tracemalloc.start()
    with pytest.raises(UsageError, match=f"a line of more than {LONGEST_LINE} characters; expected one row in each"):
        read_trace(tmp_path / "a.csv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * LONGEST_LINE


def test_a_label_that_is_a_book_is_refused(tmp_path: Path) -> None:
    """Every row of its block would have taken as much memory: 2 GB for one of 131,000 characters."""
    rows = "".join(f"{n},{n % 7},walk\n" for n in range(50))
    (tmp_path / "a.csv").write_text(f"time,ax,label\n{rows}50,1,{'w' * 5000}\n")
    with pytest.raises(
        UsageError, match=r"line 52: 'w+ has 5000 characters; a label, or the name of a device, has 4096"
    ):
        read_trace(tmp_path / "a.csv", "label")


def test_a_quote_that_never_ends_is_no_error_of_another_package(tmp_path: Path) -> None:
    """The csv module refuses cells above 131,072 characters, with an error that nobody expected."""
    assert split_line('1,"' + "a" * 140_000 + ",2\n", ",")[-1] == "2"
