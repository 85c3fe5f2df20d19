"""Windows that are reconstructed: all of a trace, which of them are abnormal, and which are trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.cutting import cut_samples, cut_trace
from edge_sdk.errors import UsageError

RATE = 10


def write(path: Path, events: dict[tuple[int, int], str], count: int = 1000, column: bool = True) -> Path:
    """A trace of so many samples; events: (first, last) -> label."""
    texts = [""] * count
    for (first, last), name in events.items():
        texts[first : last + 1] = [name] * (last + 1 - first)
    values = np.random.default_rng(0).normal(size=count)
    lines = [f"{n / RATE},{v:.3f}" + f",{t}" * column for n, (v, t) in enumerate(zip(values, texts, strict=True))]
    path.write_text("\n".join(["time,x" + ",event" * column, *lines]) + "\n")
    return path


def test_a_window_is_abnormal_where_any_of_its_moments_is(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", {(200, 200): "fall", (305, 330): "Walk", (520, 560): "fault", (555, 559): "fall"})
    data = Cut(trace=file, label="event", window=20, stride=10, abnormal=("fall", "fault"))
    _, cuts = cut_trace(data)
    assert cuts.classes == ("normal", "fall", "fault") and len(cuts) == 99, "no label ends a recording"
    found = {int(first): cuts.classes[code] for first, code in zip(cuts.first, cuts.y, strict=True) if code}
    assert {first for first, name in found.items() if name == "fall"} == {190, 200, 540, 550}
    assert {first for first, name in found.items() if name == "fault"} == {510, 520, 530, 560}


def test_abnormal_windows_are_held_out_and_nothing_is_chosen_by_them(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", {(100, 139): "fall", (700, 709): "fall"})
    data = Cut(trace=file, label="event", window=20, stride=20, abnormal=("fall",), held_out=0.2, validation=0.2)
    found = cut_samples(data)
    assert {*found.train.labels} == {*found.validation.labels} == {"normal"}  # type: ignore[union-attr]
    assert found.held_out.labels.count("fall") == 3
    assert found.held_out.labels.index("fall") == 0, "in order of time"
    everything = len(found.train) + len(found.held_out) + len(found.validation or ())
    assert 45 <= everything <= 50, "but for windows that share samples with another part"


def test_no_label_is_needed_and_none_is_read(tmp_path: Path) -> None:
    plain = Cut(trace=write(tmp_path / "a.csv", {}, column=False), window=20, stride=20, abnormal=())
    with_labels = Cut(trace=write(tmp_path / "b.csv", {(0, 999): "walk"}), window=20, stride=20, abnormal=())
    for data in (plain, with_labels):
        found = cut_samples(data)
        assert {*found.train.labels, *found.held_out.labels} == {"normal"} and len(found.held_out) == 15
    with pytest.raises(UsageError, match="none of its 50 windows has a label"):
        cut_samples(Cut(trace=plain.trace, window=20, stride=20))


def test_options_of_other_tasks_do_not_go_with_it(tmp_path: Path) -> None:
    for more in ({"labelled": 3.0}, {"target": ("x",)}, {"asked": (1,)}):
        with pytest.raises(UsageError, match="abnormal: every window counts"):
            Cut(trace=tmp_path, abnormal=(), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "label"), [("label", "activity"), ("fault", "fault"), ("Activity", "activity")])
def test_labels_that_nobody_asks_for_are_no_channel(tmp_path: Path, name: str, label: str) -> None:
    marks = ["1" if 300 <= n < 320 else ("0" if n < 500 else "") for n in range(1000)]  # a network would see the answer
    lines = [f"{n / RATE},{np.sin(n):.3f},{mark}" for n, mark in enumerate(marks)]
    file = tmp_path / "a.csv"
    file.write_text("\n".join([f"time,x,{name}", *lines]) + "\n")
    trace, cuts = cut_trace(Cut(trace=file, label=label, window=20, stride=10, abnormal=()))
    assert trace.channels == ("x",) and len(trace.time) == 1000 and len(cuts) == 99
    assert f"column {name} left out" in trace.told and "rows left out" not in trace.told
    trace, _ = cut_trace(Cut(trace=file, label=label, window=20, stride=10, abnormal=(), channels=("x", name)))
    assert trace.channels == ("x", name), "who names it wants it"


def test_texts_after_many_empty_cells_are_told_as_they_are(tmp_path: Path) -> None:
    data = Cut(trace=write(tmp_path / "a.csv", {(200, 220): "fall"}), label="other", window=20, stride=10, abnormal=())
    trace, cuts = cut_trace(data)
    assert len(cuts) == 99 and "rows left out" not in trace.told and "row left out" not in trace.told
