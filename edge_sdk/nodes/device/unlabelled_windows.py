"""A device's windows without a label: read and held only in a run whose devices label them or add up their features."""

from __future__ import annotations

from collections.abc import Callable

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Unlabelled
from edge_sdk.model.model import Model
from edge_sdk.nodes.device.sample_streams import LiveDevice
from edge_sdk.nodes.kernels.family import Array
from edge_sdk.nodes.kernels.labels import wants_unlabelled
from edge_sdk.nodes.kernels.model_inputs import fit_unlabelled

Source = Callable[[], Unlabelled | None]
"""Reads them, each time a run wants them; None: there are none."""


def read_unlabelled(
    run: Run, model: Model, source: Source | None, live: LiveDevice | None, whose: str
) -> tuple[Array, Array] | None:
    """Inputs (M, ...) without a label, as the model takes them, and which stretch of time each lies in; None: there are
    none, or the run does not want them.

    Args:
        source: of samples that the application has ready. live: what the device observes; None: it observes nothing.
    """
    if not wants_unlabelled(run):
        return None
    if live is not None:
        frozen = live.open().freeze_unlabelled(run.id)
        return (frozen.x, frozen.recording) if len(frozen.x) else None
    found = None if source is None else source()
    if found is None or not len(found):
        return None
    return fit_unlabelled(model, found, whose).x, found.recording
