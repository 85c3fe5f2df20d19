"""Availability files: what holds when, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.data import availability
from edge_sdk.data.availability import ALWAYS, Moment, find_availability, read_availability
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.errors import UsageError
from edge_sdk.replay.traces.nights import write_nights


def write(folder: Path, text: str) -> Path:
    path = folder / "watch.availability.csv"
    path.write_text(text)
    return path


def test_each_line_holds_until_the_next_one(tmp_path: Path) -> None:
    found = read_availability(write(tmp_path, "time,offline,charging,battery\n100,0,1,0.9\n200,1,,0.8\n"))
    assert found.at(0) == found.at(199) == Moment(False, True, 0.9)
    assert found.at(200) == found.at(1e9) == Moment(True, None, 0.8)


def test_iso_times_count_from_midnight_of_the_first_day(tmp_path: Path) -> None:
    path = write(tmp_path, "time,charging\n2026-03-01T22:00:00,1\n2026-03-02T06:00:00,0\n")
    assert read_availability(path).times == (22 * 3600, 30 * 3600)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "line 1: nothing"),
        ("time,offline\n", "a header and no lines"),
        ("offline\n0\n", "line 1: offline; expected time and any of"),
        ("time,colour\n0,red\n", "line 1"),
        ("time,offline\n0,yes\n", "line 2: offline = 'yes', expected 0 or 1"),
        ("time,battery\n0,90\n", "line 2: battery = '90', expected a number from 0 to 1"),
        ("time,battery\n0,nan\n", "line 2: battery = 'nan'"),
        ("time,offline\n0,0\n0,1\n", "line 3: its time is not later"),
        ("time,offline\n0,0\nnoon,1\n", "line 3: time = 'noon'"),
        ("time,offline\nnoon,0\n", "line 2: time = 'noon'"),
        ("time,offline\n0\n", "line 2: 1 cells"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read_availability(write(tmp_path, text))


def test_files_of_availability_are_no_traces_and_need_not_be_there(tmp_path: Path) -> None:
    write_nights(tmp_path, ("watch",), days=3, seed=1)
    (tmp_path / "watch.csv").write_text("time,x,activity\n0,1,a\n0.1,2,a\n0.2,1,b\n")
    assert [trace.name for trace in load_folder(tmp_path)] == ["watch"]
    assert find_availability(tmp_path, "phone") is ALWAYS and not ALWAYS.at(5.0).offline
    found = find_availability(tmp_path, "watch")
    assert len(found.times) == 3 * 96 and {m.charging for m in found.moments} == {True, False}
    first = (tmp_path / "watch.availability.csv").read_bytes()
    write_nights(tmp_path, ("watch",), days=3, seed=1)
    assert (tmp_path / "watch.availability.csv").read_bytes() == first


def test_a_file_that_no_memory_has_room_for_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.availability.csv"
    path.write_text("time,offline\n0,1\n")
    monkeypatch.setattr(availability, "LARGEST", 5)
    with pytest.raises(UsageError, match="17 bytes, expected 5 at most"):
        read_availability(path)
