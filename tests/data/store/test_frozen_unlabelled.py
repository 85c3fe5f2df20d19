"""The windows without a label of one run: bounded, the same while it lasts, and erased where their owner says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.recording import StoreLimits
from edge_sdk.data.store import frozen_unlabelled
from edge_sdk.data.store.cipher import read_key
from edge_sdk.data.store.frozen import erase_copies, freeze
from edge_sdk.data.store.frozen_unlabelled import freeze_unlabelled
from edge_sdk.data.store.sample_store import SampleStore
from tests.data.store_making import BEGAN, SHAPE, make_windows

pytestmark = pytest.mark.usefixtures("closed_after")

LIMITS = StoreLimits(megabytes=2, held_out=0.0)


def as_it_is(x: np.ndarray) -> np.ndarray:
    return x


def numbers(frozen: frozen_unlabelled.FrozenSamples) -> list[int]:
    return [int(v) for v in frozen.x[:, 0, 0]]


@pytest.fixture
def store(tmp_path: Path) -> SampleStore:
    made = SampleStore(tmp_path, SHAPE, LIMITS)
    made.add(make_windows(range(100), recording=50))
    made.label("walk", BEGAN + 20, BEGAN + 30)
    return made


def test_they_are_those_without_a_label_in_order_of_time(store: SampleStore, tmp_path: Path) -> None:
    freeze(store, tmp_path, "r", as_it_is)
    found = freeze_unlabelled(store, tmp_path, "r", lambda x: x * 2)
    assert isinstance(found.x, np.memmap) and numbers(found) == [2 * k for k in range(100) if not 20 <= k < 30]
    assert found.recording.tolist() == [0] * 40 + [1000] * 50
    store.label("sit", BEGAN, BEGAN + 20)
    store.forget(BEGAN + 40, BEGAN + 50)
    again = freeze_unlabelled(store, tmp_path, "r", as_it_is)  # after a restart, too
    np.testing.assert_array_equal(again.x, found.x)
    assert (again.recording == found.recording).all()
    freeze(store, tmp_path, "r2", as_it_is)
    assert numbers(freeze_unlabelled(store, tmp_path, "r2", as_it_is))[0] == 30
    assert not list(tmp_path.glob("r.*"))


def test_of_too_many_the_latest_are_thinned_evenly(store: SampleStore, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(frozen_unlabelled, "MOST", 10)
    monkeypatch.setattr(frozen_unlabelled, "OF_LATEST", 30)
    assert numbers(freeze_unlabelled(store, tmp_path, "r", as_it_is)) == [*range(72, 100, 3)]


def test_held_out_recordings_are_not_among_them(tmp_path: Path) -> None:
    store = SampleStore(tmp_path, SHAPE, StoreLimits(megabytes=2, held_out=0.99))
    store.salt = bytes(32)
    store.add(make_windows(range(200), recording=20))
    found = freeze_unlabelled(store, tmp_path, "r", as_it_is)
    assert len(found.x) < 100  # most recordings are held out


def test_what_is_erased_is_in_no_file_of_a_run(store: SampleStore, tmp_path: Path) -> None:
    freeze(store, tmp_path, "r", as_it_is)
    found = freeze_unlabelled(store, tmp_path, "r", lambda x: x + 123456.75)
    mark = found.x[45].tobytes()
    assert any(mark in path.read_bytes() for path in tmp_path.iterdir())
    k = int(found.x[45, 0, 0] - 123456.75)
    assert found.forget(BEGAN + k, BEGAN + k + 0.5) == 1 and len(found.x) == 90
    assert not any(mark in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("starts_again", [False, True])
@pytest.mark.parametrize("key", [False, True])
def test_what_took_the_place_of_an_erased_window_is_erased_with_its_own_time(
    tmp_path: Path, starts_again: bool, key: bool
) -> None:
    """It was there under the times of the first one, so a run went on with it, and its file kept it."""
    if key:
        pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    given = (tmp_path / "s", SHAPE, LIMITS, read_key(tmp_path / "key") if key else None)
    store = SampleStore(*given)
    store.add(make_windows(range(20)))
    both = [freeze(store, tmp_path / "s", "r", as_it_is), freeze_unlabelled(store, tmp_path / "s", "r", as_it_is)]
    for k in (7, 6, 5, 8, 9, 19, 18, 0):
        erase_copies(tmp_path / "s", both, BEGAN + k, BEGAN + k + 0.5)
        store.forget(BEGAN + k, BEGAN + k + 0.5)
        if starts_again:
            store.close()
            store = SampleStore(*given)
            both = [
                freeze(store, tmp_path / "s", "r", as_it_is),
                freeze_unlabelled(store, tmp_path / "s", "r", as_it_is),
            ]
        assert k not in {*numbers(both[1])} - {0} and len(both[1].x) == 20
    erase_copies(tmp_path / "s", both, BEGAN, BEGAN + 30)
    assert not both[1].x.any()


def test_what_a_full_disk_cannot_note_is_erased_all_the_same(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = freeze_unlabelled(store, tmp_path, "r", as_it_is)
    monkeypatch.setattr("edge_sdk.data.store.frozen.replace_file", full)
    assert made.forget(BEGAN + 7, BEGAN + 7.5) == 1 and 7 not in numbers(made)
    monkeypatch.undo()
    store.forget(BEGAN + 7, BEGAN + 7.5)
    assert len(freeze_unlabelled(store, tmp_path, "r", as_it_is).x) == 89


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_with_a_key_they_are_in_memory_and_the_same_windows_after_a_restart(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    store = SampleStore(tmp_path / "s", SHAPE, LIMITS, read_key(tmp_path / "key"))
    store.add(make_windows(range(20)))
    first = freeze_unlabelled(store, tmp_path / "s", "r", as_it_is)
    assert not isinstance(first.x, np.memmap) and not list((tmp_path / "s").glob("*.npy"))
    store.add(make_windows(range(20, 30)))
    store.forget(BEGAN + 7, BEGAN + 7.5)
    again = freeze_unlabelled(store, tmp_path / "s", "r", as_it_is)
    assert numbers(again) == [*range(7), 6, *range(8, 20)]  # a run knows windows by their numbers


def test_with_a_key_a_later_window_that_has_the_number_of_an_erased_one_is_none_of_them(tmp_path: Path) -> None:
    """It would be trained on under times of another, by which `forget` would not find it."""
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    key = read_key(tmp_path / "key")
    store = SampleStore(tmp_path / "s", SHAPE, LIMITS, key)
    store.add(make_windows(range(20)))
    freeze_unlabelled(store, tmp_path / "s", "r", as_it_is)
    store.forget(BEGAN + 18, BEGAN + 30)
    store.close()
    store = SampleStore(tmp_path / "s", SHAPE, LIMITS, key)
    store.add(make_windows(range(50, 52)))
    assert numbers(freeze_unlabelled(store, tmp_path / "s", "r", as_it_is)) == [*range(18), 17, 17]


@pytest.mark.parametrize("name", ["run.npz", "run.npy", "run.unlabelled.npz", "run.unlabelled.npy"])
@pytest.mark.parametrize("left", [0, 100, None])
def test_a_copy_that_is_damaged_or_lost_is_made_again(
    store: SampleStore, tmp_path: Path, name: str, left: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a power cut; once the device could not take part any more until the run was over."""

    def frozen() -> list[bytes]:
        both = freeze(store, tmp_path, "run", as_it_is), freeze_unlabelled(store, tmp_path, "run", as_it_is)
        return [np.asarray(one.x).tobytes() + repr(one.labels).encode() for one in both]

    before = frozen()
    assert all(before) and frozen() == before
    file = tmp_path / name
    file.unlink() if left is None else file.write_bytes(file.read_bytes()[:left])
    assert frozen() == before and frozen() == before
    assert (f"{name.removesuffix('.npz').removesuffix('.npy')}" in caplog.text) or (left is None and "npz" in name)
