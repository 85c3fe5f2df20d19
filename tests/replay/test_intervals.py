"""Labels in a file of their own: from when to when each holds, beside the recordings that they are of."""

from __future__ import annotations

import tomllib
import tracemalloc
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.importing import import_traces
from edge_sdk.replay.labels.intervals import begins_with, held_between, match_intervals, read_intervals

EPOCH = 1_700_000_000
N = 400


def record(path: Path, began: float = EPOCH, first: str = "time,move") -> Path:
    """A row each second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([first, *(f"{began + n},{n % 7}" for n in range(N))]) + "\n")
    return path


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def labels(path: Path) -> list[str]:
    trace = read_trace(path)
    return [trace.classes[code] if code >= 0 else "" for code in trace.codes]


WANTED = [""] * 10 + ["wake"] * 90 + ["rem"] * 100 + [""] * 200
FILES = {
    "start and end": [
        "start,end,stage",
        f"{EPOCH + 10},{EPOCH + 100},wake",
        f"{EPOCH + 100},{EPOCH + 200},rem",
    ],
    "dates and a duration": ["onset;duration;note", "14.11.2023 22:13:30;90;wake", "14.11.2023 22:15:00;100;rem",
                             "14.11.2023 22:16:40;60;Sleep stage ?"],
    "epochs": ["Time [ms],label", *(f"{EPOCH + n * 10}000,{'wake' if n < 10 else 'rem'}" for n in range(1, 20))],
    "since the start": ["begin\tduration_ms\tdescription", "10,0\t90000,0\twake", "100,0\t100000,0\trem"],
}  # fmt: skip


@pytest.mark.parametrize("lines", FILES.values(), ids=FILES)
def test_labels_come_from_a_file_beside_the_recording(tmp_path: Path, lines: list[str]) -> None:
    record(tmp_path / "in" / "ann" / "night1.csv")
    record(tmp_path / "in" / "ann" / "night10.csv", EPOCH + 5000)
    record(tmp_path / "in" / "bob.csv")
    write(tmp_path / "in" / "ann" / "night1_stages.csv", *lines)
    made, left = import_traces(tmp_path / "in", tmp_path / "out", Stated(intervals="*_stages.csv"))
    assert not left and [line.name for line in made] == ["ann-night1", "ann-night10", "bob"]
    assert labels(tmp_path / "out" / "ann-night1.csv") == WANTED
    assert {*labels(tmp_path / "out" / "bob.csv"), *labels(tmp_path / "out" / "ann-night10.csv")} == {""}
    assert any("night1_stages.csv" in note for note in made[0].notes) and not made[2].seconds
    file = tmp_path / "in" / "ann" / "night1_stages.csv"
    noted = tomllib.loads((tmp_path / "out" / "import.toml").read_text())["intervals"]
    assert noted == [{"source": str(file), "sha256": sha256(file.read_bytes()).hexdigest()}]


def test_a_folder_is_one_person_whose_nights_share_a_file(tmp_path: Path) -> None:
    for night in range(2):
        record(tmp_path / "in" / "ann" / f"night{night}.csv", EPOCH + 86400 * night)
    rows = [f"{EPOCH + 86400 * night + 100},{EPOCH + 86400 * night + 200},rem" for night in range(2)]
    write(tmp_path / "in" / "ann" / "stages.csv", "start,end,stage", *rows)
    args = ["traces", "import", str(tmp_path / "in"), str(tmp_path / "out"), "--by-folder", "--intervals", "stages.csv"]
    assert main(args) == 0
    assert labels(tmp_path / "out" / "ann.csv") == ([""] * 100 + ["rem"] * 100 + [""] * 200) * 2


EPISODES = ("start,end,label", f"{EPOCH},{EPOCH + 400},none", f"{EPOCH + 100},{EPOCH + 300},pvc",
            f"{EPOCH + 200},{EPOCH + 250},af")  # fmt: skip


def test_what_overlaps_is_told_or_a_set(tmp_path: Path) -> None:
    record(tmp_path / "in" / "ann.csv")
    write(tmp_path / "in" / "ann.episodes.csv", *EPISODES)
    said = Stated(intervals="*.episodes.csv")
    made, _ = import_traces(tmp_path / "in", tmp_path / "out", said)
    assert any("200 rows have several" in note and "--sets" in note for note in made[0].notes)
    assert labels(tmp_path / "out" / "ann.csv")[190:260] == ["pvc"] * 10 + ["af"] * 50 + ["pvc"] * 10
    with pytest.raises(UsageError, match="200 rows have several"):
        import_traces(tmp_path / "in", tmp_path / "strict", Stated(intervals="*.episodes.csv", strict=True))
    import_traces(tmp_path / "in", tmp_path / "sets", Stated(intervals="*.episodes.csv", sets=True))
    wanted = ["none"] * 100 + ["pvc"] * 100 + ["af+pvc"] * 50 + ["pvc"] * 50 + ["none"] * 100
    assert labels(tmp_path / "sets" / "ann.csv") == wanted


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["start,end,stage", f"{EPOCH + 9},{EPOCH + 3},rem"], "line 2: it ends before it begins"),
        (["start,end,stage", f"{EPOCH + 9},{EPOCH + 30},rem", f"{EPOCH + 30},later,rem"], "line 3: 'later'"),
        (["a,b,c", "1,2,rem"], "no column of when each begins among a, b, c"),
        (["start,end", "1,2"], "no column with labels among start, end"),
        (["start,end,x,y", "1,2,rem,rem"], "no column with labels among start, end, x, y"),
        (["start,end,stage"], "a header and no"),
        (["start,duration (min),stage", "1,2,rem", "9,3,rem"], r"'duration \(min\)' has a unit .* one of s, ms, us"),
        (["start,end_sec,stage", "1,2,rem", "99,100,rem"], "'end_sec' has a unit"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_intervals_is_refused(tmp_path: Path, lines: list[str], words: str) -> None:
    record(tmp_path / "in" / "ann.csv")
    write(tmp_path / "in" / "ann_stages.csv", *lines)
    with pytest.raises(UsageError, match=words):
        import_traces(tmp_path / "in", tmp_path / "out", Stated(intervals="*_stages.csv"))


def test_a_file_whose_times_nobody_recorded_is_told(tmp_path: Path) -> None:
    record(tmp_path / "in" / "ann.csv")
    write(tmp_path / "in" / "ann_stages.csv", "start,end,stage", f"{EPOCH - 900},{EPOCH - 800},rem")
    made, left = import_traces(tmp_path / "in", tmp_path / "out", Stated(intervals="*_stages.csv"))
    assert len(made) == 1 and "no row of a recording lies in its intervals" in left[0]
    with pytest.raises(UsageError, match="no row of a recording"):
        import_traces(tmp_path / "in", tmp_path / "strict", Stated(intervals="*_stages.csv", strict=True))


def test_a_pattern_that_no_file_has_and_a_file_of_nobody_are_refused(tmp_path: Path) -> None:
    record(tmp_path / "in" / "ann.csv")
    with pytest.raises(UsageError, match=r"none .* '\*_stages.csv'"):
        import_traces(tmp_path / "in", tmp_path / "out", Stated(intervals="*_stages.csv"))
    (tmp_path / "in" / "bob").mkdir()
    write(tmp_path / "in" / "bob" / "x_stages.csv", *FILES["start and end"])
    with pytest.raises(UsageError, match="no recording beside it"):
        import_traces(tmp_path / "in", tmp_path / "out", Stated(intervals="*_stages.csv"))


def test_a_file_of_intervals_is_of_the_recording_whose_whole_name_it_begins_with(tmp_path: Path) -> None:
    one, ten, other = (tmp_path / f"{name}.csv" for name in ("night1", "night10", "x"))
    files = [tmp_path / name for name in ("night1_stages.csv", "night10.stages.csv", "all.csv")]
    found = match_intervals([one, ten, other], files)
    assert found == {one: [files[0], files[2]], ten: [files[1], files[2]], other: [files[2]]}
    assert begins_with("night1", "night1") and not begins_with("night10.csv", "night1")


@pytest.mark.parametrize("lines", [["start,end,kind", "1,2,rem"], ["start,end,kind,stage", "1,2,a,rem"]])
def test_the_column_of_labels_is_the_likely_one_or_the_only_one_left(tmp_path: Path, lines: list[str]) -> None:
    assert read_intervals(write(tmp_path / "a.csv", *lines), Stated()).spans == ((1.0, 2.0, "rem"),)


@pytest.mark.parametrize(("began", "dated"), [(5.0, False), (1e8, False), (float(EPOCH), True)])
def test_one_interval_with_its_duration_is_enough(tmp_path: Path, began: float, dated: bool) -> None:
    found = read_intervals(write(tmp_path / "a.csv", "start,duration_ms,label", f"{began:.0f},2500,rem"), Stated())
    assert found.spans == ((began, began + 2.5, "rem"),) and found.dated == dated


# Files that would eat memory ----------------------------------------------------------------------------------------
def test_intervals_in_each_other_take_no_more_than_others() -> None:
    """Of 3,000 that all end together each held in all that began later: 4.5 million texts."""
    spans = [(float(n), 3000.0, "wake" if n % 2 else "rem") for n in range(3000)]
    edges = np.unique([at for began, ended, _ in spans for at in (began, ended)])
    tracemalloc.start()
    found = held_between(edges, spans, sets=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6
    assert found[:3] == [("rem", 1), ("wake", 2), ("rem", 2)] and found[-2:] == [("wake", 2), ("", 0)]


def test_of_several_the_later_one_counts_until_it_ends() -> None:
    spans = [(0.0, 9.0, "a"), (2.0, 4.0, "b"), (3.0, 8.0, "a"), (5.0, 5.0, "c")]
    edges = np.unique([at for began, ended, _ in spans for at in (began, ended)])
    found = dict(zip(edges.tolist(), held_between(edges, spans, sets=False), strict=True))
    assert found == {0: ("a", 1), 2: ("b", 2), 3: ("a", 2), 4: ("a", 1), 5: ("a", 1), 8: ("a", 1), 9: ("", 0)}
    sets = dict(zip(edges.tolist(), held_between(edges, spans, sets=True), strict=True))
    assert sets[2] == sets[3] == ("a+b", 2) and sets[4] == ("a", 1)


def test_a_set_of_very_many_labels_is_refused() -> None:
    spans = [(0.0, 1.0, f"label {n}") for n in range(65)]
    with pytest.raises(UsageError, match="65 labels hold at once, 'label 0' is one; expected 64 at most"):
        held_between(np.array([0.0, 1.0]), spans, sets=True)
    assert held_between(np.array([0.0, 1.0]), spans, sets=False)[0] == ("label 64", 65)
