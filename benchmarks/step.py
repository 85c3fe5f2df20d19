"""One training step of a device against torch eager, and the memory of a device process.

    python benchmarks/step.py [--json] [--bundle FILE]

Both run in processes of their own, one thread each, and take turns. Times are processor time, which other work on the
machine disturbs less than the clock on the wall; medians over blocks. Torch's time depends
on how glibc hands memory back, so the setting is printed: "default" is torch as installed, "tuned" keeps all memory
(MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1073741824).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
BUNDLE = ROOT / "models" / "shipped" / "wrist.bundle"
BATCHES = (20, 32)
BLOCKS = 15
STEP_TARGET, MEMORY_TARGET = 0.8, 90.0
TUNED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

# A worker reads a batch size per line and answers with the milliseconds per step of one block, or with its peak memory.
COMMON = """
import sys, time
def peak():
    # not getrusage: that starts from what the parent process had
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
def serve(step_for, seconds=0.15):
    steps = {}
    for line in sys.stdin:
        if line.strip() == "memory":
            print(peak(), flush=True)
            continue
        batch = int(line)
        if batch not in steps:
            steps[batch] = step_for(batch)
            for _ in range(5):
                steps[batch]()
        step, count, start = steps[batch], 0, time.process_time()
        while (passed := time.process_time() - start) < seconds:
            step()
            count += 1
        print(passed / count * 1e3, flush=True)
"""

DEVICE = """
import msgpack, numpy as np, paho.mqtt.client
from edge_sdk.model.model import Model
model = Model(sys.argv[1], kernels=sys.argv[2] if len(sys.argv) > 2 else "auto")
def step_for(batch):
    rng = np.random.default_rng(batch)
    x = rng.standard_normal((batch, *model.input_shape)).astype(np.float32)
    f = model.grad_fn(x, rng.integers(0, model.classes, batch))
    theta = model.theta0.copy()
    def step():
        theta[:] -= np.float32(1e-4) * f(theta)[1]
    return step
serve(step_for)
"""

TORCH = """
import torch
torch.set_num_threads(1)
from edge_sdk.models.zoo import ZOO
entry = ZOO[sys.argv[2]]
net = entry.build().train()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
def step_for(batch):
    x, y = torch.randn(batch, *entry.input), torch.randint(0, entry.classes, (batch,))
    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return step
serve(step_for)
"""


class Worker:
    """A process that times steps when asked."""

    def __init__(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMON + code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, **(env or {})},
        )

    def ask(self, question: object) -> float:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def measure(bundle: Path, model: str) -> dict:
    """Milliseconds per step and peak memory in MB, of the device and of torch with both allocator settings."""
    workers = {
        "device": Worker(DEVICE, str(bundle)),
        "torch": Worker(TORCH, str(bundle), model),
        "torch tuned": Worker(TORCH, str(bundle), model, env=TUNED),
    }
    times = {b: {k: [] for k in workers} for b in BATCHES}
    for _ in range(BLOCKS):
        for batch in BATCHES:
            for name, worker in workers.items():
                times[batch][name].append(worker.ask(batch))
    memory = {name: worker.ask("memory") for name, worker in workers.items()}
    for worker in workers.values():
        worker.close()
    return {
        "ms": {b: {k: median(v) for k, v in row.items()} for b, row in times.items()},
        "memory_mb": memory,
        "allocator": {"torch": "default", "torch tuned": " ".join(f"{k}={v}" for k, v in TUNED.items())},
        "targets": {"step": STEP_TARGET, "memory_mb": MEMORY_TARGET},
    }


def write_table(result: dict) -> str:
    rows = [f"{'batch':>6} {'device ms':>10} {'torch ms':>9} {'ratio':>6} {'tuned ms':>9} {'ratio':>6}"]
    for batch, ms in result["ms"].items():
        a, b, c = ms["device"], ms["torch"], ms["torch tuned"]
        rows.append(f"{batch:>6} {a:>10.2f} {b:>9.2f} {a / b:>6.2f} {c:>9.2f} {a / c:>6.2f}")
    worst = max(ms["device"] / ms["torch"] for ms in result["ms"].values())
    memory = result["memory_mb"]["device"]
    rows += [
        f"torch's allocator: default; tuned: {result['allocator']['torch tuned']}",
        write_line(f"step: {worst:.2f} x torch as installed", f"{STEP_TARGET} x", worst <= STEP_TARGET),
        write_line(f"peak memory of a device: {memory:.0f} MB", f"{MEMORY_TARGET:.0f} MB", memory <= MEMORY_TARGET)
        + f"; torch: {result['memory_mb']['torch']:.0f} MB",
    ]
    return "\n".join(rows)


def write_line(text: str, target: str, met: bool) -> str:
    return f"{text} (target <= {target}: {'met' if met else 'MISSED'})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--bundle", type=Path, default=BUNDLE)
    parser.add_argument("--model", default="wrist", help="name in the zoo of the bundle's torch definition")
    args = parser.parse_args()
    result = measure(args.bundle.resolve(), args.model)
    print(json.dumps(result) if args.json else write_table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
