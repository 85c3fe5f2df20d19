"""What a GPU brings, in one run of a few minutes that needs nothing but this repository and what its head names.

    python benchmarks/gpu.py [--cifar FILE.npz] [--part NAME ...] [--small] [--json FILE]

Packages: torch with CUDA, onnx, onnxscript, onnxruntime, numpy, msgpack, paho-mqtt, tomli-w, pytest. Parts:

tests           the tests marked `gpu`, which are left out on machines without one.
thresholding    singular value thresholding of the layers of ResNet-18 (thresholding.py), on the processor and the GPU.
discriminator   FedAL's discriminator: a step of its ascent and its feedback, on the processor and the GPU.
together        steps of clients together, one call for 64, 256 and 1024 of them, beside onnxruntime one by one.
race            the race of simulate.py: clients per second of `--calls cohort`, and of `--calls epoch` on one core.
cifar           `auscult simulate` of CIFAR-10 (--cifar) with ResNet-20, 1,000 clients, 50 of them in a round: FedAvg,
                FedSLR and FedAL; seconds for each round, and what the rounds come to.

A part that fails says so in the result and the others go on; the exit status is then 1. `--small` is for a machine
without a GPU: each part with the smallest sizes, to see that all of it works. Times are wall-clock seconds, medians of
repetitions after one that is not counted, and the GPU has ended its work when a clock is read. One thread for each
process on the processor, but where a row says otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before they are loaded
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch

from aggregator import discriminator as torch_twin
from aggregator.cohort import CohortSteps
from aggregator.singular import FastSvt
from benchmarks import thresholding
from edge_sdk.methods.fedal import discriminator as numpy_twin
from edge_sdk.model.model import Model
from edge_sdk.replay.planning.bundles import compile_network

ROOT = Path(__file__).parents[1]
GPU = torch.cuda.is_available()
PROCESSORS = ("cpu", "cuda") if GPU else ("cpu",)
THRESHOLD = thresholding.THRESHOLD
LIMIT = 120
"""Seconds that one process of a part may take."""


def seconds(call: Callable[[], Any], times: int = 5) -> float:
    """The median wall-clock time of a call, after one that is not counted."""
    found = []
    for _ in range(times + 1):
        began = time.perf_counter()
        call()
        if GPU:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


def machine() -> dict[str, Any]:
    """The card and what runs on it."""
    card = torch.cuda.get_device_properties(0) if GPU else None
    return {
        "card": card.name if card else "none",
        "memory_gb": round(card.total_memory / 2**30) if card else 0,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "numpy": np.__version__,
        "cores": len(os.sched_getaffinity(0)),
    }


# The parts --------------------------------------------------------------------------------------------------------
def tests(args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    command += ["tests/aggregator", "tests/simulation/test_together.py", "--ignore", "tests/aggregator/service"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    said = ended.stdout.strip().splitlines()
    if ended.returncode:
        raise RuntimeError("\n".join(said[-40:]) + ended.stderr[-1000:])
    return {"result": said[-1]}


def layers_of(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The layers of a model of low rank, and the same with a round's noise."""
    random = np.random.default_rng(0)
    near = thresholding.make_layers(random, 0.06)
    if args.small:
        near = {name: x for name, x in near.items() if x.size <= 192 * 192}
    return near, {name: thresholding.with_noise(x, random, 0.6) for name, x in near.items()}


def decomposed(layers: dict[str, Any], processor: str) -> list[Any]:
    found = []
    for x in layers.values():
        u, s, vt = torch.linalg.svd(torch.from_numpy(x).to(processor), full_matrices=False)
        found.append([part.cpu() for part in thresholding.thresholded(u, s, vt, THRESHOLD)])
    return found


