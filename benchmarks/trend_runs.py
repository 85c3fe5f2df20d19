"""The short benchmarks of benchmarks/trend.py: each is run in a tree, by whatever that tree has, and gives figures."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PACKAGES = ("edge_sdk", "aggregator", "models", "hardware")
DEVICES, HOURS = 4, 1
LESS = ("--plain", "--no-neighbours")
LONGEST = 900.0  # seconds of one run

COMMAND = "import sys; from edge_sdk.cli import main; sys.exit(main(sys.argv[1:]))"
STEP = """
import time
import numpy as np
try:
    from edge_sdk.model.model import Model
except ImportError:
    from edge_sdk.model import Model
model, rng = Model("models/shipped/wrist.bundle"), np.random.default_rng(1)
x = rng.standard_normal((32, *model.input_shape)).astype(np.float32)
f, theta = model.grad_fn(x, rng.integers(0, model.classes, 32)), model.theta0.copy()
def step():
    theta[:] -= np.float32(1e-4) * f(theta)[1]
for _ in range(5):
    step()
count, start = 0, time.process_time()
while (passed := time.process_time() - start) < 1.0:
    step()
    count += 1
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(passed / count * 1e3, int(peak.split()[1]) / 1024)
"""
SERVICE = """
import importlib, sys
for name in ("edge_sdk.nodes.daemon.device_service", "edge_sdk.daemon.device_service", "edge_sdk.services"):
    try:
        importlib.import_module(name)
        sys.exit(0)
    except ImportError:
        pass
sys.exit("no service of a device")
"""


Figures = dict[str, float | None]
"""Name of a figure -> its value; None: the tree cannot say it."""


class Unable(Exception):
    """A tree has not what a run needs, or it fails there. The text says why."""


@dataclass(frozen=True)
class Used:
    """What a process has used: seconds of processor time, with all that it waited for, and what it printed."""

    seconds: float
    output: str


def start(tree: Path, words: Sequence[str], env: Mapping[str, str] | None = None) -> Used:
    """Run Python in a tree.

    Modules are compiled once for each tree, all in the same way: where this environment says that nothing compiled is
    to be kept (PYTHONDONTWRITEBYTECODE), a fresh checkout would be compiled anew by each process, and this tree not.

    Raises:
        Unable: it has failed, or takes too long.
    """
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(compiled()), **(env or {})}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, *words], cwd=tree, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    before = os.times()
    try:
        output, errors = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        end_group(process.pid)
        process.communicate()
        raise Unable(f"more than {LONGEST:.0f} s") from None
    finally:
        end_group(process.pid)
    after = os.times()
    if process.returncode:
        raise Unable((errors.strip().splitlines() or ["no word"])[-1][:200])
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Used(used, output)


@cache
def compiled() -> Path:
    """A folder for what Python has compiled, which is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="auscult-trend-compiled-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def end_group(number: int) -> None:
    """End a process with all that it has started and left, which would hold its pipes open and take others' time."""
    with suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)


def prepare(tree: Path, folder: Path) -> None:
    """Make the data that all trees are given, with this one's commands."""
    start(tree, ["-c", COMMAND, "traces", "synth", str(folder / "traces"), "--devices", str(DEVICES), "--seed", "7"])
    rows = "\n".join(f"{1.7e9 + i / 100:.2f},{i % 7 / 7:.4f},0.1,{i % 11:.4f},walk" for i in range(HOURS * 360_000))
    (folder / "hour.csv").write_text(f"time,ax,ay,az,activity\n{rows}\n")


def run_step(tree: Path, folder: Path) -> Figures:
    step, memory = start(tree, ["-c", STEP]).output.split()
    return {STEP_TIME: float(step), STEP_MEMORY: float(memory)}


def run_loop(tree: Path, folder: Path) -> Figures:
    words = ["benchmarks/wire.py", "--sizes", "10x10k", "--seconds", "3", "--blocks", "1", "--json"]
    ours = json.loads(start(tree, words).output.splitlines()[-1])["ours, normal"]
    if "parent_cpu_ms" not in ours:
        raise Unable("its benchmark does not print processor time")
    return {LOOP_ABOVE: ours["parent_cpu_ms"], LOOP_BELOW: ours["child_cpu_ms"]}


