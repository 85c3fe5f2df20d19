"""What statistics of a batch ask of a training step: all samples at once, and more than one value per channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_sdk.errors import UsageError

ANY = 1 << 30


def find_least(manifest: Mapping[str, Any]) -> int:
    """Samples that a training step needs: 2 where a norm has one value of each sample and channel, else 1."""
    return int(manifest.get("min_batch", 1))


def check_step(manifest: Mapping[str, Any], count: int, most: int = ANY) -> None:
    """Check the number of samples of one training step of a bundle.

    Args:
        manifest: the bundle's. most: samples that go through at once.

    Raises:
        UsageError: they have no variance, or are above `most` and would be normalised piece by piece.
    """
    name = manifest["name"]
    if count < find_least(manifest):
        raise UsageError(
            f"{name}: a step of {count} sample has one value of each channel in a batch normalisation, whose variance "
            "is 0; use another batch, of which no single sample is left over, or compile with --norm frozen"
        )
    if count > most and manifest["norm"] != "frozen":
        raise UsageError(
            f"{name}: a step of {count} samples is above max_batch = {most}, and its batch normalisation has no "
            f"statistics of pieces; use batches of at most {most}, or compile with --max-batch {count}"
        )


def check_chosen(manifest: Mapping[str, Any], count: int) -> None:
    """Check the number of samples that are to be one step; more than `max_batch` go through in pieces.

    Raises:
        UsageError: there are none, or `check_step` does not allow them.
    """
    if not count:
        raise UsageError("a gradient over no samples: give at least one index")
    check_step(manifest, count, int(manifest["max_batch"]))
