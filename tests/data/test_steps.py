"""Windows whose steps have classes: of a trace, of what people have said live, and how they are divided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.cutting import cut_parts, cut_samples
from edge_sdk.data.steps import cut_step_windows, step_edges, step_texts
from edge_sdk.data.store.step_windows import said_of
from edge_sdk.data.store.timeline import LabelledSpan
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from tests.steps import TASK


def write(path: Path, labels: list[str], pauses: tuple[int, ...] = ()) -> Path:
    """A trace at 10 Hz with these labels; before the samples in `pauses` the sensor was off for a minute."""
    times = np.arange(len(labels)) / 10 + 60 * np.searchsorted(np.array(pauses), np.arange(len(labels)), "right")
    rows = [f"{t:.1f},{n % 7},{label}" for n, (t, label) in enumerate(zip(times, labels, strict=True))]
    path.write_text("time,x,stage\n" + "\n".join(rows) + "\n")
    return path


def texts(path: Path, window: int, stride: int, steps: int) -> tuple[str, ...]:
    found = cut_step_windows(read_trace(path, label="stage"), window, stride, 0.5, steps)
    return step_texts(found.y, found.classes)


def test_steps_are_equal_to_a_sample() -> None:
    assert step_edges(12, 3).tolist() == [0, 4, 8, 12] and step_edges(10, 4).tolist() == [0, 2, 5, 7, 10]
    with pytest.raises(UsageError, match="steps = 5: a window of 4 samples has 1 to 4 steps"):
        step_edges(4, 5)


def test_windows_cross_changes_and_steps_have_what_most_of_their_samples_have(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ["rest"] * 7 + ["walk"] * 6 + [""] * 3 + ["rest"] * 8)
    assert texts(file, 12, 6, 3) == ("rest|rest|walk", "walk|walk|rest", "|rest|rest")
    half = write(tmp_path / "b.csv", ["walk"] * 2 + ["rest"] * 2 + [""] * 2 + ["walk"] * 2 + ["rest"] * 4)
    assert texts(half, 12, 12, 3) == ("rest|walk|rest",), "of equally many the first class, and any before none"


def test_windows_without_a_word_are_left_out_and_a_trace_of_such_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ["rest"] * 12 + [""] * 24 + ["walk"] * 12)
    assert texts(file, 12, 12, 3) == ("rest|rest|rest", "walk|walk|walk")
    with pytest.raises(UsageError, match="a: none of its 4 windows has a step with a label"):
        texts(write(tmp_path / "a.csv", [""] * 48), 12, 12, 3)


def test_no_window_crosses_a_pause_and_whole_recordings_are_held_out(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", (["rest"] * 10 + ["walk"] * 10) * 6, (40, 80))
    found = cut_samples(Cut(trace=file, label="stage", window=8, stride=4, steps=4, held_out=0.3))
    assert len(found.train) == 18 and len(found.held_out) == 9, "the last recording, whatever its labels are"
    assert set(found.train.labels) & set(found.held_out.labels) and all(
        isinstance(label, str) and label.count("|") == 3 for label in found.train.labels
    )


def test_values_of_steps_are_means_over_their_samples(tmp_path: Path) -> None:
    a, b = np.arange(40) ** 2 / 8 + 1e5, np.sin(np.arange(40))
    rows = [
        f"{n / 10:.1f},{n % 7},{one!r},{other!r}"
        for n, (one, other) in enumerate(zip(a.tolist(), b.tolist(), strict=True))
    ]
    (tmp_path / "a.csv").write_text("time,x,a,b\n" + "\n".join(rows))
    cut = Cut(trace=tmp_path / "a.csv", window=10, stride=5, steps=4, target=("b", "a"), held_out=0.3)
    found = cut_parts(cut)[0]
    assert found.y.shape == (len(found), 2, 4) and found.x.shape[1:] == (1, 10) and found.classes == ("b", "a")
    for first, y in zip(found.first.tolist(), found.y, strict=True):
        for s, (start, end) in enumerate(((0, 2), (2, 5), (5, 7), (7, 10))):
            part = slice(first + start, first + end)
            assert y[:, s] == pytest.approx([b[part].mean(), a[part].mean()], rel=1e-6, abs=1e-6)
    labels = cut_samples(cut).train.labels
    assert labels[0] == tuple(found.y[0].ravel()), "value by value, each along time"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"steps": 65}, "steps = 65: a window of 64 samples has 1 to 64"),
        ({"steps": -1}, "steps = -1"),
        ({"steps": 4, "labelled": 5.0}, "leave out labelled"),
        ({"steps": 4, "target": ("x",), "labelled": 5.0}, "leave out labelled"),
        ({"steps": 4, "abnormal": ()}, "leave out labelled, asked and abnormal"),
    ],
)
def test_settings_that_do_not_go_together(more: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        Cut(trace=tmp_path / "a.csv", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("began", "ended", "found"),
    [
        (0.0, 4.0, "rest"),
        (3.0, 7.5, "walk"),
        (3.0, 6.0, "rest"),
        (8.5, 12.0, ""),
        (8.0, 12.0, "walk"),
        (20.0, 21.0, ""),
    ],
)
def test_what_was_done_most_of_the_time(began: float, ended: float, found: str) -> None:
    spans = [LabelledSpan(0.0, 5.0, "rest"), LabelledSpan(5.0, 10.0, "walk")]
    assert TASK.in_step(*said_of(spans, began, ended)) == found
