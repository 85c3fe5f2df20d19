"""`auscult backup` and `auscult restore`: what is in the file, and which files are refused."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.nodes.models import kept_models
from edge_sdk.tools.backups import backup, sealed_file
from edge_sdk.tools.backups.backup import back_up
from edge_sdk.tools.backups.sealed_file import MAGIC, PIECE, SALT, TAG, Opener, Sealer, is_sealed
from tests.nodes.device.test_live_device import BEGAN, make_device, observe_in_pieces

RUN = Run(id="first", method="fedavg")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A device's folder after a run, with a key in a folder of its own, and with what does not belong into a backup."""
    made = tmp_path / "device"
    directory = NodeDirectory(made, "normal")
    store = directory.open_store(RUN)
    with store.transaction():
        store.save_record(b"record" * 1000)
        for _ in range(3):
            store.save_told(b"event")
    store.close()
    directory.close()
    kept_models.save(made / "first.npz", kept_models.KeptModels({"personal": np.ones(3, np.float32)}))
    (made / "papers").mkdir(mode=0o700)
    (made / "papers" / "device.key").write_text("secret")
    (made / "papers" / "device.key").chmod(0o600)
    lines = [{"number": i, "run": run} for run in ("before", "first") for i in range(1, 6)]
    (made / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (made / "x.new").write_text("half")
    (made / "first.damaged").mkdir()
    (made / "first.damaged" / "first.db").write_text("damaged")
    (made / "link").symlink_to("/etc/passwd")
    return made


def test_a_folder_that_is_not_there_is_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", str(folder), str(tmp_path / "no" / "backup")]) == 2
    assert capsys.readouterr().err.endswith(f"{tmp_path}/no/backup: there is no folder {tmp_path}/no\n")


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def backed_up(folder: Path) -> Path:
    file = folder.with_name("backup")
    assert main(["backup", str(folder), str(file)]) == 0
    return file


def test_there_and_back(folder: Path, tmp_path: Path) -> None:
    file, back = backed_up(folder), tmp_path / "deep" / "back"
    assert main(["restore", str(file), str(back)]) == 0
    assert names(back) == {"first.db", "current", "first.npz", "papers/device.key", "metrics.jsonl"}
    for name in ("current", "first.npz", "papers/device.key"):
        assert (back / name).read_bytes() == (folder / name).read_bytes()
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (back, *back.rglob("*"))}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_is_put_back_is_another_disk(folder: Path, tmp_path: Path) -> None:
    back = tmp_path / "back"
    main(["restore", str(backed_up(folder)), str(back)])
    epochs = []
    for place in (folder, back):
        directory = NodeDirectory(place, "normal")
        assert directory.current_run() == RUN
        store = directory.open_store(RUN)
        epochs.append(store.epoch)
        assert store.load_record() == b"record" * 1000 and len(store.load_told()) == 3
        store.close()
        directory.close()
    assert epochs[0] != epochs[1]


def test_what_a_device_has_observed_is_in_the_backup(tmp_path: Path) -> None:
    """Every window and every label was left out without a word, and so were the stores of runs beside a training."""
    with make_device(tmp_path / "device") as device:
        observe_in_pieces(device, 20)
        device.label("walk", BEGAN, BEGAN + 10)
        beside = NodeDirectory(tmp_path / "device" / "lane-1", "normal")
        beside.open_store(RUN).close()
        beside.close()
        file, counted = backed_up(tmp_path / "device"), device.count_windows()  # while it runs
    assert counted["walk"] and main(["restore", str(file), str(tmp_path / "back")]) == 0
    with make_device(tmp_path / "back") as again:
        assert again.count_windows() == counted
    beside = NodeDirectory(tmp_path / "back" / "lane-1", "normal")
    with closing(beside.open_store(RUN)) as store:
        assert store.load_record() is None
    beside.close()


def test_a_run_that_is_called_samples_is_a_run(tmp_path: Path) -> None:
    """The store of samples has the same name, in a folder of its own."""
    made = NodeDirectory(tmp_path / "samples", "normal")
    with closing(made.open_store(Run(id="samples", method="fedavg"))) as store:
        epoch = store.epoch
    made.close()
    main(["restore", str(backed_up(tmp_path / "samples")), str(tmp_path / "back")])
    back = NodeDirectory(tmp_path / "back", "normal")
    with closing(back.open_store(Run(id="samples", method="fedavg"))) as store:
        assert store.epoch != epoch, "another disk"
    back.close()


