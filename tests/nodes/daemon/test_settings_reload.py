"""A settings file that is written again is noticed, once."""

from __future__ import annotations

from pathlib import Path

from edge_sdk.atomic import write_text
from edge_sdk.nodes.daemon.settings_reload import FileWatch


def test_a_file_that_was_written_again_is_noticed_once(tmp_path: Path) -> None:
    path = tmp_path / "cloud.toml"
    write_text(path, "a = 1\n")
    watch = FileWatch(path)
    assert not watch.has_changed()
    write_text(path, "a = 2\n")  # as long as before, and perhaps in the same moment
    assert watch.has_changed() and not watch.has_changed()
    path.unlink()
    assert not watch.has_changed()
    write_text(path, "a = 3\n")
    assert watch.has_changed()
