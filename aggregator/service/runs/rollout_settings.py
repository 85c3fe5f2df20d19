"""Settings file of a rollout's aggregator, as far as it differs from that of a run which trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aggregator.service.runs.runs import Wanted
from edge_sdk.methods.rollout.method import ROLLOUT

METHOD = ROLLOUT.name
PATIENCE = 600.0
"""Seconds that a stage waits for devices which are receiving, or have gone away meanwhile."""


def is_rollout(row: Mapping[str, Any]) -> bool:
    """Says whether a run's row is that of a rollout."""
    return bool(row["wanted"]["method"] == METHOD)


def add_settings(table: dict[str, Any], own: dict[str, Any], model: Path | None) -> None:
    """Complete the settings file of a rollout's aggregator.

    Args:
        table: the file; own: its [run]. model: file of a trained model; None: the bundle's initial one.
    """
    own["deadline"] = PATIENCE
    if model is not None:
        table["model"] = model.resolve()


def find_model(file_of: Callable[[str], Path], wanted: Wanted) -> Path | None:
    """The file of the trained model that a rollout brings; None: it brings none, or the bundle alone.

    Args:
        file_of: beginning of a hash -> file in the registry.
    """
    sha256 = wanted.settings.get("model") if wanted.method == METHOD else None
    return file_of(sha256) if sha256 and sha256 != wanted.bundle else None
