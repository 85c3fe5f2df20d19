"""What tests of pages and examples share."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.replay.planning.bundles import find_cache


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache without results of before; compiled networks are those of all tests."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "auscult").mkdir()
    find_cache().mkdir(parents=True, exist_ok=True)
    (folder / "auscult" / "bundles").symlink_to(find_cache())
    return folder
