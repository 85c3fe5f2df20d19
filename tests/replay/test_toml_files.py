"""Settings files as a replay writes them are what `read_toml` reads."""

from __future__ import annotations

import tomllib
from pathlib import Path

from edge_sdk.replay.planning.toml_files import write_toml


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    table = {
        "text": 'two\nlines, a "quote", a \\ and a tab\t',
        "path": Path("a b") / "c",
        "names": ("x", "y.z"),
        "none": None,
        "nested": {"key with a space": 1, "deep": {"yes": True, "share": 0.25, "none": None}},
        "infinite": float("inf"),
    }
    found = tomllib.loads(write_toml(tmp_path / "new" / "file.toml", table).read_text())
    assert found == {
        "text": table["text"],
        "path": "a b/c",
        "names": ["x", "y.z"],
        "nested": {"key with a space": 1, "deep": {"yes": True, "share": 0.25}},
        "infinite": float("inf"),
    }
