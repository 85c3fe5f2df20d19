from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.noted_units import read_units
from edge_sdk.data.traces.folder import load_folder, load_traces
from edge_sdk.data.traces.rates import resample_trace
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from tests.data.trace_making import write_csv

HEADER = "time,ax,activity"


def test_traces_come_by_name_with_one_numbering_of_classes(tmp_path: Path) -> None:
    write_csv(tmp_path / "b.csv", HEADER, "0,1,walk", "1,2,eat")
    write_csv(tmp_path / "a.csv", HEADER, "0,1,sit", "1,2,walk")
    (tmp_path / "notes.txt").write_text("not a trace")
    a, b = load_folder(tmp_path)
    assert (a.name, b.name) == ("a", "b") and a.classes == b.classes == ("eat", "sit", "walk")
    assert a.codes.tolist() == [1, 2] and b.codes.tolist() == [2, 0]
    assert [t.name for t in load_folder([tmp_path / "b.csv", tmp_path / "a.csv"])] == ["a", "b"]


def rows(rate: float = 20, header: str = HEADER, n: int = 100) -> list[str]:
    """A trace whose channel ax counts tenths of a second, ay is 7 and az 9; extra ones are 1."""
    columns = header.split(",")
    known = {"activity": "walk", "ay": "7", "az": "9"}

    def cell(name: str, i: int) -> str:
        if name == "time":
            return f"{i / rate:.4f}"
        return f"{i / rate * 10:.4f}" if name.lower() == "ax" else known.get(name, "1")

    return [header, *(",".join(cell(name, i) for name in columns) for i in range(n))]


def test_channels_go_by_their_names(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", *rows(header="time,ax,ay,az,activity"))
    write_csv(tmp_path / "b.csv", *rows(header="time,az,AX,ay,activity"))
    write_csv(tmp_path / "c.csv", *rows(header="time,battery,ax,ay,az,activity"))
    found = load_traces(tmp_path)
    assert {trace.channels for trace in found.traces} == {("ax", "ay", "az")}
    for trace in found.traces:
        assert trace.values[:, 0] == pytest.approx(np.arange(100) / 2) and (trace.values[:, 1:] == [7, 9]).all()
    assert found.notes == ("c: channel battery left out, most have none",)
    with pytest.raises(UsageError, match="battery"):
        load_traces(tmp_path, strict=True)


def test_a_trace_that_lacks_a_channel_is_left_out(tmp_path: Path) -> None:
    for name, header in (("a", "time,ax,ay,activity"), ("b", "time,ax,ay,activity"), ("c", "time,ax,activity")):
        write_csv(tmp_path / f"{name}.csv", *rows(header=header))
    found = load_traces(tmp_path)
    assert [trace.name for trace in found.traces] == ["a", "b"]
    assert found.notes == ("warning: left out c: it has no channel ay, which most have",)
    write_csv(tmp_path / "b.csv", *rows(header="time,az,activity"))
    with pytest.raises(UsageError, match="most traces must have the same"):
        load_traces([tmp_path / "b.csv", tmp_path / "c.csv"])


def test_traces_of_another_rate_are_resampled(tmp_path: Path) -> None:
    for name, rate in (("a", 20.0), ("b", 20.2), ("c", 10.0), ("d", 50.0)):
        write_csv(tmp_path / f"{name}.csv", *rows(rate))
    found = load_traces(tmp_path)
    assert [round(trace.rate_hz, 1) for trace in found.traces] == [20, 20.2, 20, 20]
    for trace in found.traces:
        assert np.diff(trace.values[:, 0]) == pytest.approx(np.diff(trace.time) * 10, abs=3e-3)
        assert not trace.codes.any()
    assert [note.split(":")[0] for note in found.notes] == ["c", "d"] and "10 Hz made 20 Hz" in found.notes[0]
    assert {round(t.rate_hz) for t in load_traces(tmp_path, rate_hz=25).traces} == {25}
    with pytest.raises(UsageError, match="c has 10"):
        load_traces(tmp_path, strict=True)


def test_labels_of_resampled_traces_stay_where_they_were(tmp_path: Path) -> None:
    lines = [f"{i / 10:.1f},{i},{'walk' if i < 50 else ''}" for i in range(100)]
    trace = resample_trace(read_trace(write_csv(tmp_path / "a.csv", HEADER, *lines)), 40)
    assert (trace.codes == np.where(trace.time < 5 - 1e-9, 0, -1)).all() and len(trace.time) == 397


def test_a_word_in_two_spellings_is_one_class_of_the_fleet(tmp_path: Path) -> None:
    for name, word in (("a", "walk"), ("b", "Walk"), ("c", "walk")):
        write_csv(tmp_path / f"{name}.csv", *(row.replace("walk", word) for row in rows()))
    found = load_traces(tmp_path)
    assert all(trace.classes == ("walk",) and not trace.codes.any() for trace in found.traces)
    assert found.notes == ("b: labels: 'Walk' is 'walk'",)


def test_one_file_that_is_no_trace_does_not_cost_the_fleet(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", *rows())
    write_csv(tmp_path / "notes.csv", "who,what", "ann,left", "bob,right")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress("\n".join(rows()).encode()))
    found = load_traces(tmp_path)
    assert [trace.name for trace in found.traces] == ["a", "b"] and found.files["b"].name == "b.csv.gz"
    assert len(found.notes) == 1 and found.notes[0].startswith("warning: left out") and "notes.csv" in found.notes[0]
    with pytest.raises(UsageError, match="notes"):
        load_traces(tmp_path, strict=True)


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace"):
        load_folder(tmp_path)
    with pytest.raises(UsageError, match="not a folder"):
        load_folder(tmp_path / "missing")
    one = write_csv(tmp_path / "a.csv", HEADER, "0,1,walk", "1,2,eat")
    with pytest.raises(UsageError, match="names the device"):
        load_folder([one, one])


def test_channels_that_differ_in_case_alone_are_both_kept(tmp_path: Path) -> None:
    """Once the first one was lost without a word; in one spelling for all, upper and lower case may differ."""
    for name in "ab":
        rows = "".join(f"{n / 10},{n},{-n},walk\n" for n in range(30))
        (tmp_path / f"{name}.csv").write_text(f"time,g,G,activity\n{rows}")
    assert {trace.channels for trace in load_folder(tmp_path)} == {("g", "G")}
    (tmp_path / "b.csv").write_text(f"time,G,H,activity\n{rows}")
    (tmp_path / "a.csv").write_text(f"time,g,h,activity\n{rows}")
    assert {trace.channels for trace in load_folder(tmp_path)} == {("g", "h")}


@pytest.mark.parametrize("text", ["[" * 100_000, "nope", "[]", '{"a": {"channels": ["x"], "units": []}}'])
def test_units_that_cannot_be_read_are_none(tmp_path, text):
    """They came with somebody's folder, and are a help only: the first of these ended whatever read the traces."""
    (tmp_path / "sensors.json").write_text(text)
    assert read_units(tmp_path) == {}
    (tmp_path / "sensors.json").unlink()
    (tmp_path / "import.toml").write_text(f"device = {text}")
    assert read_units(tmp_path) == {}