def threshold_layers(args: argparse.Namespace) -> dict[str, Any]:
    near, layers = layers_of(args)
    found: dict[str, Any] = {"layers": len(layers), "parameters": sum(x.size for x in layers.values())}
    times = 1 if args.small else 3
    truth = thresholding.full(layers, double=True)
    for processor in PROCESSORS:
        fast = FastSvt(processor)
        found[f"full, {processor}"] = seconds(lambda at=processor: decomposed(layers, at), times)
        found[f"fast, {processor}"] = seconds(lambda svt=fast: svt.layers(layers, THRESHOLD, near), times)
        one = {name: thresholding.multiply(svd) for name, svd in fast.layers(layers, THRESHOLD, near).items()}
        found[f"off, fast, {processor}"] = max(float(np.abs(one[name] - truth[name]).max()) / 10 for name in truth)
    torch.set_num_threads(found.setdefault("cores", len(os.sched_getaffinity(0))))
    found["full, cpu, all cores"] = seconds(lambda: decomposed(layers, "cpu"), times)
    torch.set_num_threads(1)
    return found


def discriminate(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of devices x public samples: seconds of one ascent and one feedback, of numpy and of torch."""
    rows = []
    for devices, public in ((4, 16),) if args.small else ((10, 1000), (100, 1000), (100, 5000)):
        random = np.random.default_rng(1)
        widths = (10, 32, 256, devices)
        w = numpy_twin.initial(random, widths, np.float32)
        f = (3 * random.standard_normal((devices * public, 10))).astype(np.float32)
        who, there = np.repeat(np.arange(devices), public), np.ones(devices, bool)
        row: dict[str, Any] = {"devices": devices, "public": public}
        kernels = {"numpy": numpy_twin.KERNELS} | {f"torch, {at}": torch_twin.kernels(at) for at in PROCESSORS}
        for name, one in kernels.items():
            times = 1 if devices * public > 50_000 and name != "torch, cuda" else 3
            given = (w, widths, f, who, there, 2.0)
            row[f"ascent, {name}"] = seconds(partial(one.ascent, *given), times)
            row[f"feedback, {name}"] = seconds(partial(one.feedback, *given), times)
        rows.append(row)
    return rows


NETWORKS = {
    "mlp": ["--input", "561", "--classes", "6"],
    "wrist": ["--input", "3,64", "--classes", "14"],
    "resnet20": ["--input", "3,32,32", "--classes", "10"],
}


def together(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Clients per second, 5 steps of 10 samples each: in one call, and one by one in onnxruntime on one core."""
    rows = []
    for name in ("mlp", "wrist", "resnet20"):
        model = Model(compile_network(name, NETWORKS[name], 0, lambda text: None))
        random = np.random.default_rng(2)
        sizes = (3,) if args.small else (64, 256, 1024) if name != "resnet20" else (64, 256)
        x = random.standard_normal((max(sizes), 5, 10, *model.input_shape)).astype(np.float32)
        y = random.integers(0, model.classes, (max(sizes), 5, 10))
        step, theta = model.grad_fn(x[0].reshape(50, *model.input_shape), y[0].ravel()), model.theta0.copy()
        alone = seconds(lambda run=step, at=theta: [run(at, np.arange(10)) for _ in range(5)], 3)
        row: dict[str, Any] = {"network": name, "onnxruntime, one core": 1 / alone}
        for processor in PROCESSORS:
            steps = CohortSteps(model.bundle, processor)
            for clients in sizes if processor == "cuda" else sizes[:1] if name != "resnet20" else (3,):
                given = steps_of(model, x[:clients], y[:clients])
                spent = seconds(lambda call=steps, given=given: call(*given), 3)
                row[f"{processor}, {clients} together"] = clients / spent
        rows.append(row)
    return rows


def steps_of(model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    clients = len(x)
    weights = np.full(x.shape[:3], 0.1, np.float32)
    start = np.tile(model.theta0, (clients, 1))
    return start, x, y, weights, np.full(clients, 0.05, np.float32), np.ones(clients, np.float32)


def race(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Clients per second of a whole simulation on one process, cohorts of 50 and of 500."""
    rows = []
    for model in ("mlp", "wrist"):
        for cohort in (5,) if args.small else (50, 500):
            row: dict[str, Any] = {"network": model, "cohort": cohort}
            rounds = 4 if args.small else max(4, 750 // cohort)
            for calls in ("epoch", "cohort"):
                row[f"--calls {calls}"] = simulated(model, cohort, rounds, calls)
            rows.append(row)
    return rows


def simulated(model: str, cohort: int, rounds: int, calls: str) -> float:
    """Clients per second in a process of its own."""
    code = "import sys; sys.path[:0] = [{0!r}, {1!r}]; import gpu; gpu.simulate_here({2!r}, {3}, {4}, {5!r})"
    code = code.format(str(ROOT), str(ROOT / "benchmarks"), model, cohort, rounds, calls)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    if ended.returncode:
        raise RuntimeError(ended.stderr[-2000:])
    return float(ended.stdout.strip().splitlines()[-1])


def simulate_here(model: str, cohort: int, rounds: int, calls: str) -> None:
    """Plays the race of simulate.py on one rank, and prints its clients per second."""
    import importlib
    import math

    import simulate
    import simulate_data

    from edge_sdk.replay.planning.plan import Replay
    from edge_sdk.replay.tuning.worker import find_kernels
    from edge_sdk.simulation.processes.ranks import find_ranks
    from edge_sdk.simulation.runs.job import Course
    from edge_sdk.simulation.runs.node_envs import Envs
    from edge_sdk.simulation.runs.plan import Simulation

    work = importlib.import_module(simulate_data.WORKS[model])
    given = SimpleNamespace(model=model, clients=1000, cohort=cohort, rounds=rounds)
    with tempfile.TemporaryDirectory() as out:
        replay = Replay(data="race", out=Path(out), method="fedavg", rounds=rounds, resume=True, local_only=False)
        job = Simulation(replay=replay, judges=1, save_every=math.inf)
        prepared = simulate.prepare_race(work, given, job)
        ranks, times = find_ranks(), []
        envs = Envs(prepared, find_kernels(), calls)
        course = Course(job, prepared, ranks, envs, lambda _: times.append(time.monotonic()))
        course.begin(lambda text: None)
        course.play()
        ranks.close()
    warm = simulate.WARM - 1
    print(cohort * (rounds - 1 - warm) / (times[rounds - 1] - times[warm]))


def cifar(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.cifar is None:
        return []
    rows = []
    budget = {"fedavg": 15, "fedslr": 15, "fedal": 2}
    for method, rounds in budget.items():
        sizes = ["--clients", "1000", "--cohort", "50", "--rounds", str(rounds), "--judges", "50"]
        if args.small:
            sizes = ["--clients", "20", "--cohort", "4", "--rounds", "2", "--judges", "4"]
        rows.append(simulate_images(args.cifar, method, sizes))
    return rows


def simulate_images(data: Path, method: str, sizes: list[str]) -> dict[str, Any]:
    more = {
        "fedavg": ["--set", "eta_l=0.1", "--set", "local_epochs=1"],
        "fedslr": ["--set", "eta_l=0.1", "--set", "local_epochs=1", "--set", "eta_g=10", "--set", "lam=0.001"],
        "fedal": ["--public", "128"],
    }[method]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [sys.executable, "-m", "edge_sdk.cli", "simulate", f"cifar10:{data}", "--method", method, *sizes]
        command += ["--bundle", "resnet20", "--samples", "50", "--calls", "cohort", "--plain", "--no-neighbours"]
        command += ["--settings", "stated", "--set", "batch=10", "--evaluate-every", "0", "--out", str(out), *more]
        began = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
        if ended.returncode:
            raise RuntimeError(f"{method}: {ended.stderr[-1500:] or ended.stdout[-1500:]}")
        found = json.loads((out / "result.json").read_text())
    of = found["simulation"]
    return {
        "method": method,
        "sizes": " ".join(sizes),
        "clients_per_second": of["answers_per_second"],
        "seconds": round(time.monotonic() - began, 1),
        "accuracy": found["accuracy"],
        "calls": of.get("training", of.get("trained")),
    }


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "tests": tests,
    "thresholding": threshold_layers,
    "discriminator": discriminate,
    "together": together,
    "race": race,
    "cifar": cifar,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cifar", type=Path, help="cifar10.npz, for the part of that name")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {"machine": machine()}
    for name in args.part:
        began = time.monotonic()
        try:
            found[name] = {"found": PARTS[name](args)}
        except Exception:  # the other parts of a rare machine's minutes are not to be lost with this one
            found[name] = {"error": traceback.format_exc()[-3000:]}
        found[name]["seconds"] = round(time.monotonic() - began, 1)
        print(name, json.dumps(found[name], indent=1), flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(any("error" in part for part in found.values()))


if __name__ == "__main__":
    main()
