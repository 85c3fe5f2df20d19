"""Files that change in one piece."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_sdk.atomic import replace_file, sweep_aside, sync_to_disk, write_bytes, write_text
from edge_sdk.live.membership.roster import Roster
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.live.presence.labels import LabelSum
from edge_sdk.nodes.policy.approvals import write_table


def test_a_reader_finds_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    write_text(path, "old")
    with replace_file(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "half"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    write_text(path, "old")
    with pytest.raises(OSError, match="full"), replace_file(path) as file:
        file.write(b"half")
        raise OSError("disk is full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_trip_each_other_up(tmp_path: Path) -> None:
    """Two processes that were started in one directory do so."""
    path = tmp_path / "ledger.json"
    with replace_file(path) as first, replace_file(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first", "the one that ended last"
    assert list(tmp_path.iterdir()) == [path]


def test_a_body_is_on_the_disk_before_a_row_names_it(tmp_path: Path) -> None:
    write_bytes(tmp_path / "7.out", memoryview(b"body"))
    sync_to_disk(tmp_path / "7.out", tmp_path)
    assert (tmp_path / "7.out").read_bytes() == b"body"


def take_roster(folder: Path) -> None:
    Roster("north", folder).take(b'{"version": 1, "hospital": "north", "number": 1, "devices": ["a"]}')


@pytest.mark.parametrize(
    "write",
    [take_roster, lambda folder: LabelSum(folder).note("a", 20), lambda folder: write_table(folder / "table", {})],
    ids=["roster", "labels", "approvals"],
)
def test_files_without_which_no_node_starts_survive_a_power_cut(
    tmp_path: Path, write: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On file systems that write late half of one was left, or none of it, and a person had to come."""
    synced, sync = set[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: [sync(number), synced.add(os.fstat(number).st_ino)])
    write(tmp_path)
    (file,) = tmp_path.iterdir()
    assert synced == {file.stat().st_ino, tmp_path.stat().st_ino}


def test_what_a_killed_writer_has_left_is_swept_away(tmp_path: Path) -> None:
    """Each kill while a model is written once left a copy of it for ever."""
    for name in ("model.npz.0123abcd.new", "my.new", "model.npz.new", "model.npz.0123abcd.newer", "0123abcd.new"):
        (tmp_path / name).write_bytes(b"half")
    with pytest.raises(RuntimeError), replace_file(tmp_path / "model.npz"):
        sweep_aside(tmp_path)
        raise RuntimeError
    NodeDirectory(tmp_path, "normal").close()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"my.new", "model.npz.new", "model.npz.0123abcd.newer", "0123abcd.new", "lock"}
