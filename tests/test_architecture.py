"""The import map of the packages. A failure says which import is not allowed, and what is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from edge_sdk.methods import METHODS

ROOT = Path(__file__).parent.parent
DEVICE_BUDGET = {"numpy", "onnxruntime", "paho", "msgpack"}
ONLY_IN = {
    "paho": {"edge_sdk.wire.mqtt", "edge_sdk.wire.client"},
    "onnxruntime": {"edge_sdk.model.sessions.onnx_session"},
    "sqlite3": {
        "edge_sdk.delivery.storage.database",
        "edge_sdk.delivery.storage.snapshot",
        "edge_sdk.data.store.index",
    },
}
WORKSTATION = {
    "amqtt": "edge_sdk.replay.nodes.broker",
    "tomli_w": "edge_sdk.replay.planning.toml_files",
    "optuna": "edge_sdk.replay.tuning.study",
    "sklearn": "edge_sdk.replay.neighbours.fitted",
    "tensorboard": "edge_sdk.replay.reports.tensorboard",
    "mlflow": "edge_sdk.replay.reports.mlflow_runs",
    "pyarrow": "edge_sdk.replay.imports.columns",
    "wfdb": "edge_sdk.replay.imports.wfdb_records",
    "actfast": "edge_sdk.replay.imports.actigraphs",
    "fitdecode": "edge_sdk.replay.imports.fit_files",
    "cloudpickle": "edge_sdk.research.runs.simulate edge_sdk.research.runs.worker",
    "cryptography": "edge_sdk.data.store.cipher edge_sdk.wire.signatures edge_sdk.tools.credentials.own_key "
    "edge_sdk.tools.backups.sealed_file edge_sdk.nodes.secrets.mask_keys edge_sdk.nodes.secrets.secret_sharing",
}
"""Packages beside the budget, and the few modules that may import each of them, when it is asked for."""
OF_HARDWARE = {
    "paho": "edge_sdk.hardware.sensors.mqtt_topics",
    "numpy": "edge_sdk.hardware.sensors.edf",
    "setuptools": "edge_sdk.hardware.provision.edge.setup",  # makes the device's wheel, and is not in it
}
"""Packages that `edge_sdk.hardware` imports by name; those of its extras are loaded by sensors/extras.py alone."""
SERVER = DEVICE_BUDGET | {"torch", "onnx", "onnxscript", "onnx_ir", "amqtt", "ml_dtypes", "dp_accounting"}
WEB = {"starlette", "uvicorn", "jinja2", "markupsafe", "sqlalchemy", "argon2", "cryptography", "joserfc"}
"""Packages of the service, and of nothing else; it has neither torch nor what devices have."""
TABLE = tomllib.loads((ROOT / "docs" / "import_table.toml").read_text())
OURS = tuple(TABLE["packages"])
MAY_IMPORT = {name: {name, *package["imports"]} for name, package in TABLE["packages"].items()}
MAY_IMPORT |= {name: set(more) for name, more in TABLE["modules"].items()}
ROOMS: dict[str, list[str]] = {name: room["imports"] for name, room in TABLE["rooms"].items()}
"""Room of edge_sdk -> the rooms, or modules of one, that it may import. Everybody may import `errors`."""
WITHIN: dict[str, dict[str, list[str]]] = TABLE["within"]
"""Upper room -> room in it -> the others in it that it imports. A room comes after all that it imports. "" is what
stands in no room."""
MOST_MODULES, MOST_FLOORS = 15, 5
PURE = (
    "algebra",
    "contract.method",
    "contract.node",
    "contract.round",
    "contract.run",
    "contract.records",
    "methods",
    "wire.codec",
    "wire.frames",
    "wire.topics",
    "replay.reports.charts",
)
LOADS_METHODS = ("edge_sdk.methods", "importlib")
METHODS_STDLIB = {
    "__future__",
    "collections",
    "dataclasses",
    "math",
    "typing",
    "zlib",
    "itertools",
    "functools",
    "bisect",
    "re",
    "enum",
    "statistics",
    "inspect",
}
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


def folder_of(package: str) -> Path:
    """A package's own folder; that of edge_sdk.models and of edge_sdk.hardware is the one at the top."""
    return (ROOT / package.replace(".", "/")).resolve()


def modules(package: str) -> list[tuple[str, Path]]:
    """Full names and files of a package's modules, without those of the packages that it has links to."""
    folder = folder_of(package)
    found = [
        ((*package.split("."), *f.relative_to(folder).with_suffix("").parts), f) for f in sorted(folder.rglob("*.py"))
    ]
    return [(".".join(parts).removesuffix(".__init__"), f) for parts, f in found]


