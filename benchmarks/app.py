"""What the SDK costs an application: predicting, observing, storing, and the memory of a process with all of it on.

    python benchmarks/app.py [--json] [--samples 10000000]

Each figure is from a process of its own, one thread for linear algebra. predict: one window, the median over blocks
that take turns, against onnxruntime's own call on the same graph and arrays. observe: sustained, so the time until all
is cut and saved counts; memory is the process's own after a tenth and at the end. Rates are per second of processor
time, all threads of the process together, which other work on the machine disturbs less than the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
BUNDLE = ROOT / "models" / "shipped" / "wrist.bundle"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PREDICT_TARGET, MEMORY_TARGET = 1.3, 90.0

COMMON = """
import json, sys, time
def memory():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
directory, bundle, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
began = time.perf_counter()
import numpy as np
from edge_sdk import Device, LocalTraining, Recording, StoreLimits
def make(**more):
    return Device("d", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=directory, **more)
"""

PREDICT = """
import onnxruntime as ort
device = make()
model = device.part.model
x = np.random.default_rng(0).normal(size=(1, *model.input_shape)).astype(np.float32)
session = model.session("predict")._session
feeds = {"theta": model.theta0, "x": x}
def block(call, n=150):
    start = time.process_time()
    for _ in range(n):
        call()
    return (time.process_time() - start) / n * 1e6
calls = {"bare": lambda: session.run(None, feeds), "predict": lambda: device.predict(x)}
found = {name: [] for name in calls}
for _ in range(40):
    for name, call in calls.items():
        found[name].append(block(call))
print(json.dumps(found))
"""

FOOTPRINT = """
import onnxruntime as ort
from edge_sdk.model.bundle import read_bundle
before, x = memory(), np.zeros((1, 3, 64), np.float32)
if sys.argv[4] == "bare":
    read = read_bundle(bundle)
    graph, theta = bytes(read.parts["predict.onnx"]), read.theta0
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    predict = lambda: session.run(None, {"theta": theta, "x": x})
else:
    device = make()
    predict = lambda: device.predict(x)
for _ in range(count):
    predict()
print(json.dumps(memory() - before))
"""

OBSERVE = """
device = make(training=LocalTraining(recording=Recording(limits=StoreLimits(megabytes=64, days=1e5))))
size, at, rate = int(sys.argv[4]), 0, 32.0
block = np.random.default_rng(0).normal(size=(size, 3)).astype(np.float32)
block = block[0] if size == 1 else block
each, memories, start = 1024 // size, [], time.process_time()
while at < count:
    for _ in range(each):
        device.observe(block, time=1.7e9 + at / rate)
        at += size
    device.live.open().flush()
    if len(memories) < 10 * at // count:
        memories.append(memory())
