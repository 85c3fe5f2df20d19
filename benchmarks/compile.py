"""Compiles every model of the zoo and measures its training step against torch eager.

    python benchmarks/compile.py [NAME ...] [--json] [--keep DIR] [--no-blocked]

For each: parameters, operators, file size, parity with float64 autograd, processor seconds to compile, milliseconds per
step at batch 32 on one thread, and peak memory of a device process and of a torch process that do nothing else. Times
are processor time. All kinds take turns in short blocks; the time of a kind is that of its quickest block, when other
work on the machine disturbed it least. Torch's own time depends on glibc's allocator: "torch" is as installed, "tuned"
keeps all memory.

ratio     device with portable operators / torch
tuned     the same against tuned torch
blocked   device with the optional blocked layout / torch
kernels   only onnxruntime's convolutions and matrix products / torch, in the portable and the blocked graph: what would
          be left if everything else took no time
peak      the multiplications of these at the rate of a large matrix product on this machine / torch: about the floor
          of any runtime that multiplies as often
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from step import DEVICE, ONE_THREAD, ROOT, TORCH, TUNED, Worker

BATCH, BLOCKS = 32, 9
LONG = 400.0  # milliseconds per step: from here on fewer blocks
SMALL = 100_000  # parameters: up to here memory and compile time have targets
MEMORY_TARGET, COMPILE_TARGET = 80.0, 10.0
# model -> step time as a multiple of torch's
TARGETS = {
    "mlp": 0.5, "wrist": 0.7, "signal": 0.7, "lenet": 0.7, "transformer": 0.7, "gru": 0.4, "gru2": 0.4,
    "separable": 0.8, "lstm": 1.25, "lstm2": 1.25,
}  # fmt: skip
# residual networks: with portable operators, and with the blocked layout
RESIDUAL = (0.95, 0.8)
COMPILE = """
import argparse, json, sys, time
import torch
from pathlib import Path
from edge_sdk.models.cli import add_parsers, read_module
from edge_sdk.models.bundle.compile import compile_module
torch.set_num_threads(1)
torch.manual_seed(7)
parser = argparse.ArgumentParser()
add_parsers(parser.add_subparsers())
args = parser.parse_args(["compile", sys.argv[1], *(["--blocked"] if sys.argv[3] == "True" else [])])
start = time.process_time()
made = compile_module(*read_module(args))
seconds = time.process_time() - start
made.save(Path(sys.argv[2]))
print(json.dumps({"parameters": made.parameters, "operators": made.nodes["loss_grad"], "errors": made.errors,
                  "blocked": "loss_grad+blocked" in made.nodes, "kB": len(made.data) / 1000, "compile_s": seconds}))
