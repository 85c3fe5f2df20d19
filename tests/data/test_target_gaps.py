"""Gaps in a column that is to be predicted: windows without a label, while the channels go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.cutting import cut_trace
from edge_sdk.data.data_table import samples_of, unlabelled_of
from edge_sdk.errors import UsageError

HZ, SECONDS = 10, 40
GAP = range(150, 210)
"""Rows without a number in the target: six windows of ten rows."""


def write(path: Path, gap: range = GAP, empty: str = "", other: str = "1") -> Path:
    """A trace of 10 Hz: a channel that counts samples, a target of twice that, and another one."""
    rows = [f"{i / HZ},{i},{empty if i in gap else 2 * i},{other}" for i in range(HZ * SECONDS)]
    path.write_text("time,ppg,rate,flow\n" + "\n".join(rows) + "\n")
    return path


def cut(path: Path, **more: object) -> Cut:
    return replace(Cut(path, window=10, stride=10, channels=("ppg", "rate"), target=("rate",)), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", ["", "nan", "NA", "what"])
def test_windows_in_a_gap_have_no_label_and_channels_go_on(empty: str, tmp_path: Path) -> None:
    data = cut(write(tmp_path / "a.csv", empty=empty))
    trace, windows = cut_trace(data)
    assert len(trace.time) == HZ * SECONDS and np.array_equal(trace.values[:, 0], np.arange(HZ * SECONDS))
    assert len(windows) == 40 and {*windows.recording.tolist()} == {0}, "a gap in the target ends no recording"
    found, loose = samples_of(data), unlabelled_of(data)
    assert len(found.train) + len(found.held_out) == 34
    for part in (found.train, found.held_out):
        assert [label[0] for label in part.labels] == pytest.approx((2 * part.x.mean((1, 2))).tolist())  # type: ignore[index]
    assert loose is not None and sorted(loose.x[:, 0, 0].tolist()) == [150, 160, 170, 180, 190, 200]
    assert found.told.count("rate has no number in 60 of 400 rows (first: line 152)") == 1
    assert "left out" not in found.told


def test_a_window_has_the_mean_of_what_is_known_of_most_of_it(tmp_path: Path) -> None:
    _, windows = cut_trace(cut(write(tmp_path / "a.csv", gap=range(154, 166))))
    assert windows.y[15, 0] == pytest.approx(2 * np.mean([150, 151, 152, 153])) or np.isnan(windows.y[15, 0])
    assert np.isnan(windows.y[15, 0]) and np.isnan(windows.y[16, 0]), "four of ten are known"
    _, windows = cut_trace(cut(write(tmp_path / "a.csv", gap=range(155, 165))))
    assert windows.y[15, 0] == pytest.approx(2 * np.mean([150, 151, 152, 153, 154])), "five of ten are"


def test_a_window_lacks_a_label_where_one_of_several_values_is_missing(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", other="3")
    lines = file.read_text().splitlines()
    lines[1:31] = [line.rpartition(",")[0] + "," for line in lines[1:31]]
    file.write_text("\n".join(lines) + "\n")
    data = cut(file, channels=("ppg", "rate", "flow"), target=("rate", "flow"))
    found = samples_of(data)
    assert len(found.train) + len(found.held_out) == 31 and all(len(label) == 2 for label in found.train.labels)  # type: ignore[arg-type]
    assert "flow has no number in 30 of 400 rows" in found.told and "rate has no number in 60 of 400" in found.told


def test_steps_in_a_gap_are_unknown(tmp_path: Path) -> None:
    _, windows = cut_trace(cut(write(tmp_path / "a.csv", gap=range(152, 175)), window=20, stride=20, steps=4))
    assert windows.y.shape == (20, 1, 4)
    known = np.isfinite(windows.y[:, 0])
    assert known[7].tolist() == [True, True, False, False] and known[8].tolist() == [False, False, False, True]
    assert known.sum() == 75 and windows.y[8, 0, 3] == pytest.approx(2 * np.mean(range(175, 180)))
    found = samples_of(cut(write(tmp_path / "a.csv", gap=range(140, 260)), window=20, stride=20, steps=4))
    assert len(found.train) + len(found.held_out) == 14, "windows of which no step is known"


@pytest.mark.parametrize("rate", [5.0, 20.0])
def test_a_gap_stays_one_at_another_rate(rate: float, tmp_path: Path) -> None:
    trace, _ = cut_trace(cut(write(tmp_path / "a.csv"), rate_hz=rate))
    target = trace.values[:, 1]
    lost = np.isnan(target)
    began, ended = trace.time[lost][[0, -1]]
    assert began == pytest.approx(15, abs=0.21) and ended == pytest.approx(20.9, abs=0.21)
    assert np.abs(target[~lost] - 2 * trace.values[~lost, 0]).max() < 1e-3 and np.isfinite(trace.values[:, 0]).all()


def test_a_target_without_any_number_is_said(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", gap=range(HZ * SECONDS))
    with pytest.raises(UsageError, match="a: none of its 40 windows has a label"):
        samples_of(cut(file))


def test_a_gap_is_no_repair(tmp_path: Path) -> None:
    found = samples_of(cut(write(tmp_path / "a.csv"), strict=True))
    assert len(found.train) + len(found.held_out) == 34
    with pytest.raises(UsageError, match="line 152: 'what' column rate is no finite number"):
        samples_of(cut(write(tmp_path / "a.csv", empty="what"), strict=True))


@pytest.mark.parametrize("steps", [0, 2])
def test_a_short_pause_of_a_channel_does_not_hold_out_what_comes_after_it(steps: int, tmp_path: Path) -> None:
    """Whole recordings are held out where they are about as much as was asked for, else the end of each."""
    lines = write(tmp_path / "a.csv", gap=range(0)).read_text().splitlines()
    lines[121:131] = [line.replace(f",{i},", ",,", 1) for i, line in enumerate(lines[121:131], 120)]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    found = samples_of(cut(tmp_path / "a.csv", held_out=0.2, validation=0.2, steps=steps))
    assert found.validation is not None
    assert [len(found.train), len(found.validation), len(found.held_out)] == [24, 8, 7]
    ends = [part.x.max() for part in (found.train, found.validation, found.held_out)]
    assert ends == sorted(ends)
    lines[301:311] = []  # two pauses: what follows the second is a quarter of all
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    found = samples_of(cut(tmp_path / "a.csv", held_out=0.2, steps=steps))
    assert found.held_out.x.min() >= 310 and len(found.held_out) == 9


def test_labelled_seconds_are_those_with_a_number(tmp_path: Path) -> None:
    """A gap within them is not counted: 20 of the first 30 seconds, of which ten have no number."""
    file = write(tmp_path / "a.csv", gap=range(100, 200))
    found = samples_of(cut(file, labelled=20.0, held_out=0.1))
    assert found.train.x[:, 0, 0].tolist() == [10.0 * n for n in (*range(10), *range(20, 30))]
    loose = unlabelled_of(cut(file, labelled=20.0, held_out=0.1))
    assert loose is not None and loose.x[:10, 0, 0].tolist() == [10.0 * n for n in range(10, 20)]
    whole = samples_of(cut(write(tmp_path / "b.csv", gap=range(0)), labelled=20.0, held_out=0.1, stride=5))
    assert whole.train.x[:, 0, 0].tolist() == [5.0 * n for n in range(39)]
