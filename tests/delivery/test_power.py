"""Power cuts at seeded moments. See power.py; the command there makes many more."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from edge_sdk.delivery.storage.store import Store
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import power
from tests.faults.machine import Machine, missing, survivor

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there are faults")


@pytest.mark.parametrize(("durability", "size"), [("full", 70_000), ("normal", 70_000)])
def test_power_cuts_lose_and_repeat_nothing(tmp_path: Path, quick: LocalBroker, durability: str, size: int) -> None:
    done = power.play(tmp_path, quick, Random(5), cuts=4, durability=durability, size=size)
    assert sum(done.values()) >= 4


def test_what_a_power_cut_leaves() -> None:
    dice, old, new = Random(1), bytes(10_000), bytes([1]) * 12_000
    assert survivor(old, new, None) == old and survivor(None, new, None) is None
    found = [survivor(old, new, dice) for _ in range(200)]
    assert old in found and new in found
    mixed = [each for each in found if each not in (old, new) and each is not None]
    assert mixed and all(set(each) <= {0, 1} for each in mixed)
    gone = [survivor(None, new, dice) for _ in range(100)]
    assert None in gone and new in gone
    assert {survivor(old, None, dice) for _ in range(50)} == {old, None}


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_new_start_of_the_machine_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """A store that was open when the power went shows another epoch, if commits may be missing, until it is used."""
    boot = tmp_path / "boot"
    monkeypatch.setattr("edge_sdk.delivery.storage.log_check.BOOT_ID", boot)
    boot.write_text("first")
    store = Store(tmp_path / "a.db", durability)
    first = store.epoch
    store.drop()
    again = Store(tmp_path / "a.db", durability)
    assert again.epoch == first and not again.rolled_back, "a kill loses nothing"
    again.drop()
    boot.write_text("second")
    for _ in range(2):
        cut = Store(tmp_path / "a.db", durability)
        assert cut.rolled_back == (cut.epoch != first) == (durability == "normal")
        cut.close()
    used = Store(tmp_path / "a.db", durability)
    used.note_recovery()
    used.close()
    boot.write_text("third")
    closed = Store(tmp_path / "a.db", durability)
    assert closed.epoch == cut.epoch and not closed.rolled_back, "it was closed before the power went"
    closed.close()


def test_a_disk_that_lost_its_power_is_all_synced(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "disk", tmp_path / "machine", power=True)
    (tmp_path / "disk" / "in").mkdir(parents=True)
    for name in ("a", "in/b", "told"):
        (tmp_path / "disk" / name).write_text(name)
    machine.cut_power(Random(0), reorder=False)
    assert [path.name for path in (tmp_path / "disk").rglob("*") if path.is_file()] == ["told"]
