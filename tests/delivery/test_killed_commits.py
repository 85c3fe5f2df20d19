"""A process that is killed in the middle of a write to its store has lost nothing, and is not told that it has."""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edge_sdk.delivery.storage.database import DiskError
from edge_sdk.delivery.storage.store import Store
from tests.delivery.fleet import ROOT
from tests.delivery.killed_commits import SIZES
from tests.faults.machine import Machine, missing


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, int]]:
    """What was found after a kill in each write."""
    if why := missing():
        pytest.skip(why)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disk takes its time for thousands of syncs
    with tempfile.TemporaryDirectory(dir=memory) as disk:
        environment = os.environ | Machine(Path(disk), tmp_path_factory.mktemp("controls")).environment()
        command = [sys.executable, "-m", "tests.delivery.killed_commits", disk]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_write_of_each_commit_was_one_in_which_the_process_was_killed(killed: list[dict[str, int]]) -> None:
    assert len(killed) > 100
    assert {row["tried"] for row in killed} == {*range(len(SIZES) + 1)}
    assert sum(row["again"] for row in killed) > 300


def test_a_commit_that_was_made_is_there_and_no_other_than_the_one_that_was_being_made(
    killed: list[dict[str, int]],
) -> None:
    assert [row for row in killed if row["found"] not in (row["done"], row["tried"])] == []


def test_a_damaged_last_commit_is_found_again_where_the_first_to_find_it_could_not_note_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, log = Store(tmp_path / "a.db"), tmp_path / "a.db-wal"
    for text in (b"one", b"two"):
        with store.transaction():
            store.save_record(text)
    kept = log.read_bytes()
    store.drop()
    log.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))  # SQLite empties the log when a process leaves it properly

    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as failing, pytest.raises(DiskError):
        failing.setattr("edge_sdk.delivery.storage.database.choose_settings", full)
        Store(tmp_path / "a.db")
    again = Store(tmp_path / "a.db")
    assert again.rolled_back
    again.close()


def test_half_a_commit_is_not_taken_for_lost_ones(killed: list[dict[str, int]]) -> None:
    assert [row for row in killed if row["lost"]] == []
