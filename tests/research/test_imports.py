"""What the names of `edge_sdk` load: a device nothing of a notebook, a notebook nothing of a network or of torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import edge_sdk

NETWORK = ("paho", "torch", "onnxruntime", "amqtt", "sklearn", "sqlite3", "cloudpickle")
WORKSTATION = ("edge_sdk.research", "edge_sdk.replay", "edge_sdk.simulation", "cloudpickle")


def loaded_by(code: str) -> set[str]:
    """Modules that a program has loaded."""
    program = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {*done.stdout.split()}


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_a_device_loads_nothing_of_a_notebook():
    found = loaded_by("import edge_sdk; edge_sdk.Device, edge_sdk.Hospital, edge_sdk.METHODS['fedavg']")
    assert not {module for module in found if is_in(module, WORKSTATION)}
    assert "edge_sdk.nodes.device.device" in found


def test_the_package_by_itself_loads_no_other_module_of_ours():
    found = loaded_by("import edge_sdk")
    assert {module for module in found if is_in(module, ("edge_sdk", "numpy"))} == {"edge_sdk"}


def test_a_notebook_loads_no_network_and_no_torch_before_it_needs_them():
    found = loaded_by("import edge_sdk as a; a.simulate, a.Fleet, a.compare, a.load, a.method, a.Results")
    assert not {module for module in found if is_in(module, NETWORK)}
    assert "edge_sdk.research.runs.simulate" in found


def test_simulate_is_the_function_whatever_else_is_imported():
    inner = "edge_sdk.simulation.runs.job, edge_sdk.research.runs.simulate"
    loaded_by(f"import {inner}, edge_sdk; assert callable(edge_sdk.simulate)")


def test_all_names_are_there_and_are_completed():
    assert {*edge_sdk.__all__} == {*edge_sdk.HOMES} and {*edge_sdk.__all__} <= {*dir(edge_sdk)}
    for name in edge_sdk.__all__:
        assert getattr(edge_sdk, name).__doc__ or name in ("METHODS",), name


def test_a_name_that_is_not_there_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match=r"edge_sdk has no Flet; perhaps Fleet; it has Adam, "):
        edge_sdk.Flet  # noqa: B018
    with pytest.raises(AttributeError, match=r"edge_sdk has no _all; it has Adam, "):
        edge_sdk._all  # noqa: B018


def test_where_only_devices_are_installed_it_says_so(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="edge_sdk.research")

    monkeypatch.setattr(edge_sdk.importlib, "import_module", missing)
    with pytest.raises(AttributeError, match=r"edge_sdk.simulate is for a workstation: .* auscult\[replay\]"):
        _ = edge_sdk.simulate
