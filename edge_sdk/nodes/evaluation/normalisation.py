"""Normalisation of windows that are cut from traces: as the bundle says, like that of live samples."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from edge_sdk.data.samples import Normalise
from edge_sdk.model.bundle import read_bundle


@lru_cache(maxsize=64)
def find_normaliser(bundle: Path) -> Normalise | None:
    """What a bundle's model wants done to windows (N, channels, window); None: nothing, or it does not say."""
    signal = read_bundle(bundle).signal
    return None if signal is None or not signal.mean else signal.normalise
