from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def wrist() -> Path:
    """The recorded wrist traces; tests that need them are skipped where they are missing."""
    data = Path(os.environ.get("AUSCULT_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (data / "wrist").is_dir():
        pytest.skip(f"no recorded traces at {data / 'wrist'} (AUSCULT_DATA names their folder)")
    return data / "wrist"