seconds = time.process_time() - start
lost = device.live.open().lost
windows = sum(device.count_windows().values())
device.close()
print(json.dumps({"per_second": at / seconds, "memory": memories, "windows": windows, "lost": lost}))
"""

STORE = """
from pathlib import Path
from edge_sdk.data.live.windower import LiveWindows
from edge_sdk.data.store.cipher import read_key
from edge_sdk.data.store.frozen import freeze
from edge_sdk.data.store.sample_store import SampleStore
n = count
x = np.random.default_rng(0).normal(size=(n, 3, 64)).astype(np.float32)
t = 1.7e9 + np.arange(n, dtype=float)
windows = LiveWindows(x, t, t + 1.9, (t // 300).astype(np.int64))
store = SampleStore(Path(directory), (3, 64), StoreLimits(megabytes=200), read_key(b"k" * 32 if sys.argv[4] else None))
def timed(what):
    start = time.process_time()
    what()
    return n / (time.process_time() - start)
found = {"add": timed(lambda: store.add(windows))}
found["label"] = timed(lambda: store.label("walk", 1.7e9, 1.7e9 + 2 * n))
found["freeze"] = timed(lambda: freeze(store, Path(directory), "r", lambda x: x))
found["bytes_each"] = sum(p.stat().st_size for p in Path(directory).glob("*.db*")) / n
print(json.dumps(found))
"""

OVERHEAD = """
imported = time.perf_counter() - began
after_import = memory()
device = make(training=LocalTraining(recording=Recording(limits=StoreLimits(megabytes=64, days=1e5, held_out=0.0))))
made = memory()
from edge_sdk import Run
rng = np.random.default_rng(0)
with device:
    stream = device.predictions(smooth=3)
    for second in range(2000):
        device.observe(rng.normal(size=(32, 3)).astype(np.float32), time=1.7e9 + second)
        if second % 20 == 19:
            device.live.open().flush()
            next(stream)
    device.label("a", 1.7e9, 1.7e9 + 1000)
    device.label("b", 1.7e9 + 1000, 1.7e9 + 2000)
    env = device.part.env(Run(id="r", method="fedavg", bundle=device.part.model.sha256, classes=("a", "b")))
    theta = env.theta0
    for step in range(50):
        theta = theta - 0.01 * env.grad_fn(theta, rng.integers(0, env.samples, 20))[1]
    device.predict(rng.normal(size=(1, 3, 64)).astype(np.float32))
    print(json.dumps({"import_seconds": imported, "after_import": after_import, "made": made, "peak": peak()}))
"""


def measure(code: str, *arguments: object) -> Any:
    """What a worker prints, as JSON."""
    with TemporaryDirectory(prefix="auscult-app-") as directory:
        command = [sys.executable, "-c", COMMON + code, directory, str(BUNDLE), *map(str, arguments)]
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure_all(samples: int) -> dict[str, Any]:
    """All figures."""
    turns = measure(PREDICT, 0)
    bare, ours = (median(turns[name]) for name in ("bare", "predict"))
    return {
        "predict": {"bare_us": bare, "device_us": ours, "ratio": ours / bare},
        "footprint": {name: measure(FOOTPRINT, 5000, name) for name in ("bare", "device")},
        "observe_blocks": measure(OBSERVE, samples, 32),
        "observe_single": measure(OBSERVE, samples // 10, 1),
        "store": measure(STORE, 50_000, ""),
        "store_encrypted": measure(STORE, 50_000, "yes"),
        "overhead": measure(OVERHEAD, 0),
    }


def describe(found: dict[str, Any]) -> list[str]:
    """The figures for people."""
    p, o, f = found["predict"], found["overhead"], found["footprint"]
    lines = [
        f"predict, one window: {p['device_us']:.0f} us, onnxruntime alone {p['bare_us']:.0f} us: "
        f"{p['ratio']:.2f} x (target {PREDICT_TARGET})",
        f"memory of a process grows by {f['device']:.1f} MB for a device that predicts, by {f['bare']:.1f} for "
        f"onnxruntime's session alone: {f['device'] / f['bare']:.2f} x (target {PREDICT_TARGET})",
    ]
    for name, what in (("observe_blocks", "blocks of 32"), ("observe_single", "one by one")):
        one = found[name]
        lines.append(
            f"observe, {what}: {one['per_second']:,.0f} samples/s, cut and saved; memory {one['memory'][0]:.0f} MB "
            f"after a tenth, {one['memory'][-1]:.0f} MB at the end; {one['windows']:,} windows kept, {one['lost']} lost"
        )
    for name in ("store", "store_encrypted"):
        one = found[name]
        lines.append(
            f"{name.replace('_', ', ')}: {one['add']:,.0f} windows/s saved, {one['label']:,.0f} labelled, "
            f"{one['freeze']:,.0f} copied out; {one['bytes_each']:.0f} bytes each"
        )
    return [
        *lines,
        f"process: import {o['import_seconds']:.1f} s, {o['after_import']:.0f} MB; a device {o['made']:.0f} MB; "
        f"observing, saving, predicting and training at once, at most {o['peak']:.0f} MB (target {MEMORY_TARGET:.0f})",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--samples", type=int, default=10_000_000, help="observed in blocks; a tenth one by one")
    options = parser.parse_args()
    found = measure_all(options.samples)
    print(json.dumps(found, indent=2) if options.json else "\n".join(describe(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
