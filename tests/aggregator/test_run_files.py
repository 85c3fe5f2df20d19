"""A second run in one directory overwrites nothing of the first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aggregator.run_files import MOVED, switch_files


def write_files(directory: Path, run: str) -> None:
    """The files of a run, each saying whose it is."""
    (directory / "run.toml").write_text(f'[run]\nid = "{run}"\n')
    (directory / "result.json").write_text(json.dumps({"run": run}))
    for name in ("model.npz", "ledger.json"):
        (directory / name).write_text(run)


def test_the_files_of_the_run_before_are_put_aside_and_come_back(tmp_path: Path) -> None:
    write_files(tmp_path, "first")
    switch_files(tmp_path, "first")
    assert (tmp_path / "model.npz").read_text() == "first"
    switch_files(tmp_path, "second")
    assert not any((tmp_path / name).exists() for name in MOVED)
    write_files(tmp_path, "second")
    switch_files(tmp_path, "first")
    assert (tmp_path / "model.npz").read_text() == "first"
    assert json.loads((tmp_path / "earlier" / "second" / "result.json").read_text()) == {"run": "second"}


@pytest.mark.parametrize("moved", range(len(MOVED) + 1))
def test_a_crash_in_the_middle_leaves_whose_files_they_are(tmp_path: Path, moved: int) -> None:
    write_files(tmp_path, "first")
    (tmp_path / "earlier" / "first").mkdir(parents=True)
    for name in MOVED[:moved]:
        (tmp_path / name).rename(tmp_path / "earlier" / "first" / name)
    switch_files(tmp_path, "second")
    assert sorted(p.name for p in (tmp_path / "earlier" / "first").iterdir()) == sorted(MOVED)
