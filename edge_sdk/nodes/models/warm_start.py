"""Warm start: a device begins a new run with the personal model that an earlier run has made on it.

Each method takes of it what it can use (`NodeEnv.earlier`): FedSLR its personal component p_i = personal - global,
Ditto, APFL, FedALA and FedAL the personal model, FedPer, FedRep and FedBN the slots that never leave a device. Nothing
else is carried over: what a device keeps in common with its aggregator (gamma, control variates, duals) begins anew, as
it does there. So do FedBCD's devices: their hospitals count each of them at the common start until it is heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.run import Run
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.models.working_model import WorkingModel

NOTHING: Mapping[str, Vector] = {}


def find_earlier(working: WorkingModel, model: Model | SplitModel, run: Run, log: Logger) -> Mapping[str, Vector]:
    """Models of the run that the device predicts by, for a new run to begin with; none where they do not fit.

    Args:
        working: the model that predicts when the run begins.
        model: that of the new run.
    """
    from edge_sdk.nodes.configuration.assembly import method_of  # which the run has loaded

    models = working.kept.models
    if not models or working.run in ("", run.id) or not method_of(run).warms_up:
        return NOTHING
    if why := find_obstacle(working, model, run):
        log.info("%s: run %s begins anew: %s", working.whose, run.id, why)
        return NOTHING
    log.info("%s: run %s begins with the models of run %s", working.whose, run.id, working.run)
    return models


def find_obstacle(working: WorkingModel, model: Model | SplitModel, run: Run) -> str:
    """Why models of an earlier run mean nothing in this one; "" if they do."""
    earlier = working.model
    if isinstance(model, SplitModel) or isinstance(earlier, SplitModel):
        return "a split model has no personal part"
    if earlier.layout != model.layout:
        return f"the parameters of {model.name} are others than those of the models of run {working.run}"
    if earlier.task != model.task:
        return f"it predicts something else, or in another range, than the models of run {working.run}"
    if working.kept.classes != run.classes:
        return f"its classes are others than those of run {working.run}"
    if not all(np.isfinite(theta).all() for theta in working.kept.models.values()):
        return f"the models of run {working.run} have diverged"
    return ""