def package_of(name: str) -> str:
    """Package of ours that a module belongs to; "" for other people's."""
    return max((package for package in OURS if within(name, {package})), key=len, default="")


@cache
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
            if package_of(name):
                own = [more for name, more in TABLE["modules"].items() if within(module, {name})]
                may = MAY_IMPORT[package].union(*own)
                assert package_of(name) == package or within(name, may - {package}), (
                    f"{module} imports {name}; it may import {sorted(may)}"
                )


@pytest.mark.parametrize("package", OURS)
def test_other_peoples_packages(package: str) -> None:
    """A device's budget is four; what a workstation has beside it is in one file each, loaded when it is asked for."""
    budget = {"edge_sdk.hardware": {*OF_HARDWARE}, "edge_sdk": DEVICE_BUDGET | {*WORKSTATION}}.get(package, SERVER)
    for module, path in modules(package):
        allowed = WEB if within(module, {"aggregator.service"}) else budget
        for name in imports(path):
            top = name.split(".")[0]
            if top in sys.stdlib_module_names or package_of(name):
                continue
            assert top in allowed, f"{module} imports {name}; it may import {sorted(allowed)}"
            if package == "edge_sdk" and top in WORKSTATION:
                assert module in WORKSTATION[top].split(), f"{module} imports {top}; only {WORKSTATION[top]} may"
            if package == "edge_sdk.hardware":
                assert module == OF_HARDWARE[top], f"{module} imports {top}; only {OF_HARDWARE[top]} may"


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_some_libraries_have_one_door(library: str) -> None:
    for module, path in modules("edge_sdk"):
        if any(within(name, {library}) for name in imports(path)):
            assert module in ONLY_IN[library], f"{module} imports {library}; only {ONLY_IN[library]} may"


def room_of(module: str) -> str:
    """Room of a module of edge_sdk; "" for those at the root."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else ""


def table() -> str:
    return "\n".join(f"  {room:<10} may import {', '.join(may) or 'nothing but errors'}" for room, may in ROOMS.items())


def test_every_module_is_in_a_room() -> None:
    at_the_root = {module for module, _ in modules("edge_sdk") if not room_of(module)}
    names = {
        "arguments",
        "atomic",
        "cli",
        "earlier_names",
        "errors",
        "label_names",
        "plugins",
        "records",
        "terminal_text",
        "version",
    }
    assert at_the_root == {"edge_sdk", *(f"edge_sdk.{name}" for name in names)}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_what_the_table_allows(room: str) -> None:
    allowed = {f"edge_sdk.{other}" for other in (room, "errors", *ROOMS[room])}
    for module, path in modules(f"edge_sdk.{room}"):
        for name in imports(path):
            if package_of(name) == "edge_sdk":
                assert within(name, allowed), f"{module} imports {name}. The table:\n{table()}"


def test_no_import_goes_round_in_a_circle() -> None:
    """Within a package and within a room modules import each other in one direction; lazy and typing imports count."""
    known = {module: path for package in OURS for module, path in modules(package)}
    arrows = {module: {home(name, known) for name in imports(path)} - {module, ""} for module, path in known.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for other in sorted(arrows[module]):
                visit(other, (*trail, module))
            done.add(module)

    for module in known:
        visit(module, ())


def home(name: str, known: dict[str, Path]) -> str:
    """The module that an imported name comes from; "" for other people's."""
    if name in known:
        return name
    return name.rpartition(".")[0] if name.rpartition(".")[0] in known else ""


def rooms_within(upper: str) -> dict[str, dict[str, Path]]:
    """Room of an upper room -> its modules, with their files, but for the __init__.py."""
    rooms: dict[str, dict[str, Path]] = {}
    for module, path in modules(upper):
        if path.name != "__init__.py":
            room, _, _ = module.removeprefix(f"{upper}.").rpartition(".")
            rooms.setdefault(room, {})[module] = path
    return rooms


@pytest.mark.parametrize("upper", WITHIN)
def test_rooms_are_small(upper: str) -> None:
    """No module stands where the table has no room, and no room has more than somebody looks through at once."""
    sizes = {room: len(found) for room, found in rooms_within(upper).items()}
    assert {*sizes} == {*WITHIN[upper]}, f"docs/import_table.toml has other rooms of {upper}"
    assert not {room: size for room, size in sizes.items() if size > MOST_MODULES}


