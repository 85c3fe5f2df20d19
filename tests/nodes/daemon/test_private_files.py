"""What a node keeps is its owner's alone, and no copy of its settings has a password in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.delivery.storage.store import Store
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.nodes.configuration.settings import text_without_passwords
from edge_sdk.nodes.daemon import counter_files
from edge_sdk.nodes.models import kept_models
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.options import Wire
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    """As on most systems: without a mode of their own, files are for everybody to read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_everything_that_a_run_leaves_is_private(tmp_path: Path, quick: LocalBroker) -> None:
    """Of all tiers, with bodies so large that they are files of their own."""
    net = Net(tmp_path, quick.url)
    nodes = [net.aggregator("h", size=100_000), net.hospital("h", "d"), net.device("d", "h")]
    with playing(*nodes):
        eventually(lambda: net.rounds >= 3)
        seen = {name: mode for folder in ("agg", "h", "d") for name, mode in modes(tmp_path / folder).items()}
    assert {*seen} >= {"count.db", "count.db-wal", "count.bodies", "current", "lock"}
    wrong = {name: oct(mode) for name, mode in seen.items() if mode & 0o077}
    assert not wrong
    assert all(stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700 for name in ("agg", "h", "d"))


def test_a_store_of_an_older_version_is_closed_to_others_when_it_is_opened(tmp_path: Path) -> None:
    Store(tmp_path / "old.db").close()
    (tmp_path / "old.db").chmod(0o644)
    Store(tmp_path / "old.db").close()
    assert modes(tmp_path)["old.db"] == 0o600


def test_a_nodes_directory_is_closed_but_never_somebody_elses(tmp_path: Path) -> None:
    used, shared = tmp_path / "used", tmp_path / "shared"
    for folder in (used, shared):
        folder.mkdir(mode=0o755)
    (used / "lock").touch()
    (shared / "readme").touch()
    for folder in (used, shared, tmp_path / "new"):
        NodeDirectory(folder, "normal").close()
    assert {name: modes(tmp_path)[name] for name in ("used", "shared", "new")} == {
        "used": 0o700,
        "shared": 0o755,
        "new": 0o700,
    }


def test_models_and_ledgers_are_private(tmp_path: Path) -> None:
    kept_models.save(tmp_path / "run.npz", kept_models.KeptModels({"personal": np.ones(3, np.float32)}))
    counter_files.write_json(tmp_path / "ledger.json", {})
    assert {*modes(tmp_path).values()} == {0o600}


# Passwords --------------------------------------------------------------------------------------------------------
SETTINGS = """
# broker = "mqtt://me:hunter2@old.example"
name = "cloud"
broker = "mqtts://me:hunter2@broker.example:8883"
"""


def test_a_copy_of_settings_has_no_password(tmp_path: Path) -> None:
    (tmp_path / "cloud.toml").write_text(SETTINGS)
    copy = text_without_passwords(tmp_path / "cloud.toml")
    assert "hunter2" not in copy and 'broker = "mqtts://me@broker.example:8883"' in copy and 'name = "cloud"' in copy


@pytest.mark.parametrize("password", ["hunter2@at", "hunter2:colon", "hunter2%20"])
def test_passwords_with_signs_in_them(tmp_path: Path, password: str) -> None:
    (tmp_path / "cloud.toml").write_text(SETTINGS.replace("hunter2", password))
    assert "hunter2" not in text_without_passwords(tmp_path / "cloud.toml")


@pytest.mark.parametrize("hidden", ["\\\\u003ahunter2@", ":hunter2\\\\u0040", ":hunter 2@"])
def test_a_password_that_is_written_in_another_way_is_refused(tmp_path: Path, hidden: str) -> None:
    text = SETTINGS.replace(":hunter2@", hidden.replace("\\\\", "\\"))
    (tmp_path / "cloud.toml").write_text(text)
    with pytest.raises(UsageError, match="cloud"):
        text_without_passwords(tmp_path / "cloud.toml")


def test_errors_and_pictures_of_an_address_have_no_password() -> None:
    with pytest.raises(UsageError) as error:
        Wire().check("mqtt://me:hunter2@far.example")
    assert "hunter2" not in str(error.value) and "far.example" in str(error.value)
    with pytest.raises(UsageError) as error:
        broker_at("mqtt://me:hunter2@far.example/path")
    assert "hunter2" not in str(error.value)
    assert "hunter2" not in repr(broker_at("mqtts://me:hunter2@far.example"))
