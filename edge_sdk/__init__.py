"""Auscult on a device and in a hospital: numpy, onnxruntime, paho-mqtt and msgpack, never torch. On a workstation also
what a notebook needs: `Fleet`, `simulate`, `compare`, `method`.

Names are loaded when they are first used, so that a command that needs one of them does not wait for all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_sdk.algebra.optim import SGD as SGD
    from edge_sdk.algebra.optim import Adam as Adam
    from edge_sdk.contract.run import Run as Run
    from edge_sdk.data.patients import Patients as Patients
    from edge_sdk.data.recording import Recording as Recording
    from edge_sdk.data.recording import StoreLimits as StoreLimits
    from edge_sdk.data.samples import Samples as Samples
    from edge_sdk.data.samples import Unlabelled as Unlabelled
    from edge_sdk.data.store.index import StoreUnusable as StoreUnusable
    from edge_sdk.errors import AuscultError as AuscultError
    from edge_sdk.errors import PeerError as PeerError
    from edge_sdk.errors import UsageError as UsageError
    from edge_sdk.methods import METHODS as METHODS
    from edge_sdk.methods.own import method as method
    from edge_sdk.methods.shared.evaluation.beside import OwnKept as OwnKept
    from edge_sdk.model.model import Model as Model
    from edge_sdk.model.split_model import SplitModel as SplitModel
    from edge_sdk.model.tasks.own import OwnTask as OwnTask
    from edge_sdk.nodes.device.descriptions import RunRefused as RunRefused
    from edge_sdk.nodes.device.device import Device as Device
    from edge_sdk.nodes.device.options import DevicePolicy as DevicePolicy
    from edge_sdk.nodes.device.options import LocalTraining as LocalTraining
    from edge_sdk.nodes.hospital.hospital import Hospital as Hospital
    from edge_sdk.nodes.hospital.options import DeviceList as DeviceList
    from edge_sdk.nodes.hospital.options import HospitalPolicy as HospitalPolicy
    from edge_sdk.nodes.hospital.options import Upstream as Upstream
    from edge_sdk.nodes.models.last_line import ModelsDeclined as ModelsDeclined
    from edge_sdk.nodes.models.predictions import Prediction as Prediction
    from edge_sdk.nodes.models.predictions import Predictions as Predictions
    from edge_sdk.nodes.policy.budget import TrainingBudget as TrainingBudget
    from edge_sdk.research.comparisons.comparison import ResultsCompared as ResultsCompared
    from edge_sdk.research.comparisons.comparison import compare as compare
    from edge_sdk.research.comparisons.results import Results as Results
    from edge_sdk.research.comparisons.results import load as load
    from edge_sdk.research.fleets.fleet import Fleet as Fleet
    from edge_sdk.research.runs.simulate import simulate as simulate
    from edge_sdk.wire.options import Wire as Wire

HOMES = {
    "Adam": "algebra.optim",
    "AuscultError": "errors",
    "Device": "nodes.device.device",
    "DeviceList": "nodes.hospital.options",
    "DevicePolicy": "nodes.device.options",
    "Fleet": "research.fleets.fleet",
    "Hospital": "nodes.hospital.hospital",
    "HospitalPolicy": "nodes.hospital.options",
    "LocalTraining": "nodes.device.options",
    "METHODS": "methods",
    "Model": "model.model",
    "ModelsDeclined": "nodes.models.last_line",
    "OwnKept": "methods.shared.evaluation.beside",
    "OwnTask": "model.tasks.own",
    "Patients": "data.patients",
    "PeerError": "errors",
    "Prediction": "nodes.models.predictions",
    "Predictions": "nodes.models.predictions",
    "Recording": "data.recording",
    "Results": "research.comparisons.results",
    "ResultsCompared": "research.comparisons.comparison",
    "Run": "contract.run",
    "RunRefused": "nodes.device.descriptions",
    "SGD": "algebra.optim",
    "Samples": "data.samples",
    "StoreLimits": "data.recording",
    "StoreUnusable": "data.store.index",
    "SplitModel": "model.split_model",
    "TrainingBudget": "nodes.policy.budget",
    "Unlabelled": "data.samples",
    "Upstream": "nodes.hospital.options",
    "UsageError": "errors",
    "Wire": "wire.options",
    "compare": "research.comparisons.comparison",
    "load": "research.comparisons.results",
    "method": "methods.own",
    "simulate": "research.runs.simulate",
}

__all__ = [
    "METHODS",
    "SGD",
    "Adam",
    "AuscultError",
    "Device",
    "DeviceList",
    "DevicePolicy",
    "Fleet",
    "Hospital",
    "HospitalPolicy",
    "LocalTraining",
    "Model",
    "ModelsDeclined",
    "OwnKept",
    "OwnTask",
    "Patients",
    "PeerError",
    "Prediction",
    "Predictions",
    "Recording",
    "Results",
    "ResultsCompared",
    "Run",
    "RunRefused",
    "Samples",
    "SplitModel",
    "StoreLimits",
    "StoreUnusable",
    "TrainingBudget",
    "Unlabelled",
    "Upstream",
    "UsageError",
    "Wire",
    "compare",
    "load",
    "method",
    "simulate",
]


WORKSTATION = "research."
"""Room of the names that devices and hospitals do not have."""


def perhaps(name: str) -> str:
    """The name that was perhaps meant, as a part of a sentence; none for what begins with _, which machines ask for."""
    from edge_sdk.errors import nearest  # for an error only

    return "" if name.startswith("_") else nearest(name, __all__)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"edge_sdk has no {name}{perhaps(name)}; it has {', '.join(HOMES)}")
    try:
        return getattr(importlib.import_module(f"edge_sdk.{HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "edge_sdk.research" or not HOMES[name].startswith(WORKSTATION):
            raise
        where = "in the whole of Auscult, auscult[replay], and not in auscult-edge"
        raise AttributeError(f"edge_sdk.{name} is for a workstation: it is {where}") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
