"""The sample store: bounds, classes that survive, recordings that stay held out, erasure, damage, encryption."""

from __future__ import annotations

import logging
import os
from dataclasses import fields, replace
from errno import EPERM
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.live.windower import LiveWindows
from edge_sdk.data.recording import StoreLimits
from edge_sdk.data.store.cipher import KEY_BYTES, DamagedWindow, PlainWindows, SealedWindows, read_key
from edge_sdk.data.store.frozen import freeze
from edge_sdk.data.store.index import StoreUnusable
from edge_sdk.data.store.sample_store import SampleStore
from edge_sdk.errors import UsageError
from tests.data.store_making import BEGAN, SHAPE, make_windows, numbers_in

pytestmark = pytest.mark.usefixtures("closed_after")

SMALL = StoreLimits(megabytes=2)


def as_it_is(x: np.ndarray) -> np.ndarray:
    return x


@pytest.fixture
def store(tmp_path: Path) -> SampleStore:
    return SampleStore(tmp_path / "samples", SHAPE, SMALL)


def test_labels_come_late_are_corrected_and_withdrawn(store: SampleStore) -> None:
    store.add(make_windows(range(100)))
    assert store.count() == {"": 100}
    assert store.label("walk", BEGAN + 10, BEGAN + 20) == 10
    assert numbers_in(store) == [*range(10, 20)]
    assert store.label("sit", BEGAN + 15.5, BEGAN + 30) == 15  # 15 lies in both, so in none
    assert store.count() == {"": 81, "walk": 5, "sit": 14}
    assert store.label(None, BEGAN, BEGAN + 12) == 2
    store.add(make_windows(range(100, 110)))
    store.label("walk", BEGAN + 105, BEGAN + 1000)
    store.add(make_windows(range(110, 120)))  # said before they came
    assert store.count()["walk"] == 3 + 5 + 10


def test_what_returned_is_there_after_opening_again(store: SampleStore, tmp_path: Path) -> None:
    store.add(make_windows(range(60)))
    store.label("walk", BEGAN + 10, BEGAN + 20)
    before = store.labelled()
    again = SampleStore(tmp_path / "samples", SHAPE, SMALL)  # the first one is not closed, as after a kill
    after = again.labelled()
    assert again.count() == store.count() and after.labels == before.labels
    np.testing.assert_array_equal(after.held, before.held)
    again.add(make_windows(range(60, 70)))
    assert again.label("walk", BEGAN + 60, BEGAN + 70) == 10


def test_rare_classes_survive_and_bytes_are_bounded(store: SampleStore, tmp_path: Path) -> None:
    names, most = ("sleep", "walk", "fall"), store.most
    for day in range(12):
        first = day * 1000
        store.add(make_windows(range(first, first + 1000)))
        store.label("sleep", BEGAN + first, BEGAN + first + 900)
        store.label("walk", BEGAN + first + 900, BEGAN + first + 930)
        store.label("fall", BEGAN + first + 990, BEGAN + first + 995)
    counts = store.count()
    assert sum(counts[name] for name in names) <= most and counts[""] <= most
    assert counts["fall"] == 60 and counts["walk"] == 12 * 30
    assert sum(p.stat().st_size for p in (tmp_path / "samples").iterdir()) <= SMALL.megabytes * 1e6


def test_no_more_windows_go_than_have_to(store: SampleStore) -> None:
    store.most = 5
    store.label("walk", BEGAN, BEGAN + 3)
    store.label("sit", BEGAN + 3, BEGAN + 6)
    store.add(make_windows(range(6)))
    assert sorted(store.count().values()) == [2, 3]


def test_a_store_has_room_for_one_window_at_least(tmp_path: Path) -> None:
    assert SampleStore(tmp_path, (10, 1_000_000), SMALL).most == 1


def test_what_stays_of_a_class_is_a_uniform_sample_of_it(tmp_path: Path) -> None:
    """Each window's chance to stay is the same, whenever it came: the mean number is that of all."""
    means = []
    for seed in range(6):
        store = SampleStore(tmp_path / str(seed), SHAPE, SMALL)
        store.most = 100
        for first in range(0, 2000, 100):
            store.add(make_windows(range(first, first + 100)))
            store.label("sleep", BEGAN + first, BEGAN + first + 100)
        assert store.count()["sleep"] == 100
        means.append(np.mean(numbers_in(store)))
    assert abs(np.mean(means) - 1000) < 4 * 577 / np.sqrt(600)  # four standard errors


