"""Windows and files with values in place of classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of
from edge_sdk.data.samples import Samples, read_samples, store_samples
from edge_sdk.errors import UsageError


def write(path: Path, seconds: int = 20, target: str = "rate") -> Path:
    """A trace of 10 Hz: a channel that counts samples, and a target of twice that; the activity changes half-way."""
    rows = [f"{i / 10},{i},{2 * i},{'sit' if i < 5 * seconds else 'walk'}" for i in range(10 * seconds)]
    path.write_text(f"time,ppg,{target},activity\n" + "\n".join(rows) + "\n")
    return path


def test_the_target_of_a_window_is_its_mean_and_no_input(tmp_path: Path) -> None:
    found = samples_of(Cut(write(tmp_path / "a.csv"), window=10, stride=10, held_out=0.2, target=("rate",)))
    assert found.train.x.shape[1:] == (1, 10)
    for part in (found.train, found.held_out):
        means = part.x.mean((1, 2)) * 2
        assert [label[0] for label in part.labels] == pytest.approx(means.tolist())  # type: ignore[index]


def test_a_change_of_the_activity_ends_no_recording_and_the_last_part_is_held_out(tmp_path: Path) -> None:
    found = samples_of(Cut(write(tmp_path / "a.csv"), window=20, stride=20, held_out=0.3, target=("rate",)))
    assert len(found.train) + len(found.held_out) == 10, "a window lies over the change of the activity"
    assert found.train.x.max() < found.held_out.x.min() and "activity" not in found.told.replace("column activity", "")


def test_a_column_named_as_labels_are(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", target="target")
    assert len(samples_of(Cut(file, window=10, stride=10, target=("target",))).train)


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a: no column of numbers 'hart' to be predicted; there are ppg, rate"):
        samples_of(Cut(write(tmp_path / "a.csv"), target=("hart",)))
    with pytest.raises(UsageError, match="no channel beside ppg, rate"):
        samples_of(Cut(write(tmp_path / "a.csv"), target=("ppg", "rate")))


@pytest.mark.parametrize("labels", [np.array([60.5, 72, 80]), np.array([[60.5, 1], [72, 2], [80, 3]])])
def test_a_file_of_samples_keeps_numbers(tmp_path: Path, labels: np.ndarray) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    whole = Samples(x, labels)  # type: ignore[arg-type]
    found = read_samples(store_samples(tmp_path / "a.npz", whole, whole, whole))
    for part in (found.train, found.held_out, found.validation):
        assert part is not None and part.labels == whole.labels and np.array(part.labels) == pytest.approx(labels)