def run_replay(tree: Path, folder: Path) -> Figures:
    return {REPLAY: run_method(tree, folder, "replay", "--rounds", "1", "--no-local-only")}


def run_simulate(tree: Path, folder: Path) -> Figures:
    words = ("--rounds", "2", "--clients", "20", "--cohort", "10", "--judges", "2", "--evaluate-every", "0")
    return {SIMULATE: run_method(tree, folder, "simulate", *words)}


def run_method(tree: Path, folder: Path, command: str, *more: str) -> float:
    """Seconds of FedAvg by itself on the generated traces. Of the options in LESS a tree takes those that it knows:
    what they leave out came with them."""
    out = folder / command
    shutil.rmtree(out, ignore_errors=True)
    known = start(tree, ["-c", COMMAND, command, "--help"]).output
    less = [word for word in LESS if word in known]
    words = [command, str(folder / "traces"), "--method", "fedavg", "--seed", "7", "--out", str(out), *more, *less]
    return start(tree, ["-c", COMMAND, *words]).seconds


def run_import(tree: Path, folder: Path) -> Figures:
    out = folder / "imported"
    shutil.rmtree(out, ignore_errors=True)
    return {IMPORT: start(tree, ["-c", COMMAND, "traces", "import", str(folder / "hour.csv"), str(out)]).seconds}


def run_start(tree: Path, folder: Path) -> Figures:
    try:
        loaded = start(tree, ["-c", SERVICE]).seconds
    except Unable:  # it is elsewhere there
        loaded = None
    return {HELP: start(tree, ["-c", COMMAND, "--help"]).seconds, LOADED: loaded}


def run_size(tree: Path, folder: Path) -> Figures:
    listed = subprocess.run(
        ["git", "-C", str(tree), "ls-files", "-z", *PACKAGES], capture_output=True, text=True, check=True
    ).stdout
    files = [tree / name for name in listed.split("\0") if name]
    return {SIZE: sum(file.stat().st_size for file in files if file.is_file()) / 1e6}


STEP_TIME, STEP_MEMORY = "a training step of the wrist model, batch 32", "memory of a process that trains"
LOOP_ABOVE = "a round of an empty loop, 10 devices x 10,000 floats, at the hospital"
LOOP_BELOW = "the same, at a device"
REPLAY = "a replay of 4 generated devices, one round, all its processes"
SIMULATE = "a simulation of 2 rounds with 10 of 20 clients"
IMPORT = "an import of an hour of three axes at 100 Hz"
HELP, LOADED = "`auscult --help`", "loading the service of a device"
SIZE = "files of the packages"


@dataclass(frozen=True)
class Run:
    """One short benchmark. `units`: figure that it gives -> its unit."""

    run: Callable[[Path, Path], Figures]
    units: Mapping[str, str]

    def measure(self, tree: Path, folder: Path) -> Figures:
        """Run it in a tree.

        Raises:
            Unable: it has failed there, or says something else than figures above 0.
        """
        try:
            found = self.run(tree, folder)
        except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
            raise Unable(f"{type(error).__name__}: {str(error)[:200]}") from error
        if wrong := {name: value for name, value in found.items() if value is not None and not value > 0}:
            raise Unable(f"figures that are not above 0: {wrong}")
        return found


RUNS = {
    "step": Run(run_step, {STEP_TIME: "ms", STEP_MEMORY: "MB"}),
    "loop": Run(run_loop, {LOOP_ABOVE: "ms", LOOP_BELOW: "ms"}),
    "replay": Run(run_replay, {REPLAY: "s"}),
    "simulate": Run(run_simulate, {SIMULATE: "s"}),
    "import": Run(run_import, {IMPORT: "s"}),
    "start": Run(run_start, {HELP: "s", LOADED: "s"}),
    "size": Run(run_size, {SIZE: "MB"}),
}
"""Name -> the benchmark."""
UNITS = {figure: unit for run in RUNS.values() for figure, unit in run.units.items()}
"""Figure -> its unit."""
