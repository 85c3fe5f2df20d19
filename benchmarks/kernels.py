"""Measures the floors of a training step: the time that no rewriting of its graph could save.

    python benchmarks/kernels.py BUNDLE BATCH [GRAPH ...]      one JSON object

kernels   the part of a step that onnxruntime spends in the nodes that multiply (convolutions, matrix products,
          recurrences), per graph: what would be left if everything else took no time. A part, because the profiler
          reads the clock on the wall, which other work on the machine stretches for all nodes alike
peak      milliseconds of these multiplications at the rate of a product of two matrices of 1024 x 1024: about the floor
          of any runtime that multiplies as often (onnxruntime's blocked convolutions are a few percent faster)
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from edge_sdk.model.model import Model
from edge_sdk.tools.profiling.step_cost import make_zeros

CONVOLUTIONS = ("Conv", "FusedConv", "ConvTranspose")
PRODUCTS = ("Gemm", "FusedGemm", "MatMul", "FusedMatMul")
RECURRENCES = ("GRU", "LSTM")
RUNS = 5

Event = Mapping[str, Any]


def profile(model: Model, graph: str, batch: int, folder: Path) -> list[Event]:
    """The profiler's events of each run of each node, over RUNS steps."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.enable_mem_pattern, options.log_severity_level = False, 3
    options.enable_profiling, options.profile_file_prefix = True, str(folder / graph)
    part = bytes(model.bundle.parts[f"{graph}.onnx"])
    session = ort.InferenceSession(part, options, providers=["CPUExecutionProvider"])
    names, rng = [i.name for i in session.get_inputs()], np.random.default_rng(0)
    for _ in range(RUNS):
        for step in model.batches(np.arange(batch)):
            x = rng.standard_normal((len(step), *model.input_shape)).astype(np.float32)
            feeds = {**make_zeros(model, len(step)), "x": x, "buffers": model.buffers0}
            session.run(None, {n: feeds[n] for n in names})
    events = json.loads(Path(session.end_profiling()).read_text())
    return [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]


def list_shapes(event: Event, side: str) -> list[list[int]]:
    return [next(iter(s.values())) for s in event["args"][f"{side}_type_shape"]]


def count_multiplications(event: Event) -> float:
    """The multiplications of one node.

    A convolution has all its taps for every output (a transposed one for every input), a product m k n.
    """
    op, given, made = event["args"]["op_name"], list_shapes(event, "input"), list_shapes(event, "output")[0]
    if op not in CONVOLUTIONS + PRODUCTS:
        return 0.0
    if op in CONVOLUTIONS:
        return prod(given[0] if op == "ConvTranspose" else made) * prod(given[1][1:])
    many = prod(made[:-2]) if len(given[1]) > 2 else 1
    return sqrt(prod(given[0]) * prod(given[1]) * prod(made) / many)


def sum_up_step(events: Iterable[Event]) -> tuple[float, float]:
    """The part of a step's time in nodes that multiply, and their multiplications, by the quickest run of each node."""
    runs: dict[tuple[str, str], list[Event]] = {}
    for e in events:
        runs.setdefault((e["name"], str(e["args"]["output_type_shape"])), []).append(e)
    spent = {k: min(e["dur"] for e in v) * len(v) for k, v in runs.items()}
    known = {*CONVOLUTIONS, *PRODUCTS, *RECURRENCES}
    inside = sum(us for k, us in spent.items() if runs[k][0]["args"]["op_name"] in known)
    return inside / sum(spent.values()), sum(count_multiplications(v[0]) * len(v) / RUNS for v in runs.values())


def measure_rate() -> float:
    """Multiplications per second of a large product."""
    a, times = np.ones((1024, 1024), np.float32), []
    for _ in range(12):
        start = time.process_time()
        a @ a
        times.append(time.process_time() - start)
    return 1024**3 / min(times)


def main() -> int:
    model, batch = Model(sys.argv[1], check=False, kernels="portable"), int(sys.argv[2])
    graphs = sys.argv[3:] or ["loss_grad"]
    with tempfile.TemporaryDirectory() as folder:
        found = [sum_up_step(profile(model, graph, batch, Path(folder))) for graph in graphs]
    peak = min(count for _, count in found) / measure_rate() * 1e3
    print(json.dumps({"kernels": [part for part, _ in found], "peak": peak}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
