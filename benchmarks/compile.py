"""Every model of the zoo: what the compiler makes of it, and its training step against torch eager.

    python benchmarks/compile.py [NAME ...] [--json] [--keep DIR] [--no-blocked]

For each: parameters, operators, file size, parity with float64 autograd, seconds to compile, milliseconds per step at
batch 32 on one thread, and peak memory of a device process and of a torch process. Times are processor time, medians
over blocks of processes that take turns. Torch's own time depends on glibc's allocator: "torch" is as installed,
"tuned" keeps all memory. Ratios are device / torch; "blocked" is the optional variant in onnxruntime's blocked layout.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from step import DEVICE, ROOT, TORCH, TUNED, Worker

BATCH, BLOCKS = 32, 7
SMALL = 100_000  # parameters: up to here memory and compile time have targets
MEMORY_TARGET, COMPILE_TARGET = 80.0, 10.0
# model -> step time as a multiple of torch's
TARGETS = {
    "mlp": 0.5, "wrist": 0.7, "signal": 0.7, "lenet": 0.7, "transformer": 0.7, "gru": 0.4, "gru2": 0.4,
    "separable": 0.8, "lstm": 1.25, "lstm2": 1.25,
}  # fmt: skip
# residual networks: with portable operators, and with the blocked layout
RESIDUAL = (0.95, 0.8)
LARGE = ("resnet32x4", "resnet18")  # minutes each: only when named

COMPILE = """
import argparse, json, sys, time
import torch
from pathlib import Path
from models.cli import plain_model
from models.compile import compile_module
torch.set_num_threads(1)
torch.manual_seed(7)
options = dict(input=None, classes=None, groups=None, norm=None, loss="cross_entropy", below=None, features="")
args = argparse.Namespace(module=sys.argv[1], blocked=sys.argv[3] == "True", **options)
start = time.perf_counter()
made = compile_module(*plain_model(args))
seconds = time.perf_counter() - start
made.save(Path(sys.argv[2]))
print(json.dumps({"parameters": made.parameters, "operators": made.nodes["loss_grad"], "errors": made.errors,
                  "blocked": "loss_grad+blocked" in made.nodes, "kB": len(made.data) / 1000, "compile_s": seconds}))
"""


def compiled(name: str, folder: Path, blocked: bool) -> dict:
    """Compile in a process of its own (so that its memory is not in the way), and what it said."""
    path = folder / f"{name}.bundle"
    command = [sys.executable, "-c", COMPILE, name, str(path), str(blocked)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return {**json.loads(done.stdout.splitlines()[-1]), "bundle": str(path)}


def measured(name: str, bundle: str, blocked: bool) -> dict:
    workers = {
        "portable": Worker(DEVICE, bundle, "portable"),
        "torch": Worker(TORCH, bundle, name),
        "tuned": Worker(TORCH, bundle, name, env=TUNED),
    }
    if blocked:
        workers["blocked"] = Worker(DEVICE, bundle, "blocked")
    times: dict[str, list[float]] = {k: [] for k in workers}
    for _ in range(BLOCKS):
        for kind, worker in workers.items():
            times[kind].append(worker.ask(BATCH))
    memory = {kind: worker.ask("memory") for kind, worker in workers.items()}
    for worker in workers.values():
        worker.close()
    return {"ms": {k: median(v) for k, v in times.items()}, "MB": memory}


COLUMNS = (
    ("model", 12), ("params", 11), ("ops", 6), ("kB", 7), ("float64", 8), ("s", 6), ("ms", 8), ("torch", 8),
    ("ratio", 6), ("tuned", 6), ("blocked", 8), ("target", 17), ("MB", 5), ("torch MB", 9),
)  # fmt: skip


def line(cells: list[str]) -> str:
    first, *rest = (
        f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, (_, w)) in enumerate(zip(cells, COLUMNS, strict=True))
    )
    return first + "".join(rest)


def row(name: str, r: dict) -> str:
    if "error" in r:
        return f"{name:<12} {r['error'][:100]}"
    ms, mb = r["ms"], r["MB"]
    ratio = ms["portable"] / ms["torch"]
    fast = ms["blocked"] / ms["torch"] if "blocked" in ms else None
    cells = [
        name, f"{r['parameters']:,}", str(r["operators"]), f"{r['kB']:.0f}", f"{r['errors']['float64']:.0e}",
        f"{r['compile_s']:.1f}", f"{ms['portable']:.2f}", f"{ms['torch']:.2f}", f"{ratio:.2f}",
        f"{ms['portable'] / ms['tuned']:.2f}", "-" if fast is None else f"{fast:.2f}", goal(name, ratio, fast),
        f"{mb['portable']:.0f}", f"{mb['torch']:.0f}",
    ]  # fmt: skip
    return line(cells) + notes(r)


def goal(name: str, ratio: float, fast: float | None) -> str:
    """The target, and whether it was met; where there are two, each by its own kernels, else by the better ones."""
    if name in TARGETS:
        best = min(ratio, ratio if fast is None else fast)
        return f"{TARGETS[name]} {'met' if best <= TARGETS[name] else 'NO'}"
    met = [ratio <= RESIDUAL[0], fast is not None and fast <= RESIDUAL[1]]
    return "/".join(f"{t} {'met' if m else 'NO'}" for t, m in zip(RESIDUAL, met, strict=True))


def notes(r: dict) -> str:
    small = r["parameters"] <= SMALL
    over = []
    if small and r["MB"]["portable"] > MEMORY_TARGET:
        over.append(f"memory > {MEMORY_TARGET:.0f} MB")
    if small and r["compile_s"] > COMPILE_TARGET:
        over.append(f"compile > {COMPILE_TARGET:.0f} s")
    return "  " + ", ".join(over) if over else ""


def main() -> int:
    from models.zoo import ZOO

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ZOO)} (default: all but {', '.join(LARGE)})")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder for the bundles")
    parser.add_argument("--no-blocked", action="store_true")
    args = parser.parse_args()
    results, start = {}, time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not args.json:
            print(f"batch {BATCH}, one thread; torch's allocator: default; tuned: {TUNED}", flush=True)
            print(line([c for c, _ in COLUMNS]), flush=True)
        for name in args.names or [n for n in ZOO if n not in LARGE]:
            r = compiled(name, folder, not args.no_blocked)
            results[name] = r if "error" in r else {**r, **measured(name, r["bundle"], r["blocked"])}
            if not args.json:
                print(row(name, results[name]), flush=True)
    if args.json:
        print(json.dumps(results))
    else:
        print(f"{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
