"""Memory of a device, step by step: what Python, numpy, onnxruntime, our modules, samples, graphs and a forest take.

    auscult replay --demo --rounds 6 --no-neighbours --no-local-only --out runs/light
    python benchmarks/device_memory.py runs/light [NAME]

NAME is a device of that replay; its part of the run's work is done again here, in one process and without a network.
Resident memory includes pages of libraries, which all processes share; "own" is what this process alone has. "floor" is
a process that has numpy, onnxruntime and one session, that of a training step of the same bundle, and nothing of ours;
below it stands what msgpack, paho-mqtt and sqlite3 add to that.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

MOST = 100
"""Steps of training that are done: after them no step takes more."""
TREES = 100
FLOOR = """
import sys
from benchmarks.device_memory import Table
import numpy, onnxruntime as ort
table = Table()
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = ort.InferenceSession(open(sys.argv[1], "rb").read(), options, ["CPUExecutionProvider"])
table.note("floor")
import numpy.random, sqlite3, ssl, msgpack, paho.mqtt.client
table.note("floor with the other packages, and random numbers")
"""


def read_memory() -> dict[str, float]:
    """Memory of this process in MiB: "resident", "own" (private pages), and the "peak" of what was resident."""
    found = {"resident": 0.0, "own": 0.0, "peak": 0.0}
    names = {"Rss:": "resident", "Private_Clean:": "own", "Private_Dirty:": "own"}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        key, value = line.split()[:2]
        if key in names:
            found[names[key]] += int(value) / 2**10
    status = Path("/proc/self/status").read_text().splitlines()
    found["peak"] = next(int(line.split()[1]) / 2**10 for line in status if line.startswith("VmHWM"))
    return found


class Table:
    """What is printed: a line for each step, with what it added."""

    def __init__(self) -> None:
        self.before = 0.0

    def head(self) -> None:
        print(f"{'':50} {'resident':>9} {'added':>6} {'own':>6} {'peak':>6}  MB")

    def note(self, step: str) -> None:
        found = read_memory()
        added, self.before = found["resident"] - self.before, found["resident"]
        print(f"{step:50} {found['resident']:9.1f} {added:6.1f} {found['own']:6.1f} {found['peak']:6.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replay", type=Path)
    parser.add_argument("device", nargs="?", default="patient-01-left")
    asked = parser.parse_args()
    table = Table()
    table.head()
    table.note("Python")
    import numpy  # noqa: F401

    table.note("numpy")
    import sqlite3  # noqa: F401
    import ssl  # noqa: F401

    import msgpack  # noqa: F401
    import paho.mqtt.client  # noqa: F401

    table.note("msgpack, paho-mqtt, sqlite3")
    import edge_sdk.nodes.daemon.device_service
    import edge_sdk.nodes.daemon.serve

    edge_sdk.nodes.daemon.serve.keep_memory_small()
    ours = sum(name.partition(".")[0] == "edge_sdk" for name in sys.modules)
    table.note(f"{ours} modules of the service")
    import onnxruntime  # noqa: F401

    table.note("onnxruntime")
    play(asked.replay, asked.device, table)
    with tempfile.NamedTemporaryFile(suffix=".onnx") as graph:
        Path(graph.name).write_bytes(find_graph(asked.replay / "model.bundle"))
        subprocess.run([sys.executable, "-c", FLOOR, graph.name], check=True)


def find_graph(bundle: Path) -> bytes:
    """The graph of a training step of a bundle."""
    from edge_sdk.model.bundle import read_bundle

    return bytes(read_bundle(bundle).parts["loss_grad.onnx"])


def play(folder: Path, name: str, table: Table) -> None:
    """The work of a device in a run that settles, one kind after the other."""
    import numpy as np

    from edge_sdk.nodes.configuration.assembly import make_assembly
    from edge_sdk.nodes.configuration.settings import read_toml
    from edge_sdk.nodes.daemon.device_file import DeviceFile
    from edge_sdk.nodes.daemon.device_service import DeviceService

    file = read_toml(folder / "config" / f"{name}.toml", DeviceFile)
    service = DeviceService(file)
    device = service.device.part
    table.note("samples read, bundle checked, service made")
    run = read_run(folder / "config" / "aggregator.toml", device.model.bundle.sha256)
    env = device.env(run)
    table.note("unlabelled samples, kernels of the run")
    make_assembly(run, "device", env)
    ours = sum(each.partition(".")[0] == "edge_sdk" for each in sys.modules)
    table.note(f"codecs of the run, now {ours} modules of ours")
    random, theta = np.random.default_rng(0), device.model.theta0
    assert env.grad_fn is not None and env.own is not None
    for _ in range(MOST):
        env.grad_fn(theta, None)
        if env.augmented is not None:
            env.augmented(theta, random.integers(env.samples, size=min(64, env.samples)), random)
    table.note("training steps on changed copies")
    if env.feature_means is not None:
        env.feature_means()
        table.note("means of all features")
    from edge_sdk.algebra.forest import grow, vote

    x = env.own.features(3, random)
    table.note(f"features of {len(x)} samples and copies")
    every = np.concatenate([x, env.own.unlabelled()])
    forest = grow(every, random.integers(len(run.classes), size=len(every)), len(run.classes), TREES, random)
    table.note(f"a forest of {TREES} trees, {len(forest.label)} nodes")
    vote(forest, env.own.unlabelled())
    table.note("votes on unlabelled samples")
    env.own.logits(theta)
    table.note("outputs for unlabelled samples")
    fields = env.own.taught(np.arange(env.own.count), np.zeros(env.own.count, np.int64))
    for _ in range(MOST):
        (fields.get("augmented") or fields["grad_fn"])(theta, np.arange(64), random)
    table.note("training steps on samples it labelled")


def read_run(path: Path, bundle: str) -> Any:
    """The run of an aggregator's settings file."""
    from dataclasses import fields
    from math import inf

    from edge_sdk.contract.run import Run

    said = tomllib.loads(path.read_text())["run"]
    known = {field.name for field in fields(Run)}
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items() if key in known}
    return Run(**{**given, "deadline": inf, "bundle": bundle})


if __name__ == "__main__":
    main()
