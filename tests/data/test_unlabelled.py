"""Windows without a label: which they are, and the stretches of time in which they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of, unlabelled_of
from edge_sdk.data.samples import Samples, Stored, Unlabelled, store_samples
from edge_sdk.errors import UsageError


def trace(path: Path, *parts: tuple[str, int, bool]) -> Path:
    """A trace at 10 Hz whose values count its samples: (label, samples, whether the sensor was off before)."""
    lines, at, time = ["time,ax,activity"], 0, 0.0
    for label, samples, off in parts:
        time += 30.0 if off else 0.0
        for _ in range(samples):
            lines.append(f"{time:.1f},{at},{label}")
            at, time = at + 1, time + 0.1
    path.write_text("\n".join(lines) + "\n")
    return path


def cut(path: Path, **more: float) -> Cut:
    return Cut(trace=path, **{"window": 10, "stride": 10, "held_out": 0.3, "validation": 0.3} | more)  # type: ignore[arg-type]


def firsts(x: np.ndarray) -> list[int]:
    return [int(v) for v in x[:, 0, 0]]


def test_training_windows_beyond_the_labelled_seconds_have_no_label(tmp_path: Path) -> None:
    """Of three recordings of each class one is held out and one is for validation; a sensor that is off parts them."""
    path = trace(tmp_path / "d.csv", *((("ab"[k % 2]), 100, True) for k in range(6)))
    found = unlabelled_of(cut(path, labelled=2.0))
    assert found is not None and len(samples_of(cut(path, labelled=2.0)).train) == 4
    assert firsts(found.x) == [*range(20, 100, 10), *range(120, 200, 10)]
    assert found.recording.tolist() == [0] * 8 + [1] * 8
    assert unlabelled_of(cut(path)) is None  # all have labels


def test_a_stretch_does_not_end_where_the_activity_does(tmp_path: Path) -> None:
    """A device without labels could not know of it; it ends where windows between went to another part."""
    parts = [("ab"[k % 2], 100, False) for k in range(6)]
    found = unlabelled_of(cut(trace(tmp_path / "d.csv", *parts, ("unlabelled", 40, False), ("", 30, True))))
    assert found is not None and firsts(found.x) == [600, 610, 620, 630, 640, 650, 660]
    assert found.recording.tolist() == [0] * 4 + [1] * 3
    few = unlabelled_of(cut(tmp_path / "d.csv", labelled=2.0))
    assert few is not None and firsts(few.x)[:16] == [*range(20, 100, 10), *range(120, 200, 10)]
    assert few.recording.tolist()[:16] == [0] * 8 + [1] * 8  # two labelled windows of the other class lie between


def test_windows_of_samples_without_a_label_are_in_no_labelled_part(tmp_path: Path) -> None:
    path = trace(tmp_path / "d.csv", *((("a", "", "b", "unlabelled")[k % 4], 50, False) for k in range(12)))
    found = samples_of(cut(path))
    assert found.validation is not None
    assert {*found.train.labels, *found.held_out.labels, *found.validation.labels} == {"a", "b"}


def test_they_are_normalised_like_the_others(tmp_path: Path) -> None:
    path = trace(tmp_path / "d.csv", ("a", 100, True), ("b", 100, True), ("", 20, True))
    plain, found = unlabelled_of(cut(path)), unlabelled_of(cut(path), lambda x: x / 2)
    assert plain is not None and found is not None and (found.x == plain.x / 2).all()


def test_a_file_of_samples_has_them_beside_the_others(tmp_path: Path) -> None:
    train, loose = Samples(np.ones((2, 3), np.float32), ("a", "b")), np.full((3, 3), 7, np.float32)
    path = store_samples(tmp_path / "d.npz", train, train, None, Unlabelled(loose, np.array([0, 0, 4])))
    assert len(samples_of(Stored(path)).train) == 2
    found = unlabelled_of(Stored(path))
    assert found is not None and (found.x == loose).all() and found.recording.tolist() == [0, 0, 4]
    assert unlabelled_of(Stored(store_samples(tmp_path / "e.npz", train, train))) is None


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(UsageError, match=r"2 unlabelled rows, recording is int64 \(1,\): an integer for each"):
        Unlabelled(x, np.zeros(1, np.int64))
    with pytest.raises(UsageError, match="row 1 of unlabelled x has a value that is not finite"):
        Unlabelled(np.array([[1.0], [np.nan]], np.float32), np.zeros(2, np.int64))
    np.savez(tmp_path / "d.npz", x=x, labels=np.array(["a", "b"]), unlabelled_x=x)
    with pytest.raises(UsageError, match="has no array unlabelled_recording"):
        unlabelled_of(Stored(tmp_path / "d.npz"))
