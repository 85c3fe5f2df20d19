"""The cost of a bundle on this machine: milliseconds per step, and the memory of a process that does nothing else.

    python -m edge_sdk.tools.profiling.step_cost FILE [BATCH]      one JSON object

Measured in a fork, so that the memory that onnxruntime takes is given back, and a crash of it is an error like others.
What the command had loaded before is counted, which is little: it has read the bundle.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from edge_sdk.hardware.probe import peak_memory_mb
from edge_sdk.model.bundle import BundleError
from edge_sdk.model.manifest import FROM_FRONT, FRONT, read_front
from edge_sdk.model.model import Model
from edge_sdk.tools.profiling.forked import ForkError, run_forked

BATCH, STEPS = 32, 15
PATIENCE = 600.0
"""Seconds that the measurement may take."""


def measure(bundle: Path, batch: int = BATCH) -> dict[str, Any]:
    """Measures the cost of one batch of zeros in a fork of this process.

    Returns:
        "load s": until the golden vectors have passed. "predict ms", "loss_grad ms": medians, whole batches, a step
        of training behind the bundle's front if it has one; then "front ms" is what that takes, once for a sample.
        "peak MB": of the process. "batch", "threads". "kernels": those that were used, in words.

    Raises:
        BundleError: the process failed, with what it said.
    """
    try:
        found: dict[str, Any] = run_forked(lambda: measure_file(bundle, batch), patience=PATIENCE)
    except ForkError as error:
        raise BundleError(f"{bundle}: a step could not be measured: {error}") from error
    return found


def measure_file(bundle: Path, batch: int) -> dict[str, Any]:
    """Measures loading as well, in this process."""
    start = time.perf_counter()
    model = Model(bundle)
    loaded = time.perf_counter() - start
    return {"load s": loaded, "kernels": model.choice.describe(), **measure_here(model, batch)}


def measure_here(model: Model, batch: int) -> dict[str, float]:
    """Measures the same in this process, whose peak memory then counts what was loaded before."""
    out = {f"{graph} ms": median(time_runs(model, graph, batch)) * 1e3 for graph in ("predict", "loss_grad")}
    if model.has_front:
        out[f"{FRONT} ms"] = median(time_runs(model, FRONT, batch)) * 1e3
    return out | {"batch": batch, "threads": model.threads, "peak MB": peak_memory_mb()}


def time_runs(model: Model, graph: str, batch: int) -> list[float]:
    """Seconds of each of STEPS runs of a graph; a batch goes through in as many steps as the bundle needs.

    Training begins behind the bundle's front, as it does on a device.
    """
    graph = graph + FROM_FRONT if graph == "loss_grad" and model.has_front else graph
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
    declared = [*model.bundle.manifest["inputs"], *read_front(model.bundle.manifest)]
    return feeds | {i["name"]: np.zeros((batch, *i["shape"]), i["dtype"]) for i in declared}


if __name__ == "__main__":
    print(json.dumps(measure_here(Model(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else BATCH)))
