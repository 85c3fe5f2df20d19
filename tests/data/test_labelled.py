"""Few labels: which windows of a device are left."""

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of
from edge_sdk.data.traces.unlabelled import keep_labelled
from edge_sdk.data.traces.windows import Windows
from edge_sdk.errors import UsageError

LENGTH = 4


def windows(*recordings):
    """Recordings as (class, samples), cut into windows of LENGTH with a stride of 2."""
    starts, y, number, at = list[int](), list[int](), list[int](), 0
    for k, (code, samples) in enumerate(recordings):
        for start in range(0, samples - LENGTH + 1, 2):
            starts.append(at + start)
            y.append(code)
            number.append(k)
        at += samples
    first = np.array(starts)
    x = np.zeros((len(first), 1, LENGTH), np.float32)
    return Windows("d", x, np.array(y), ("a", "b"), np.array(number), first, first.astype(float))


def literal(w, samples):
    """Window by window: is its last sample among the first labelled ones of its class's recordings?"""
    kept = []
    for i in range(len(w)):
        before = 0
        for name in np.unique(w.recording[(w.y == w.y[i]) & (w.recording < w.recording[i])]):
            own = w.first[w.recording == name]
            before += own[-1] + LENGTH - own[0]
        begin = w.first[w.recording == w.recording[i]][0]
        if before + w.first[i] + LENGTH - begin <= samples:
            kept.append(i)
    return kept


@pytest.mark.parametrize("samples", range(1, 40))
def test_windows_lie_in_the_first_labelled_samples_of_each_class(samples):
    w = windows((0, 10), (1, 30), (0, 5), (0, 12), (1, 8))
    found = keep_labelled(w, samples)
    assert found.first.tolist() == w.first[literal(w, samples)].tolist()


def test_zero_is_all():
    w = windows((0, 10), (1, 30))
    assert keep_labelled(w, 0) is w


def trace(path: Path) -> Path:
    """Two classes, three recordings of 10 s each, at 10 Hz."""
    lines = ["time,ax,activity"]
    for k in range(6):
        lines += [f"{20 * k + i / 10:.1f},{k + i / 100:.3f},{'ab'[k % 2]}" for i in range(100)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_training_and_validation_have_few_labels_and_the_test_part_has_all(tmp_path):
    given = dict(trace=trace(tmp_path / "d.csv"), window=10, stride=10, held_out=0.3, validation=0.3)
    whole, few = samples_of(Cut(**given)), samples_of(Cut(**given, labelled=2.0))
    assert len(whole.train) == len(whole.validation) == 20 and len(few.held_out) == len(whole.held_out) == 20
    assert len(few.train) == len(few.validation) == 2 * 2
    assert sorted({*few.train.labels}) == ["a", "b"]


def test_too_few_labels_for_a_window_are_an_error(tmp_path):
    with pytest.raises(UsageError, match="d: 5 labelled samples of each class hold no window of 10"):
        samples_of(Cut(trace=trace(tmp_path / "d.csv"), window=10, labelled=0.5))
    with pytest.raises(UsageError, match="labelled = -1"):
        Cut(trace=Path("d.csv"), labelled=-1.0)