@pytest.mark.parametrize("upper", WITHIN)
def test_a_rooms_door_says_in_one_sentence_what_is_behind_it(upper: str) -> None:
    for room in filter(None, WITHIN[upper]):
        words = ast.get_docstring(ast.parse((folder_of(upper) / room / "__init__.py").read_text())) or ""
        assert re.fullmatch(r"[A-Z][^.]+\.", words), f"{upper}.{room}: {words!r}"


@pytest.mark.parametrize("upper", WITHIN)
def test_rooms_have_few_floors(upper: str) -> None:
    """No chain of imports in a room is longer, so that somebody who reads it from below needs few steps."""
    for room, found in rooms_within(upper).items():
        above: dict[str, int] = {}

        def floor(module: str, found: dict[str, Path] = found, above: dict[str, int] = above) -> int:
            if module not in above:
                below = {home(name, found) for name in imports(found[module])} - {""}
                above[module] = 1 + max((floor(other) for other in below), default=0)
            return above[module]

        high = {module: floor(module) for module in found if floor(module) > MOST_FLOORS}
        assert not high, f"{upper}.{room} has more than {MOST_FLOORS} floors: {high}"


@pytest.mark.parametrize("upper", WITHIN)
def test_rooms_import_what_the_table_says_and_in_one_direction(upper: str) -> None:
    rooms = rooms_within(upper)
    homes = {module: room for room, found in rooms.items() for module in found}
    known = {module: path for found in rooms.values() for module, path in found.items()}
    before: set[str] = set()
    for room, may in WITHIN[upper].items():
        assert {*may} <= before, f"{upper}.{room} imports {sorted({*may} - before)}, which come after it in the table"
        before.add(room)
        used = {
            homes[home(name, known)] for path in rooms[room].values() for name in imports(path) if home(name, known)
        }
        assert used - {room} == {*may}, f"{upper}.{room} imports {sorted(used - {room})}; the table has {sorted(may)}"


def test_methods_need_numpy_only() -> None:
    for module, path in modules("edge_sdk.methods"):
        for name in imports(path):
            top = name.split(".")[0]
            allowed = top in ("edge_sdk", "numpy") or top in METHODS_STDLIB or (module, top) == LOADS_METHODS
            assert allowed, f"{module} imports {name}; methods may import numpy and {sorted(METHODS_STDLIB)}"


def test_the_contract_is_sans_io() -> None:
    for module, path in modules("edge_sdk"):
        if within(module.removeprefix("edge_sdk."), PURE):
            found = {name.split(".")[0] for name in imports(path)} & IMPURE
            assert not found, f"{module} imports {found}; it takes `now` and data and does no I/O"


@pytest.mark.parametrize("module", ["nodes.device.device", "nodes.hospital.hospital"])
def test_a_node_loads_nothing_of_replay_or_tools(module: str) -> None:
    code = f"import edge_sdk.{module}, sys; print([m for m in sys.modules if m.startswith('edge_sdk.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    found = ast.literal_eval(done.stdout)
    assert not {m for m in found if room_of(m) in ("replay", "simulation", "tools")}
    # A method is loaded when a run names it.
    assert not {f"edge_sdk.methods.{place.partition(':')[0]}" for place in METHODS.places.values()} & {*found}


def test_importing_the_sdk_loads_no_torch_and_no_onnx() -> None:
    code = "import edge_sdk.cli, edge_sdk.nodes.daemon.serve, sys; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    found = ast.literal_eval(done.stdout)
    loaded = {package_of(name) or name.partition(".")[0] for name in found}
    assert not loaded & {"torch", "onnx", "onnxscript", "amqtt", "tomli_w", "edge_sdk.models", "aggregator"}


def test_a_device_installs_four_packages_and_nothing_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=!~\[; ]", need)[0] for need in project["dependencies"]}
    assert names == {"numpy", "onnxruntime", "paho-mqtt", "msgpack"}
    assert any(need.startswith("torch") for need in project["optional-dependencies"]["aggregator"])


@pytest.mark.parametrize("folder", ["models", "hardware"])
def test_an_installation_has_two_packages_at_its_top(folder: str) -> None:
    """Names as common as `models` would be in the way of other people's; those folders come as parts of edge_sdk."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert tools["packages"]["find"]["include"] == ["edge_sdk*", "aggregator*"]
    assert (ROOT / "edge_sdk" / folder).readlink() == Path("..") / folder
