"""Every model of the zoo: what the compiler makes of it, and its training step against torch eager.

    python benchmarks/compile.py [NAME ...] [--json] [--keep DIR] [--no-blocked]

For each: parameters, operators, file size, parity with float64 autograd, seconds to compile, milliseconds per step at batch
32 on one thread, and peak memory of a device process and of a torch process. Times are medians over blocks of processes that
take turns. Torch's own time depends on glibc's allocator: "default" is torch as installed, "tuned" keeps all memory.
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
# model -> step time as a multiple of torch's, portable operators (and with the blocked layout, where it differs)
TARGETS = {
    "mlp": (0.5, 0.5), "wrist": (0.7, 0.7), "signal": (0.7, 0.7), "lenet": (0.7, 0.7), "transformer": (0.7, 0.7),
    "gru": (0.4, 0.4), "gru2": (0.4, 0.4), "separable": (0.8, 0.8), "lstm": (1.25, 1.25), "lstm2": (1.25, 1.25),
}  # fmt: skip
RESIDUAL = (0.95, 0.8)
LARGE = ("resnet32x4", "resnet18")  # minutes each: only when named

COMPILE = """
import json, sys, time
import torch
torch.set_num_threads(1)
from pathlib import Path
from models.cli import plain_model
from models.compile import compile_module
import argparse
name, path, blocked = sys.argv[1:4]
torch.manual_seed(7)
args = argparse.Namespace(module=name, input=None, classes=None, groups=None, norm=None, loss="cross_entropy", below=None,
                          features="", blocked=blocked == "True")
start = time.perf_counter()
made = compile_module(*plain_model(args))
seconds = time.perf_counter() - start
made.save(Path(path))
print(json.dumps({"parameters": made.parameters, "operators": made.nodes["loss_grad"], "errors": made.errors,
                  "kB": len(made.data) / 1000, "compile_s": seconds}))
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


HEAD = (
    f"{'model':<13}{'params':>11}{'ops':>6}{'kB':>7}{'float64':>9}{'s':>6}{'ms':>8}{'torch':>8}{'ratio':>7}{'tuned':>7}"
    f"{'blocked':>9}{'target':>12}{'MB':>6}{'torch':>7}"
)


def row(name: str, r: dict) -> str:
    if "error" in r:
        return f"{name:<13}{r['error'][:100]}"
    ms, mb = r["ms"], r["MB"]
    target = TARGETS.get(name, RESIDUAL)
    ratio = ms["portable"] / ms["torch"]
    fast = ms["blocked"] / ms["torch"] if "blocked" in ms else None
    met = ratio <= target[0] or (fast is not None and fast <= target[1])
    met = met and (name in TARGETS or fast is None or (fast <= target[1] and ratio <= target[0]))
    goal = f"{target[0]}" if target[0] == target[1] else f"{target[0]}/{target[1]}"
    return (
        f"{name:<13}{r['parameters']:>11,}{r['operators']:>6}{r['kB']:>7.0f}{r['errors']['float64']:>9.0e}{r['compile_s']:>6.1f}"
        f"{ms['portable']:>8.2f}{ms['torch']:>8.2f}{ratio:>7.2f}{ms['portable'] / ms['tuned']:>7.2f}"
        f"{f'{fast:.2f}' if fast is not None else '-':>9}{goal + (' met' if met else ' NO'):>12}{mb['portable']:>6.0f}{mb['torch']:>7.0f}"
        + notes(r)
    )


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
            print(f"batch {BATCH}, one thread; torch's allocator: default, tuned: {TUNED}\n{HEAD}", flush=True)
        for name in args.names or [n for n in ZOO if n not in LARGE]:
            r = compiled(name, folder, not args.no_blocked)
            results[name] = r if "error" in r else {**r, **measured(name, r["bundle"], not args.no_blocked)}
            if not args.json:
                print(row(name, results[name]), flush=True)
    if args.json:
        print(json.dumps(results))
    else:
        print(f"{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