def test_metrics_are_those_of_the_store(folder: Path, tmp_path: Path) -> None:
    """A line of an event that the copied store does not have would keep the next of its number out of the file."""
    main(["restore", str(backed_up(folder)), str(tmp_path / "back")])
    lines = [json.loads(line) for line in (tmp_path / "back" / "metrics.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines if line["run"] == "first"] == [1, 2, 3]
    assert [line["number"] for line in lines if line["run"] == "before"] == [1, 2, 3, 4, 5], "that run is over"


# What is refused --------------------------------------------------------------------------------------------------
def test_never_over_what_is_there(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, before = backed_up(folder), names(folder)
    assert main(["restore", str(file), str(folder)]) == 2
    assert "not empty" in capsys.readouterr().err and names(folder) == before
    assert main(["backup", str(folder), str(file)]) == 2
    assert "already" in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["restore", str(file), str(empty)]) == 0


def test_only_a_nodes_folder_is_backed_up(tmp_path: Path) -> None:
    assert main(["backup", str(tmp_path), str(tmp_path.with_name("never"))]) == 2
    assert not tmp_path.with_name("never").exists()


def flipped(data: bytes) -> bytes:
    """One bit of the personal model is another one."""
    at = data.index(b"PK\x03\x04") + 200
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [flipped, lambda data: data[: len(data) // 2], lambda data: b"no archive" * 500])
def test_a_damaged_backup_is_refused_as_a_whole(
    folder: Path, tmp_path: Path, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    file = backed_up(folder)
    file.write_bytes(damage(file.read_bytes()))
    assert main(["restore", str(file), str(tmp_path / "back")]) == 2
    assert "backup" in capsys.readouterr().err
    assert not (tmp_path / "back").exists() and not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "a/../../outside", "", "manifest.json/../x"])
def test_a_file_that_would_lie_outside_is_refused(tmp_path: Path, path: str) -> None:
    member = {"path": path, "size": 1, "mode": 0o600, "sha256": "0" * 64}
    assert main(["restore", str(archive(tmp_path, [member], [(path, b"x")])), str(tmp_path / "in" / "back")]) == 2
    assert not (tmp_path / "in" / "outside").exists() and not (tmp_path / "in" / "back").exists()


def test_a_file_that_is_not_named_and_a_link_are_refused(tmp_path: Path) -> None:
    assert main(["restore", str(archive(tmp_path, [], [("extra", b"x")])), str(tmp_path / "back")]) == 2
    file = tmp_path / "link"
    member = {"path": "link", "size": 0, "mode": 0o600, "sha256": "0" * 64}
    with tarfile.open(file, "w") as made:
        add(made, "manifest.json", json.dumps({"format": 1, "node": "n", "made": "", "members": [member]}).encode())
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(info)
    assert main(["restore", str(file), str(tmp_path / "back")]) == 2
    assert not os.path.lexists(tmp_path / "back")


def archive(tmp_path: Path, members: list[dict[str, object]], files: list[tuple[str, bytes]]) -> Path:
    path = tmp_path / "made"
    with tarfile.open(path, "w") as made:
        add(made, "manifest.json", json.dumps({"format": 1, "node": "n", "made": "", "members": members}).encode())
        for name, data in files:
            add(made, name, data)
    return path


def add(made: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    made.addfile(info, io.BytesIO(data))


@pytest.fixture
def phrase(tmp_path: Path) -> Path:
    pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
    made = tmp_path / "phrase"
    made.write_text("correct horse battery\nand more\n")
    return made


def test_a_backup_with_a_passphrase_is_read_by_nobody_else(
    folder: Path, tmp_path: Path, phrase: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "large").write_bytes(os.urandom(3 * PIECE + 5))
    plain, sealed, back = backed_up(folder), tmp_path / "sealed", tmp_path / "back"
    assert "it is not encrypted" in capsys.readouterr().out
    assert main(["backup", str(folder), str(sealed), "--passphrase-file", str(phrase)]) == 0
    assert "it is encrypted" in capsys.readouterr().out
    for words in (b"secret", b"manifest.json", b"device.key"):
        assert words in plain.read_bytes() and words not in sealed.read_bytes()
    assert main(["restore", str(sealed), str(back)]) == 2 and not back.exists()
    assert "is encrypted: name the file with its passphrase" in capsys.readouterr().err
    assert main(["restore", str(sealed), str(back), "--passphrase-file", str(phrase)]) == 0
    assert (back / "papers" / "device.key").read_text() == "secret"
    assert (back / "large").read_bytes() == (folder / "large").read_bytes()
    phrase.write_text("another horse battery")
    again = tmp_path / "again"
    assert main(["restore", str(sealed), str(again), "--passphrase-file", str(phrase)]) == 2 and not again.exists()
    assert "the passphrase is another one" in capsys.readouterr().err
    phrase.write_text("short")
    assert main(["backup", str(folder), str(tmp_path / "x"), "--passphrase-file", str(phrase)]) == 2
    assert "at least 12" in capsys.readouterr().err


def test_nothing_that_can_be_read_lies_on_the_disk_of_an_encrypted_backup(
    folder: Path, tmp_path: Path, phrase: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain copies of all files lay there until it was written, and for ever where its process was killed."""
    disk, there = tmp_path / "disk", list[str]()
    disk.mkdir()
    write = backup.write_archive

    def look(*given: Any) -> None:
        there.extend(path.name for path in disk.rglob("*") if path.is_file() and b"secret" in path.read_bytes())
        write(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(backup, "write_archive", look)
    with pytest.raises(KeyboardInterrupt):
        back_up(folder, disk / "sealed", phrase.read_text())
    assert not there and not list(disk.iterdir()) and not list(folder.glob(f".*{backup.ASIDE}"))


def test_what_a_killed_backup_has_left_is_removed_by_the_next_one(folder: Path, tmp_path: Path, phrase: Path) -> None:
    left, held = folder / f"{backup.STAGED}dead{backup.ASIDE}", folder / f"{backup.STAGED}lives{backup.ASIDE}"
    for path in (left, held):
        path.mkdir()
        (path / "first.db").write_text("x")
    with backup.held(held):
        manifest = back_up(folder, tmp_path / "sealed", phrase.read_text())
    assert not left.exists() and (held / "first.db").exists(), "the other one's process is at work"
    assert not [member for member in manifest.members if backup.STAGED in member.path]


def test_a_hole_in_a_backup_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sparse member of two kB may say that it has a terabyte of zeros, which would be written."""
    file, size = tmp_path / "holes", 64 * 2**20
    member = {"path": "hole", "size": size, "mode": 0o600, "sha256": "0" * 64}
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as made:
        add(made, "manifest.json", json.dumps({"format": 1, "node": "n", "made": "", "members": [member]}).encode())
        info = tarfile.TarInfo("hole")
        info.size = 512
        info.pax_headers = {
            **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
            **{"GNU.sparse.name": "hole", "GNU.sparse.realsize": str(size)},
        }
        made.addfile(info, io.BytesIO(b"0\n".ljust(512, b"\0")))
    assert main(["restore", str(file), str(tmp_path / "back")]) == 2
    assert "'hole' that it does not name, or that is none" in capsys.readouterr().err


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_a_sealed_file_is_whole_or_refused(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sealed_file.SCRYPT, "n", 2)  # nobody guesses here, and dozens of keys are made
    content, said = os.urandom(size), "correct horse battery"
    path = tmp_path / "sealed"
    with path.open("wb") as file:
        sealer = Sealer(file, said)
        sealer.write(content)
        sealer.close()
    whole = path.read_bytes()

    def read(data: bytes) -> bytes:
        opener, found = Opener(io.BytesIO(data), said), b""
        while piece := opener.read(65_536):
            found += piece
        return found

    head, step = len(MAGIC) + SALT, PIECE + TAG
    assert is_sealed(path) and read(whole) == content
    pieces = [whole[i : i + step] for i in range(head, len(whole), step)]
    wrong = [whole[:-1], whole[:head], whole + b"x", whole[:head] + b"".join(pieces[:-1])]
    wrong += [whole[:-1] + bytes([whole[-1] ^ 1]), whole[: head - 1] + bytes([whole[head - 1] ^ 1]) + whole[head:]]
    wrong += [whole[:head] + b"".join([pieces[1], pieces[0], *pieces[2:]])] if len(pieces) > 1 else []
    for data in wrong:
        with pytest.raises(UsageError, match="changed or cut off"):
            read(data)
