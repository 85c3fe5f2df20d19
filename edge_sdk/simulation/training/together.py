"""The choice of what trains clients together: torch on a GPU, onnxruntime for dense layers on a core, else torch."""

from __future__ import annotations

import importlib
import logging

from edge_sdk.errors import UsageError
from edge_sdk.model.model import Model
from edge_sdk.simulation.training.batched_clients import CohortTraining
from edge_sdk.simulation.training.dense_clients import DenseTraining, find_dense_layers
from edge_sdk.simulation.training.epochs import TrainingCalls, refusal

log = logging.getLogger(__name__)


def make_training(model: Model, trained: TrainingCalls) -> CohortTraining | None:
    """What makes the steps of clients of a model together; None, with a note, where that cannot be done.

    Raises:
        UsageError: torch is not installed.
    """
    why = refusal(model)
    if not why:
        try:
            steps = importlib.import_module("aggregator.cohort").CohortSteps(model.bundle)
            dense = None if steps.device == "cuda" else dense_training(model, trained)
            return CohortTraining(model, steps, steps.device, trained) if dense is None else dense
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} is missing here: pip install 'auscult[aggregator]'") from error
        except UsageError as error:
            why = str(error)
    trained.note(why)
    return None


def dense_training(model: Model, trained: TrainingCalls) -> DenseTraining | None:
    """What trains chains of dense layers; None: the model is none, and the log says why."""
    try:
        return DenseTraining(model, find_dense_layers(model), trained)
    except UsageError as error:
        log.info("%s: its clients train together on torch: %s", model.name, error)
        return None