"""


def compile_model(name: str, folder: Path, blocked: bool) -> dict:
    """Compile in a process of its own, whose memory is then free again; the figures that it printed."""
    path = folder / f"{name}.bundle"
    command = [sys.executable, "-c", COMPILE, name, str(path), str(blocked)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return {**json.loads(done.stdout.splitlines()[-1]), "bundle": str(path)}


def measure(name: str, bundle: str, blocked: bool) -> dict:
    """Milliseconds per step and megabytes of each kind of step, and the floors in milliseconds."""
    workers = {
        "portable": Worker(DEVICE, bundle, "portable"),
        "torch": Worker(TORCH, bundle, name),
        "tuned": Worker(TORCH, bundle, name, env=TUNED),
    }
    if blocked:
        workers["blocked"] = Worker(DEVICE, bundle, "blocked")
    times: dict[str, list[float]] = {k: [] for k in workers}
    for block in range(BLOCKS):
        if block < 3 or times["portable"][0] < LONG:
            for kind, worker in workers.items():
                times[kind].append(worker.ask(BATCH))
    memory = {kind: worker.ask("memory") for kind, worker in workers.items()}
    for worker in workers.values():
        worker.close()
    ms = {k: min(v) for k, v in times.items()}
    return {"ms": ms, "MB": memory, "floor": measure_floors(bundle, ms)}


def measure_floors(bundle: str, ms: dict[str, float]) -> dict:
    """Milliseconds per step in onnxruntime's products and convolutions alone, and at this machine's peak."""
    graphs = {"portable": "loss_grad", "blocked": "loss_grad+blocked"}
    kinds = [kind for kind in graphs if kind in ms]
    command = [
        sys.executable,
        str(Path(__file__).with_name("kernels.py")),
        bundle,
        str(BATCH),
        *(graphs[k] for k in kinds),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **ONE_THREAD})
    if done.returncode:
        raise SystemExit(f"{bundle}: the kernels could not be measured: {done.stderr.strip()[-300:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    inside = {kind: ms[kind] * part for kind, part in zip(kinds, found["kernels"], strict=True)}
    return {"kernels": inside, "peak": found["peak"]}


COLUMNS = (
    ("model", 12), ("params", 11), ("ops", 6), ("kB", 7), ("float64", 8), ("s", 6), ("ms", 8), ("torch", 8),
    ("ratio", 6), ("tuned", 6), ("blocked", 8), ("target", 17), ("kernels", 11),
    ("peak", 6), ("MB", 5), ("torch MB", 9),
)  # fmt: skip


def join_cells(cells: list[str]) -> str:
    first, *rest = (
        f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, (_, w)) in enumerate(zip(cells, COLUMNS, strict=True))
    )
    return first + "".join(rest)


def write_row(name: str, r: dict) -> str:
    if "error" in r:
        return f"{name:<12} {r['error'][:100]}"
    ms, mb = r["ms"], r["MB"]
    ratio = ms["portable"] / ms["torch"]
    fast = ms["blocked"] / ms["torch"] if "blocked" in ms else None
    cells = [
        name, f"{r['parameters']:,}", str(r["operators"]), f"{r['kB']:.0f}", f"{r['errors']['float64']:.0e}",
        f"{r['compile_s']:.1f}", f"{ms['portable']:.2f}", f"{ms['torch']:.2f}", f"{ratio:.2f}",
        f"{ms['portable'] / ms['tuned']:.2f}", "-" if fast is None else f"{fast:.2f}", judge(name, ratio, fast),
        "/".join(f"{v / ms['torch']:.2f}" for v in r["floor"]["kernels"].values()),
        f"{r['floor']['peak'] / ms['torch']:.2f}", f"{find_memory(r):.0f}", f"{mb['torch']:.0f}",
    ]  # fmt: skip
    return join_cells(cells) + list_missed(r)


def judge(name: str, ratio: float, fast: float | None) -> str:
    """The target, and "met" or "NO"; two targets are each for their own kernels, one is for the better ones."""
    if name in TARGETS:
        best = min(ratio, ratio if fast is None else fast)
        return f"{TARGETS[name]} {'met' if best <= TARGETS[name] else 'NO'}"
    met = [ratio <= RESIDUAL[0], fast is not None and fast <= RESIDUAL[1]]
    return "/".join(f"{t} {'met' if m else 'NO'}" for t, m in zip(RESIDUAL, met, strict=True))


def find_memory(r: dict) -> float:
    """Megabytes of a device process, with whichever kernels need more."""
    return float(max(v for k, v in r["MB"].items() if k in ("portable", "blocked")))


def list_missed(r: dict) -> str:
    """The missed ones of the targets that only small models have."""
    over = []
    if r["parameters"] <= SMALL and round(find_memory(r)) > MEMORY_TARGET:
        over.append(f"memory > {MEMORY_TARGET:.0f} MB")
    if r["parameters"] <= SMALL and r["compile_s"] > COMPILE_TARGET:
        over.append(f"compile > {COMPILE_TARGET:.0f} s")
    return "  " + ", ".join(over) if over else ""


def main() -> int:
    from edge_sdk.models.gate.references.blocks import find_block
    from edge_sdk.models.zoo import ZOO

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ZOO)} (default: all)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder for the bundles")
    parser.add_argument("--no-blocked", action="store_true")
    args = parser.parse_args()
    results, start = {}, time.perf_counter()
    blocked = not args.no_blocked and find_block() > 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not args.json:
            print(f"batch {BATCH}, one thread; torch's allocator: default; tuned: {TUNED}", flush=True)
            if not blocked and not args.no_blocked:
                print("onnxruntime has no blocked layout on this machine: portable graphs only")
            print(join_cells([c for c, _ in COLUMNS]), flush=True)
        for name in args.names or ZOO:
            r = compile_model(name, folder, blocked)
            results[name] = r if "error" in r else {**r, **measure(name, r["bundle"], r["blocked"])}
            if not args.json:
                print(write_row(name, results[name]), flush=True)
    if args.json:
        print(json.dumps(results))
    else:
        print(f"{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
