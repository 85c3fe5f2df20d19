"""The import map of the packages. A failure says which import is not allowed, and what is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("edge_sdk", "aggregator", "models", "hardware")
DEVICE_BUDGET = {"numpy", "onnxruntime", "paho", "msgpack"}
ONLY_IN = {"paho": {"edge_sdk.mqtt"}, "onnxruntime": {"edge_sdk.onnx_session"}, "sqlite3": {"edge_sdk.store"}}
SERVER = DEVICE_BUDGET | {"torch", "onnx", "onnxscript", "onnx_ir", "amqtt", "ml_dtypes"}
MAY_IMPORT = {
    "hardware": {"hardware"},
    "edge_sdk": {"edge_sdk", "hardware"},
    "aggregator": {"aggregator", "edge_sdk", "hardware"},
    "models": {"models", "edge_sdk.bundle", "edge_sdk.vectors", "edge_sdk.errors", "edge_sdk.model"},
}
METHODS_MAY = ("edge_sdk.method", "edge_sdk.methods", "edge_sdk.vectors", "edge_sdk.arrays", "edge_sdk.prox")
METHODS_MAY += ("edge_sdk.lowrank", "edge_sdk.errors", "edge_sdk.round", "edge_sdk.optim")
METHODS_STDLIB = {
    "__future__",
    "collections",
    "dataclasses",
    "math",
    "typing",
    "zlib",
    "itertools",
    "functools",
    "enum",
}
PURE = ("method", "round", "node", "vectors", "prox", "lowrank", "arrays", "errors", "codec", "run", "charts")
PURE += ("bodies", "coders", "composites", "schema", "frames", "topics")
IMPURE = {
    "time",
    "socket",
    "threading",
    "logging",
    "random",
    "sqlite3",
    "select",
    "subprocess",
    "os",
    "uuid",
    "secrets",
}


def modules(package: str) -> list[tuple[str, Path]]:
    files = sorted((ROOT / package).rglob("*.py"))
    return [(".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), f) for f in files]


def imports(path: Path) -> set[str]:
    """Full names of everything imported anywhere in a file."""
    found = set()
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, f"{path}: relative import"
            found |= {f"{item.module}.{alias.name}" for alias in item.names}
    return found


def within(name: str, allowed: set[str] | tuple[str, ...]) -> bool:
    return any(name == a or name.startswith(a + ".") for a in allowed)


@pytest.mark.parametrize("package", OURS)
def test_packages_import_only_what_the_map_allows(package: str) -> None:
    for module, path in modules(package):
        for name in imports(path):
            top = name.split(".")[0]
            if top in OURS:
                assert within(name, MAY_IMPORT[package]), (
                    f"{module} imports {name}; {package} may import {MAY_IMPORT[package]}"
                )


@pytest.mark.parametrize("package", OURS)
def test_other_peoples_packages(package: str) -> None:
    """A device's budget is four; the embedded broker is the one thing beside it, in one file, when it is asked for."""
    budget = {"hardware": set(), "edge_sdk": DEVICE_BUDGET | {"amqtt"}}.get(package, SERVER)
    for module, path in modules(package):
        for name in imports(path):
            top = name.split(".")[0]
            if top in sys.stdlib_module_names or top in OURS:
                continue
            assert top in budget, f"{module} imports {name}; {package} may import {sorted(budget)}"
            if package == "edge_sdk" and top == "amqtt":
                assert module == "edge_sdk.broker", f"{module} imports amqtt; only edge_sdk.broker may"


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_some_libraries_have_one_door(library: str) -> None:
    for module, path in modules("edge_sdk"):
        if any(within(name, {library}) for name in imports(path)):
            assert module in ONLY_IN[library], f"{module} imports {library}; only {ONLY_IN[library]} may"


def test_methods_are_pure() -> None:
    for module, path in modules("edge_sdk/methods"):
        for name in imports(path):
            top = name.split(".")[0]
            allowed = within(name, METHODS_MAY) or top == "numpy" or top in METHODS_STDLIB
            assert allowed, f"{module} imports {name}; methods may import numpy, {METHODS_MAY} and {METHODS_STDLIB}"


def test_the_contract_is_sans_io() -> None:
    for module, path in modules("edge_sdk"):
        if module.removeprefix("edge_sdk.") in PURE:
            found = {name.split(".")[0] for name in imports(path)} & IMPURE
            assert not found, f"{module} imports {found}; it takes `now` and data and does no I/O"


def test_importing_the_sdk_loads_no_torch_and_no_onnx() -> None:
    code = "import edge_sdk, edge_sdk.cli, edge_sdk.serve, sys; print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(ast.literal_eval(done.stdout))
    assert not loaded & {"torch", "onnx", "onnxscript", "amqtt", "models", "aggregator"}


def test_a_device_installs_four_packages_and_nothing_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=!~\[; ]", need)[0] for need in project["dependencies"]}
    assert names == {"numpy", "onnxruntime", "paho-mqtt", "msgpack"}
    assert any(need.startswith("torch") for need in project["optional-dependencies"]["aggregator"])
