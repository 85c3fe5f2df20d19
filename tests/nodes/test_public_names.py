"""The names that an application imports, and what a device's process loads for them."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module

import pytest

import aggregator
import edge_sdk

NAMES = {
    *("AuscultError", "Adam", "Device", "Hospital", "METHODS", "Model", "Patients", "PeerError", "Run", "SGD"),
    *("ModelsDeclined", "Prediction", "Predictions", "Recording", "RunRefused", "Samples", "SplitModel", "StoreLimits"),
    *(
        "Fleet",
        "OwnKept",
        "OwnTask",
        "Results",
        "ResultsCompared",
        "UsageError",
        "compare",
        "load",
        "method",
        "simulate",
    ),
    *(
        "DevicePolicy",
        "DeviceList",
        "HospitalPolicy",
        "LocalTraining",
        "StoreUnusable",
        "TrainingBudget",
        "Unlabelled",
        "Upstream",
        "Wire",
    ),
}


def test_all_names_are_there() -> None:
    assert {*edge_sdk.__all__} == {*edge_sdk.HOMES} == NAMES
    for name in NAMES:
        assert getattr(edge_sdk, name).__class__.__name__ != "module"
    with pytest.raises(AttributeError, match="edge_sdk has no Devise; perhaps Device; it has Adam"):
        _ = edge_sdk.Devise


@pytest.mark.parametrize(
    ("package", "name", "home"),
    [
        ("edge_sdk.replay", "Replay", "edge_sdk.replay.planning.plan"),
        ("edge_sdk.replay", "replay", "edge_sdk.replay.job"),
        ("edge_sdk.data.traces", "load_folder", "edge_sdk.data.traces.folder"),
        ("edge_sdk.data.traces", "read_trace", "edge_sdk.data.traces.read"),
    ],
)
def test_names_that_earlier_pages_import_work_with_a_warning(package: str, name: str, home: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name} is in {home}; {package} has it until 0.5") as told:
        found = getattr(import_module(package), name)
    assert found is getattr(import_module(home), name)
    assert told[0].filename == __file__
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = import_module(package).nothing


def test_the_aggregator_is_there_where_torch_is() -> None:
    pytest.importorskip("torch")
    for name in aggregator.__all__:
        assert getattr(aggregator, name).__name__ == name
    with pytest.raises(AttributeError, match="aggregator has no Agregator"):
        _ = aggregator.Agregator


def loaded(code: str) -> set[str]:
    """The modules in memory after `code`, run by a process of its own."""
    code = f"{code}; import sys; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {*ast.literal_eval(done.stdout)}


def test_nothing_is_loaded_before_it_is_used() -> None:
    assert not {m for m in loaded("import edge_sdk, aggregator") if m.startswith(("numpy", "edge_sdk.", "torch"))}


def test_a_device_loads_no_workstation_tools_and_no_torch() -> None:
    found = loaded("from edge_sdk import Device, Samples")
    assert not {m for m in found if m.startswith(("edge_sdk.replay", "edge_sdk.tools", "torch", "onnx.", "models"))}