def test_windows_without_a_label_go_when_they_are_the_oldest(store: SampleStore) -> None:
    store.most = 50
    store.label("walk", BEGAN, BEGAN + 10)
    store.add(make_windows(range(200)))
    assert store.count() == {"walk": 10, "": 50}
    assert store.label("sit", BEGAN + 100, BEGAN + 160) == 10  # 150 to 159 are there


def test_windows_of_long_ago_go(store: SampleStore) -> None:
    store.add(make_windows(range(100)))
    store.label("walk", BEGAN, BEGAN + 100)
    store.add(make_windows(range(1), began=BEGAN + 80 * 365 * 86400), now=BEGAN + 200)  # by a clock that is wrong
    store.add(make_windows(range(100, 101)), now=BEGAN + 80 * 365 * 86400)  # a recording that is played back
    assert len(numbers_in(store)) == 100
    store.add(make_windows(range(1), began=BEGAN + 364 * 86400 + 50), now=BEGAN + 80 * 365 * 86400)
    assert min(numbers_in(store)) == 0
    store.add(make_windows(range(1), began=BEGAN + 365 * 86400 + 50), now=BEGAN + 80 * 365 * 86400)
    assert min(numbers_in(store)) == 50 and store.count() == {"walk": 50, "": 4}


def test_a_clock_that_was_a_year_ahead_for_a_while_has_erased_nothing(
    store: SampleStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One window by a wrong clock, as after a start before the time server was reached, erased all labels for good."""
    year, day = 365 * 86400, 86400
    store.add(make_windows(range(100)), now=BEGAN + 100)
    store.label("walk", BEGAN, BEGAN + 100)
    for wrong in (0, 60, day - 200):
        store = SampleStore(tmp_path / "samples", SHAPE, SMALL)  # the device starts again in between
        store.add(make_windows(range(1), began=BEGAN + year + day + wrong), now=BEGAN + year + day + wrong + 1)
        assert store.count()["walk"] == 100
    assert caplog.text.count("the clock went on by 366 days at once; 100 windows are too old by it") == 1
    store.add(make_windows(range(200, 201)), now=BEGAN + 201)  # it was set right
    store.add(make_windows(range(1), began=BEGAN + year + 3 * day), now=BEGAN + year + 3 * day + 1)  # wrong once more
    assert store.count()["walk"] == 100
    store.add(make_windows(range(1), began=BEGAN + year + 4 * day + 1), now=BEGAN + year + 4 * day + 2)
    assert "walk" not in store.count(), "it was right: the device had been off"


def test_a_recording_is_held_out_for_ever(tmp_path: Path) -> None:
    store = SampleStore(tmp_path, SHAPE, SMALL)
    store.add(make_windows(range(1500), recording=5))
    store.label("walk", BEGAN, BEGAN + 1500)
    found = store.labelled()
    held = {int(r) for r in found.recording[found.held]}
    assert not held & {int(r) for r in found.recording[~found.held]}
    assert 0.14 < len(held) / 300 < 0.36  # more than four standard deviations
    salt = store.salt
    store.close()
    again = SampleStore(tmp_path, SHAPE, SMALL)
    again.add(make_windows(range(1500, 1510), recording=5000))  # recording 0 goes on
    again.label("walk", BEGAN + 1500, BEGAN + 1510)
    assert again.salt == salt and (0 in held) == bool(again.labelled().held[-1])
    again.close()
    with pytest.raises(UsageError, match=r"made with held_out = 0.25, not 0.5"):
        SampleStore(tmp_path, SHAPE, StoreLimits(2, held_out=0.5))
    with pytest.raises(UsageError, match=r"made with shape = \(2, 8\)"):
        SampleStore(tmp_path, (3, 8), SMALL)


def test_what_is_forgotten_is_nowhere_on_the_disk(tmp_path: Path) -> None:
    store = SampleStore(tmp_path, SHAPE, SMALL)
    windows = make_windows(range(100))
    windows.x[40:60] = 123456.75
    mark = windows.x[40].tobytes()
    store.add(windows)
    store.label("secret meeting", BEGAN + 40, BEGAN + 59.95)
    store.label("walk", BEGAN, BEGAN + 40)
    frozen = freeze(store, tmp_path, "r", as_it_is)
    assert on_disk(tmp_path, mark) and on_disk(tmp_path, b"secret meeting")
    assert store.forget(BEGAN + 39.95, BEGAN + 59.95) == 20 and frozen.forget(BEGAN + 39.95, BEGAN + 59.95) == 20
    assert not on_disk(tmp_path, mark) and not on_disk(tmp_path / "samples.db", b"secret meeting")
    assert not (frozen.x == 123456.75).any() and len(frozen.x) == 60
    assert store.count() == {"": 40, "walk": 40}
    assert store.forget() == 80 and store.count() == {} and store.labelled().labels == ()


def on_disk(path: Path, mark: bytes) -> bool:
    return any(mark in p.read_bytes() for p in ([path] if path.is_file() else path.iterdir()))


def test_a_run_keeps_its_samples_while_the_store_changes(store: SampleStore, tmp_path: Path) -> None:
    store.salt = bytes(32)  # of ten recordings a drawn one would hold out none in one store of eighteen
    store.add(make_windows(range(100), recording=5))
    store.label("walk", BEGAN, BEGAN + 50)
    first = freeze(store, tmp_path, "r", as_it_is)
    assert isinstance(first.x, np.memmap) and len(first.train) + len(first.held_out) == 50 and len(first.held_out)
    assert {*first.train.labels} == {"walk"}
    store.label("sit", BEGAN, BEGAN + 100)
    again = freeze(store, tmp_path, "r", as_it_is)
    np.testing.assert_array_equal(again.x, first.x)
    assert again.labels == first.labels and again.trained == first.trained
    assert len(freeze(store, tmp_path, "r2", lambda x: x / 2).x) == 100
    assert not (tmp_path / "r.npy").exists() and freeze(store, tmp_path, "r2", as_it_is).x.max() == 49.5


@pytest.mark.parametrize("cut", [4096, 9000, 30000])
def test_a_file_that_was_cut_short_is_put_aside(tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    store = SampleStore(tmp_path, SHAPE, SMALL)
    store.add(make_windows(range(400)))
    store.close()
    file = tmp_path / "samples.db"
    file.write_bytes(file.read_bytes()[:-cut])
    with caplog.at_level(logging.ERROR):
        again = SampleStore(tmp_path, SHAPE, SMALL)
    again.add(make_windows(range(10)))
    assert again.count()[""] in (10, 410) and (again.count()[""] == 10) == ("samples.db.damaged" in caplog.text)


def test_a_log_whose_tail_is_torn_costs_its_last_transactions(tmp_path: Path) -> None:
    store = SampleStore(tmp_path, SHAPE, SMALL)
    for first in range(0, 100, 10):
        store.add(make_windows(range(first, first + 10)))
    log = tmp_path / "samples.db-wal"
    torn = tmp_path / "torn"
    torn.mkdir()
    for path in (tmp_path / "samples.db", log):
        data = path.read_bytes()
        (torn / path.name).write_bytes(data if path != log else data[: -len(data) // 3])
    again = SampleStore(torn, SHAPE, SMALL)
    assert 0 < again.count()[""] < 100 and again.count()[""] % 10 == 0


def test_a_damaged_window_is_left_out_and_told(store: SampleStore, tmp_path: Path) -> None:
    store.add(make_windows(range(10)))
    store.label("walk", BEGAN, BEGAN + 10)
    store.index.run("UPDATE signals SET x = zeroblob(68) WHERE id = 3")
    frozen = freeze(store, tmp_path, "r", as_it_is)
    assert len(frozen.x) == 9 and store.count() == {"walk": 9} and not len(frozen.recording)


def test_a_damaged_window_that_another_process_has_labelled_is_deleted(store: SampleStore, tmp_path: Path) -> None:
    """Once the count of a label that this process knew nothing of was looked for, and not found."""
    store.add(make_windows(range(10)))
    other = SampleStore(tmp_path / "samples", SHAPE, SMALL)
    other.label("walk", BEGAN, BEGAN + 5)
    other.index.run("UPDATE signals SET x = zeroblob(68) WHERE id = 3")
    assert store.read(3) is None and store.read(4) is not None and store.count() == {"walk": 4, "": 5}
    other.close()


@pytest.mark.parametrize("what", ["add", "label", "read"])
def test_a_disk_that_takes_nothing_any_more_is_named(store: SampleStore, what: str) -> None:
    """As one that became read-only; what is on it is known as before."""
    store.add(make_windows(range(10)))
    store.index.run("UPDATE signals SET x = zeroblob(68) WHERE id = 3")
    store.index.run("PRAGMA query_only=ON")
    asked = {"add": (make_windows(range(10, 12)),), "label": ("walk", BEGAN, BEGAN + 5), "read": (3,)}
    with pytest.raises(StoreUnusable, match=r"samples\.db: "):
        getattr(store, what)(*asked[what])
    assert store.count() == {"": 10} and store.read(4) is not None


# Encryption -----------------------------------------------------------------------------------------------------
def test_with_a_key_the_signal_is_nowhere_on_the_disk(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    directory = tmp_path / "store"
    store = SampleStore(directory, SHAPE, SMALL, read_key(tmp_path / "key"))
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    windows = make_windows(range(20))
    store.add(windows)
    store.label("walk", BEGAN, BEGAN + 20)
    frozen = freeze(store, directory, "r", as_it_is)
    assert not isinstance(frozen.x, np.memmap) and not on_disk(directory, windows.x[7].tobytes())
    assert sorted(frozen.x[:, 0, 0]) == [*range(20)]
    store.close()
    again = SampleStore(directory, SHAPE, SMALL, read_key(tmp_path / "key"))
    assert numbers_in(again) == [*range(20)]
    again.close()
    with pytest.raises(UsageError, match="sealed with another key"):
        SampleStore(directory, SHAPE, SMALL, SealedWindows(b"k" * KEY_BYTES))
    with pytest.raises(UsageError, match="made with cipher = chacha20-poly1305, not plain"):
        SampleStore(directory, SHAPE, SMALL)


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    (tmp_path / "key").write_bytes(b"k" * KEY_BYTES)
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        read_key(tmp_path / "key")
    with pytest.raises(UsageError, match="5 bytes, expected 32"):
        read_key(b"short")


def test_a_key_that_was_being_made_when_the_process_died_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once an empty file was left, which was refused for ever."""
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")

    def die(*of: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr("os.urandom", die)
        with pytest.raises(KeyboardInterrupt):
            read_key(tmp_path / "key")
    sealed = read_key(tmp_path / "key").seal(b"x", b"")
    assert read_key(tmp_path / "key").open(sealed, b"") == b"x" and os.listdir(tmp_path) == ["key"]


def test_a_key_is_made_on_a_disk_that_knows_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As FAT and exFAT, of which many cards are."""
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")

    def refuse(*of: object) -> None:
        raise PermissionError(EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    sealed = read_key(tmp_path / "key").seal(b"x", b"")
    assert read_key(tmp_path / "key").open(sealed, b"") == b"x" and os.listdir(tmp_path) == ["key"]


def test_every_changed_byte_is_found() -> None:
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    for cipher in (PlainWindows(), SealedWindows(b"k" * KEY_BYTES)):
        sealed = cipher.seal(b"signal", b"about")
        assert cipher.open(sealed, b"about") == b"signal"
        for at in range(len(sealed)):
            with pytest.raises(DamagedWindow):
                cipher.open(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], b"about")
        with pytest.raises(DamagedWindow):
            cipher.open(sealed, b"other")


def test_windows_of_a_recording_go_on_after_another_process_has_changed_the_store(
    store: SampleStore, tmp_path: Path
) -> None:
    """What is stored of a recording is no reason to leave the rest of it out, also after all was read anew."""
    windows = make_windows(range(30), recording=100)
    windows = replace(windows, ended=windows.began + 3.9, recording=windows.recording + 7)  # each overlaps others

    def part(first: int, last: int) -> LiveWindows:
        return LiveWindows(*(getattr(windows, f.name)[first:last] for f in fields(windows)))

    assert store.add(part(0, 10)) == 10
    other = SampleStore(tmp_path / "samples", SHAPE, SMALL)
    other.label("walk", BEGAN, BEGAN + 5)
    other.close()
    assert store.add(part(10, 20)) == 10 and store.add(part(20, 30)) == 10
    assert store.add(part(5, 25)) == 0
