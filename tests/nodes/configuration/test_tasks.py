"""Which runs take which task: what a run in memory has no scores for is refused before it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.nodes.configuration.tasks import check_in_memory


def bundle_of(task: Any) -> Any:
    return SimpleNamespace(task=task, manifest={"name": "mine"})


def test_windows_are_reconstructed_in_replays_only() -> None:
    with pytest.raises(UsageError, match=r"task reconstruction: only `auscult replay` has its scores; bundle mine"):
        check_in_memory(bundle_of(Reconstruction()))
    check_in_memory(bundle_of(OneClass(3)))
