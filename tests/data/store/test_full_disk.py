"""A disk that is full or read-only: erasing works all the same where it can, and errors name the store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.data.recording import StoreLimits
from edge_sdk.data.store.index import StoreUnusable
from edge_sdk.data.store.sample_store import SampleStore
from tests.data.store_making import BEGAN, SHAPE, make_windows

pytestmark = pytest.mark.usefixtures("closed_after")
SMALL = StoreLimits(megabytes=2)


def mount(folder: Path, *words: str) -> bool:
    return not subprocess.run(["mount", *words, str(folder)], capture_output=True, check=False).returncode


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount(folder, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(disk: Path) -> None:
    """Leave no page of the disk."""
    with (disk / "filling").open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


def make_store(disk: Path) -> SampleStore:
    store = SampleStore(disk / "samples", SHAPE, SMALL)
    for first in range(0, 600, 50):
        store.add(make_windows(range(first, first + 50)))
    store.label("walk", BEGAN + 100, BEGAN + 200)
    return store


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("part", [False, True])
def test_what_is_erased_on_a_full_disk_is_gone(disk: Path, part: bool, reopened: bool) -> None:
    store = make_store(disk)
    if reopened:
        store.close()
    fill(disk)
    if reopened:
        store = SampleStore(disk / "samples", SHAPE, SMALL)
    count = sum(store.count().values())
    gone = store.forget(BEGAN + 50, BEGAN + 449.95) if part else store.forget()
    assert gone == (400 if part else 600) and sum(store.count().values()) == count - gone
    assert store.count().get("walk", 0) == 0
    marks = [make_windows(range(at, at + 1)).x[0].tobytes() for at in range(50, 450)]
    data = b"".join(file.read_bytes() for file in (disk / "samples").iterdir())
    assert not [mark for mark in marks if mark in data]
    salt, kept = store.salt, store.count()
    store.close()
    again = SampleStore(disk / "samples", SHAPE, SMALL)
    assert again.salt == salt and again.count() == kept


def test_a_full_disk_is_named_and_nothing_is_half_done(disk: Path) -> None:
    store = make_store(disk)
    fill(disk)
    before = store.count()
    with pytest.raises(StoreUnusable, match=rf"{disk}/samples/samples.db: .*full"):
        for first in range(1000, 4000, 50):
            store.add(make_windows(range(first, first + 50)))
    assert store.count()["walk"] == before["walk"]
    os.unlink(disk / "filling")
    store.add(make_windows(range(5000, 5010)))


def test_a_full_disk_is_no_damage(disk: Path) -> None:
    fill(disk)
    with pytest.raises(StoreUnusable, match=r"samples.db: the store of samples cannot be opened"):
        SampleStore(disk / "samples", SHAPE, SMALL)
    assert not [*disk.glob("samples/*damaged*")]


BEGINS = """
import errno, sys
from pathlib import Path
from edge_sdk.data.store.frozen import freeze
from edge_sdk.data.store.frozen_unlabelled import freeze_unlabelled
from edge_sdk.data.store.sample_store import SampleStore
from tests.data.store.test_full_disk import SHAPE, SMALL
disk = Path(sys.argv[1])
store, copy = SampleStore(disk / "samples", SHAPE, SMALL), globals()[sys.argv[2]]
store.unlabelled(1, 1)
with open(disk / "filling", "r+b") as filling:
    filling.truncate((disk / "filling").stat().st_size - 16384)
try:
    copy(store, disk / "samples", "run", lambda x: x)
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    print("no room")
"""
"""The beginning of a run where four pages are left, which would be enough for the first bytes of a copy."""


@pytest.mark.parametrize("copy", ["freeze", "freeze_unlabelled"])
def test_a_run_that_begins_on_a_full_disk_ends_no_process(disk: Path, copy: str) -> None:
    """Writing samples through a memory map killed the application with SIGBUS, and again at each start."""
    store = SampleStore(disk / "samples", SHAPE, SMALL)
    for first in range(0, 1200, 50):
        store.add(make_windows(range(first, first + 50)))
    store.label("walk", BEGAN, BEGAN + 600)
    fill(disk)
    done = subprocess.run([sys.executable, "-c", BEGINS, str(disk), copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "no room\n"), done.stderr
    assert not [*disk.glob("samples/run*")]


def test_a_read_only_disk_is_named(disk: Path) -> None:
    make_store(disk).close()
    assert mount(disk, "-o", "remount,ro") or pytest.skip("the disk cannot be made read-only here")
    with pytest.raises(StoreUnusable, match=rf"{disk}/samples/samples.db: the store of samples cannot be opened"):
        SampleStore(disk / "samples", SHAPE, SMALL).forget()
