"""The registry of models: what it keeps of a file that was refused, and which bundle a run trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import UsageError


def test_what_was_refused_leaves_no_file_and_what_was_there_stays(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: str) -> None:
        raise UsageError("the operator's key cannot be read")

    registry, path = service.registry, tmp_path / "model.npz"
    path.write_bytes(b"a model")
    monkeypatch.setattr(registry, "sign", refuse)
    for known in (False, True):
        before = {*registry.directory.iterdir()}
        with pytest.raises(UsageError, match="cannot be read"):
            registry.add("global", "0" * 64, "a", path, {})
        assert {*registry.directory.iterdir()} == before
        if not known:
            (registry.directory / f"{'0' * 64}.npz").write_bytes(b"a model")
