"""A backup of a service that works, and what is put back from it: on the same kind of database or the other one."""

from __future__ import annotations

import dataclasses
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.administration.accounts import SESSION, TOKEN
from aggregator.service.application.service import FleetService
from aggregator.service.database import audit
from aggregator.service.runs.runs import Wanted, add_run, find_run
from aggregator.service.server import backup
from aggregator.service.server.backup import ROWS, back_up, restore
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.tools.backups.backup import back_up as back_up_node
from edge_sdk.tools.backups.backup import list_files
from tests.aggregator.service.conftest import CLASSES, PASSWORD
from tests.aggregator.service.console.test_pages import fill


def put_store(service: Any, id: str) -> int:
    """The store of a run's aggregator, with a record in it; returns its epoch."""
    directory = NodeDirectory(Path(service.file.directory) / "runs" / id, "normal")
    store = directory.open_store(Run(id=id, method="fedavg"))
    with store.transaction():
        store.save_record(b"record")
    epoch = int(store.epoch)
    store.close()
    directory.close()
    return epoch


def test_a_service_is_backed_up_while_it_works_and_put_back(service: Any, tmp_path: Path) -> None:
    id = fill(service)
    epoch = put_store(service, "mine")
    service.people.add("ada", "operator", PASSWORD, "test")
    session, _ = service.people.sign_in("ada", PASSWORD)
    token = service.people.make_key(TOKEN, "robot", "viewer", 60.0, "test")
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.005):
            add_run(service.database, Wanted(), CLASSES, "busy")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        back_up(service.file, tmp_path / "backup", "test")
    finally:
        done.set()
        worker.join()
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    there = dataclasses.replace(service.file, directory=tmp_path / "again", database="")
    restore(there, tmp_path / "backup", "test")
    back = FleetService(there)
    try:
        assert find_run(back.database, id)["wanted"] == find_run(service.database, id)["wanted"]
        assert audit.find_break(back.database)[0] is None
        assert audit.list_latest(back.database, 1)[0]["action"] == "service.restore"
        assert back.registry.path_of().read_bytes() == service.registry.path_of().read_bytes()
        assert back.people.find_key(token, TOKEN) and not back.people.find_key(session, SESSION)
        assert back.people.sign_in("ada", PASSWORD)
        back.supervisor.lines_of(id).read_on()
        assert back.supervisor.lines_of(id).round == 5
        assert not (there.directory / ROWS).exists() and put_store(back, "mine") not in (0, epoch)
    finally:
        back.database.close()
        back.lock.close()


def test_what_is_there_is_never_written_over(service: Any, tmp_path: Path, database_url: str) -> None:
    back_up(service.file, tmp_path / "backup", "test")
    with pytest.raises(UsageError, match="is there already"):
        back_up(service.file, tmp_path / "backup", "test")
    with pytest.raises(UsageError, match="is not empty"):
        restore(service.file, tmp_path / "backup", "test")
    if database_url:
        elsewhere = dataclasses.replace(service.file, directory=tmp_path / "elsewhere")
        with pytest.raises(UsageError, match="the database has rows in"):
            restore(elsewhere, tmp_path / "backup", "test")
        assert not elsewhere.directory.exists()


def test_what_is_no_backup_of_a_service_is_put_nowhere(service: Any, tmp_path: Path) -> None:
    put_store(service, "mine")
    back_up_node(Path(service.file.directory) / "runs" / "mine", tmp_path / "node")
    whole = back_up(service.file, tmp_path / "backup", "test")
    content = (tmp_path / "backup").read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) * 2 // 3])
    (tmp_path / "newer").write_bytes(content.replace(b'{"schema": ', b'{"schema":9', 1))
    there = dataclasses.replace(service.file, directory=tmp_path / "again", database="")
    for name, says in (
        ("node", "is a backup of a node"),
        ("cut", "cut off|cannot be read|damaged"),
        ("newer", "damaged"),
    ):
        with pytest.raises(UsageError, match=says):
            restore(there, tmp_path / name, "test")
        assert not there.directory.exists()
    assert ROWS in {member.path for member in whole.members}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_file_that_goes_meanwhile_keeps_no_backup_from_being_made(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle that is just being uploaded has another name a moment later."""
    gone = Path(service.file.directory) / "models" / "uploading"
    monkeypatch.setattr(backup, "list_files", lambda folder: [gone, *list_files(folder)])
    assert back_up(service.file, tmp_path / "backup", "test").members


def test_a_backup_that_cannot_be_written_says_which_and_why(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "No such file or directory" of a hidden file that nobody had named, and "No space left" of nothing."""
    opened: list[Any] = []
    make = backup.database_in
    monkeypatch.setattr(backup, "database_in", lambda *about: opened.append(make(*about)) or opened[-1])
    with pytest.raises(UsageError, match=f"^{tmp_path}/no/backup: there is no folder {tmp_path}/no$"):
        back_up(service.file, tmp_path / "no" / "backup", "test")

    def fill_up(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "write_archive", fill_up)
    with pytest.raises(UsageError, match=f"^{tmp_path}/backup: the disk is full: no backup was made$"):
        back_up(service.file, tmp_path / "backup", "test")
    assert not (tmp_path / "backup").exists()
    assert opened and not any(one.engine.pool.checkedin() for one in opened), "a connection is left open"
