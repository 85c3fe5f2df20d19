"""Measures what storing activations in float16 between forward and backward pass would save with stock onnxruntime.

    python benchmarks/half.py BUNDLE ... [--batch 8 32]

Each value of the forward pass that the backward pass reads again is rounded to float16 where it is made; both passes
read it widened back to float32 when they need it, so that between them only half as many bytes are kept. Told are
processor ms of a step and peak MB of a process for the graph as it is and for this one, and the relative difference of
the gradients. No bundle is written: the figures say that it is not worth an option (models/README.md, "Memory").
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from edge_sdk.model.model import Model

STEPS = 5


def list_stored(model: onnx.ModelProto) -> list[str]:
    """Large values that are made before the loss and read after it."""
    nodes = model.graph.node
    loss = next(i for i, n in enumerate(nodes) if "y" in n.input)
    made = {o for n in nodes[:loss] for o in n.output}
    read = {i for n in nodes[loss:] for i in n.input}
    known = onnx.shape_inference.infer_shapes(model).graph.value_info
    floats = [v for v in known if v.type.tensor_type.elem_type == TensorProto.FLOAT]
    batched = [v.name for v in floats if len(d := v.type.tensor_type.shape.dim) >= 3 and d[0].dim_param]
    return [name for name in batched if name in made & read]


def store_halves(model: onnx.ModelProto) -> int:
    """Rewrite a graph in place; the number of values that are stored in float16."""
    stored, nodes = set(list_stored(model)), list(model.graph.node)
    loss = next(i for i, n in enumerate(nodes) if "y" in n.input)
    written, widened = list[onnx.NodeProto](), set[str]()
    for i, n in enumerate(nodes):
        for k, name in enumerate(n.input):
            if i >= loss and name in stored:
                if name not in widened:
                    widened.add(name)
                    written += widen_again(name)
                n.input[k] = f"{name}.late"
        written.append(n)
        for k, name in enumerate(n.output):
            if name in stored:
                n.output[k] = f"{name}.raw"
                written.append(helper.make_node("Cast", [f"{name}.raw"], [f"{name}.half"], to=TensorProto.FLOAT16))
                written.append(helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
    del model.graph.node[:]
    model.graph.node.extend(written)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "half.axis"))
    return len(stored)


def widen_again(name: str) -> list[onnx.NodeProto]:
    """A second cast to float32, in another shape: onnxruntime would join equal ones, and keep the result all along."""
    return [
        helper.make_node("Unsqueeze", [f"{name}.half", "half.axis"], [f"{name}.wide"]),
        helper.make_node("Cast", [f"{name}.wide"], [f"{name}.float"], to=TensorProto.FLOAT),
        helper.make_node("Squeeze", [f"{name}.float", "half.axis"], [f"{name}.late"]),
    ]


def run_graph(path: Path, batch: int) -> None:
    """Measure one graph in this process, and keep its gradient."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.enable_mem_pattern, options.log_severity_level = 1, False, 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kept = dict(np.load(path.parent / "feeds.npz"))
    for name in set(kept) - {"theta", "buffers"}:
        kept[name] = np.resize(kept[name], (batch, *kept[name].shape[1:]))
    kept["weights"] = np.full(batch, 1 / batch, np.float32)
    times, grad = [], np.zeros(0)
    for _ in range(STEPS):
        began = time.process_time()
        grad = session.run(["grad"], {i.name: kept[i.name] for i in session.get_inputs()})[0]
        times.append(time.process_time() - began)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    np.save(path.with_suffix(".npy"), grad)
    print(json.dumps({"ms": 1e3 * min(times), "MB": int(peak.split()[1]) / 1024}))


def measure(bundle: Path, batches: list[int], folder: Path) -> None:
    """Print one line for each batch size."""
    model = Model(bundle, check=False)
    if model.drop_sites:
        raise SystemExit(f"{bundle}: compile it with --dropout off")
    feeds = {k[3:]: v for k, v in model.bundle.golden().items() if k.startswith("in.")} | {"theta": model.theta0}
    np.savez(folder / "feeds.npz", **feeds, **({"buffers": model.buffers0} if model.buffers0.size else {}))
    graph = onnx.load_from_string(bytes(model.bundle.parts["loss_grad.onnx"]))
    onnx.save(graph, folder / "full.onnx")
    stored = store_halves(graph)
    onnx.save(graph, folder / "half.onnx")
    for batch in batches:
        told = {}
        for kind in ("full", "half"):
            command = [sys.executable, __file__, "--run", str(folder / f"{kind}.onnx"), "--batch", str(batch)]
            told[kind] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        full, half = (np.load(folder / f"{kind}.npy") for kind in told)
        change = float(np.linalg.norm(half - full) / np.linalg.norm(full))
        times, sizes = (" -> ".join(f"{t[k]:.1f}" for t in told.values()) for k in ("ms", "MB"))
        print(f"{bundle.stem:<20} batch {batch:>3}: {stored} values, ms {times}, MB {sizes}, gradient {change:.0e}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*", type=Path)
    parser.add_argument("--batch", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run_graph(args.run, args.batch[0])
        return 0
    for bundle in args.bundles:
        with tempfile.TemporaryDirectory() as folder:
            measure(bundle, args.batch, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
