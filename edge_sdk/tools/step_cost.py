"""The cost of a bundle on this machine: milliseconds per step, and the memory of a process that does nothing else.

    python -m edge_sdk.tools.step_cost FILE [BATCH]      one JSON object

Measured in a process of its own, so that neither a compiler nor anything else that was loaded before counts as the
device's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from edge_sdk.model.bundle import BundleError
from edge_sdk.model.model import Model
from hardware.probe import peak_memory_mb

BATCH, STEPS = 32, 15


def measure(bundle: Path, batch: int = BATCH) -> dict[str, float]:
    """Measures the cost of one batch of zeros in a new process.

    Returns:
        "predict ms", "loss_grad ms": medians, whole batches. "peak MB": of the process. "batch", "threads".

    Raises:
        BundleError: the process failed, with the end of what it said.
    """
    command = [sys.executable, "-m", "edge_sdk.tools.step_cost", str(bundle), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise BundleError(f"{bundle}: a step could not be measured: {said[-1][:300]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_here(model: Model, batch: int) -> dict[str, float]:
    """Measures the same in this process, whose peak memory then counts what was loaded before."""
    out = {f"{graph} ms": median(time_runs(model, graph, batch)) * 1e3 for graph in ("predict", "loss_grad")}
    return out | {"batch": batch, "threads": model.threads, "peak MB": peak_memory_mb()}


def time_runs(model: Model, graph: str, batch: int) -> list[float]:
    """Seconds of each of STEPS runs of a graph; a batch goes through in as many steps as the bundle needs."""
    sizes = [len(part) for part in model.batches(np.arange(batch))]
    feeds = {size: make_zeros(model, size) for size in sizes}
    found = []
    for _ in range(STEPS):
        start = time.perf_counter()
        for size in sizes:
            model.run(graph, feeds[size], None)
        found.append(time.perf_counter() - start)
    return found


def make_zeros(model: Model, batch: int) -> Mapping[str, Any]:
    """Makes the inputs of one batch, all zero."""
    feeds: dict[str, Any] = {"theta": model.theta0, "weights": np.full(batch, 1 / batch, np.float32)}
    feeds["y"] = np.zeros(batch, np.int64) if model.classes else np.zeros((batch, *model.output_shape), np.float32)
    return feeds | {i["name"]: np.zeros((batch, *i["shape"]), i["dtype"]) for i in model.bundle.manifest["inputs"]}


if __name__ == "__main__":
    print(json.dumps(measure_here(Model(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else BATCH)))
