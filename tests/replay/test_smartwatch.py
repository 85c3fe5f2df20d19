"""The smartwatch recordings: read without running what a pickle names, and written as traces."""

import hashlib
import importlib.util
import io
import os
import pickle

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.windows import cut_windows
from edge_sdk.errors import UsageError
from edge_sdk.replay.traces import smartwatch
from edge_sdk.replay.traces.smartwatch import read_watch, recordings_of, unpickled, write_watch_traces

RNG = np.random.default_rng(0)
NAMES = list(smartwatch.EXERCISES)


def small():
    """As the published file, with two wrists and short recordings."""
    count = 2 * len(NAMES)
    return {
        "X": [RNG.normal(size=(60 + i, 6)) for i in range(count)],
        "X_labels": list(smartwatch.CHANNELS),
        "y": np.tile(np.arange(len(NAMES)), 2)[::-1].copy(),
        "y_labels": NAMES,
        "subject": np.full(count, 4),
        "side": np.repeat([0.0, 1.0], len(NAMES)),
    }


def saved(data, protocol=2):
    """The bytes of `np.save(..., allow_pickle=True)`, with the pickle's protocol."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": ()})
    boxed = np.empty((), object)
    boxed[()] = data
    return file.getvalue() + pickle.dumps(boxed, protocol)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A small file in place of the published one."""
    path = tmp_path / "watch.npy"
    path.write_bytes(saved(small()))
    monkeypatch.setattr(smartwatch, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_are_read_as_numpy_reads_them(tmp_path, protocol):
    data = small() | {"matrix": np.asfortranarray(RNG.normal(size=(3, 4))), "big": np.arange(3, dtype=">i8")}
    found = unpickled(saved(data, protocol))
    assert found.keys() == data.keys()
    np.testing.assert_array_equal(found["X"][3], data["X"][3])
    for name in ("y", "subject", "side", "matrix", "big"):
        np.testing.assert_array_equal(found[name], data[name])


class Hostile:
    """What a pickle runs when it is loaded."""

    def __init__(self, what, *arguments):
        self.what, self.arguments = what, arguments

    def __reduce__(self):
        return self.what, self.arguments


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "what", [os.system, eval, getattr, importlib.util.find_spec, np.load, np.ctypeslib.load_library, pickle.loads]
)
def test_a_hostile_pickle_is_refused_and_nothing_of_it_runs(tmp_path, what, protocol):
    mark = tmp_path / "ran"
    hostile = Hostile(what, f"touch {mark}")
    with pytest.raises(pickle.UnpicklingError, match="only arrays of numbers"):
        unpickled(saved({**small(), "extra": hostile}, protocol))
    assert not mark.exists()


def test_a_hostile_file_is_refused_before_it_is_unpickled(tmp_path, monkeypatch):
    path = tmp_path / "watch.npy"
    path.write_bytes(saved({"X": Hostile(os.system, f"touch {tmp_path / 'ran'}")}))
    monkeypatch.setattr(smartwatch, "unpickled", lambda raw: pytest.fail("it was unpickled"))
    with pytest.raises(UsageError, match="SHA-256"):
        read_watch(path)


@pytest.mark.parametrize("kind", ["U3", "f4", "O"])
def test_arrays_of_other_kinds_are_refused(kind):
    with pytest.raises(ValueError, match="only"):
        unpickled(saved({"X": np.zeros(2, kind)}))


@pytest.mark.parametrize(
    "change",
    [
        dict(X_labels=["ax"]),
        dict(y_labels=["SIT"] * 7),
        dict(y=np.zeros(3, np.int64)),
        dict(side=np.full(14, 2.0)),
        dict(subject=np.zeros(14, np.int64)),
        dict(X=[np.zeros((5, 3))] * 14),
        dict(X=[np.full((5, 6), np.nan)] * 14),
    ],
)
def test_what_is_not_as_published_is_refused(change):
    with pytest.raises(ValueError):
        recordings_of({**small(), **change})


def test_one_wrist_is_one_trace(published, tmp_path):
    made = write_watch_traces(tmp_path / "traces", published)
    assert [one.device for one in made] == ["patient-04-left", "patient-04-right"]
    left, right = load_folder(tmp_path / "traces")
    assert left.channels == smartwatch.CHANNELS and left.classes == tuple(sorted(smartwatch.EXERCISES.values()))
    assert abs(left.rate_hz - 50) < 1e-6
    data = read_watch(published)
    first = next(i for i in range(len(data.y)) if data.side[i] == 1 and data.y[i] == 0)
    np.testing.assert_allclose(right.values[: len(data.x[first])], data.x[first], atol=1e-6)
    windows = cut_windows(left, 50, 50)
    assert len(np.unique(windows.recording)) == len(NAMES)


def test_traces_are_not_written_over_others(published, tmp_path):
    (tmp_path / "own.csv").write_text("precious")
    with pytest.raises(UsageError, match="not empty"):
        write_watch_traces(tmp_path, published)


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setattr(smartwatch, "PACKAGE", "no-such-package-here")
    with pytest.raises(UsageError, match="pip install --no-deps"):
        smartwatch.installed()


def test_the_command(published, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(smartwatch, "installed", lambda: published)
    assert main(["traces", "watch", str(tmp_path / "traces")]) == 0
    assert "2 recorded traces" in capsys.readouterr().out
    assert len(list((tmp_path / "traces").glob("*.csv"))) == 2


@pytest.mark.skipif(importlib.util.find_spec("seglearn") is None, reason="the package with the recordings is not here")
def test_the_published_recordings(tmp_path):
    data = read_watch(smartwatch.installed())
    assert len(data.x) == 140 and sorted({*data.subject.tolist()}) == list(range(1, 11))
    assert sum(len(one) for one in data.x) == 244_102
    made = write_watch_traces(tmp_path / "traces")
    assert len(made) == 20 and sum(one.samples for one in made) == 244_102
    assert all(set(one.activities.values()) == {1} and len(one.activities) == 7 for one in made)
