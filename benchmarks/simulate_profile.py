"""What a simulated answer is spent on: shares of a rank's processor, and shares of the operators in a client's steps.

    python benchmarks/simulate_profile.py [--model mlp,wrist] [--calls epoch] [--rounds 100]
        [--json]

The work is that of simulate.py, on one rank. The process is looked at once in a millisecond of its processor time
(without threads of clients that train together, which Python does not interrupt); a look counts for the innermost part
in PARTS. Operators are those of a call of all steps of an epoch, timed by onnxruntime, which takes longer with a clock
at each: shares are of their sum. Microseconds of the steps of a client are the least of several passes over 25
clients, made one client after the other in such calls (`epoch`) and, where it is a chain of dense layers, together.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

PARTS = {
    "steps of training": ("sessions/onnx_session.py", ""),
    "what a call of steps is given": ("simulation/training/", ""),
    "exact sums": ("simulation/sums/open_sums.py", ""),
    "checks of uploads": ("aggregation/guard.py", ""),
    "a diverged client?": ("evaluation/healing.py", ""),
    "random numbers": ("contract/method.py", "random"),
    "a client's first day": ("runs/node_envs.py", "client"),
}
"""Part -> (words of the file, function or any) that are looked for from the innermost call outwards."""
REST = "roles, messages, queue"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="mlp,wrist")
    parser.add_argument("--calls", default="epoch")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument(
        "--json", action="store_true", help="print an object for each model: shares, and us of the steps"
    )
    args = parser.parse_args()
    for model in args.model.split(","):
        if args.json:
            shares, steps = play(model, args.calls, args.rounds), time_steps(model)
            us = {name: 1e6 * seconds for name, seconds in steps.items()}
            print(json.dumps({"model": model, "shares": dict(shares.most_common()), "steps_us": us}))
            continue
        print(f"\n{model}: shares of an answer")
        for name, share in play(model, args.calls, args.rounds).most_common():
            print(f"{100 * share:6.1f} %  {name}")
        print(f"{model}: shares of the operators of an epoch")
        for name, share in operators_of(model).most_common(12):
            print(f"{100 * share:6.1f} %  {name}")
        told = ", ".join(f"{1e6 * seconds:.0f} us by {name}" for name, seconds in time_steps(model).items())
        print(f"{model}: the five steps of a client: {told}")


def time_steps(model: str, clients: int = 25, passes: int = 30) -> dict[str, float]:
    """Way to train -> processor seconds of a client's steps, at best."""
    import simulate_data

    from edge_sdk.errors import UsageError
    from edge_sdk.model.model import Model
    from edge_sdk.simulation.training.batched_clients import WantedSteps, make_lockstep
    from edge_sdk.simulation.training.dense_clients import DenseGradient, DenseTraining, find_dense_layers
    from edge_sdk.simulation.training.epochs import EpochGradient, EpochGraphs, TrainingCalls

    work, network = importlib.import_module(simulate_data.WORKS[model]), Model(compiled(model))
    rows = list(np.random.default_rng(0).permutation(50).reshape(-1, work.BATCH))
    x, y = work.pool()
    held = [(x[some], y[some]) for some in map(work.rows_of, range(clients))]
    graphs = EpochGraphs(network, TrainingCalls())
    epochs = [EpochGradient(network.grad_fn(*mine), graphs, *mine) for mine in held]
    starts = [network.theta0.copy() for _ in held]

    def one_by_one() -> None:
        for each, v in zip(epochs, starts, strict=True):
            each.descend(v, rows, work.STEP, 0.0, None, None)

    ways = {"epoch": one_by_one}
    try:
        training = DenseTraining(network, find_dense_layers(network), TrainingCalls())
        dense = [DenseGradient(network.grad_fn(*mine), training, make_lockstep(), *mine) for mine in held]
        wanted = [WantedSteps(g, v, rows, work.STEP, 0.0, None, None) for g, v in zip(dense, starts, strict=True)]
        ways["cohort"] = lambda: training(wanted)  # type: ignore[assignment, return-value]
    except UsageError:
        pass
    return {name: least(way, passes) / clients for name, way in ways.items()}


def least(way: Callable[[], None], passes: int) -> float:
    """Processor seconds of the quickest pass; the first one warms up."""
    found = list[float]()
    for _ in range(passes + 1):
        before = time.process_time()
        way()
        found.append(time.process_time() - before)
    return min(found[1:])


def compiled(model: str) -> Path:
    import simulate_data

    from edge_sdk.replay.planning.bundles import compile_network

    work = importlib.import_module(simulate_data.WORKS[model])
    sizes = ["--input", ",".join(map(str, work.SHAPE)), "--classes", str(work.CLASSES)]
    return compile_network(model, sizes, 0, lambda text: None)


def play(model: str, calls: str, rounds: int) -> collections.Counter[str]:
    """Part -> share of the looks while rounds were played."""
    import simulate

    from edge_sdk.simulation.runs.job import Course

    looks: collections.Counter[str] = collections.Counter()

    def look(_: int, frame: FrameType | None) -> None:
        looks[part_of(frame)] += 1

    whole = Course.play

    def timed(self: Any) -> None:
        before = signal.signal(signal.SIGPROF, look)
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        try:
            whole(self)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    Course.play = timed  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            given = {"rounds": rounds, "clients": 1000, "cohort": 50, "ranks": 1, "calls": calls}
            simulate.play(argparse.Namespace(model=model, play=Path(folder), **given))
    finally:
        Course.play = whole  # type: ignore[method-assign]
    return shares_of(looks)


def part_of(frame: FrameType | None) -> str:
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        for part, (words, function) in PARTS.items():
            if words in file and function in ("", name):
                return part
        frame = frame.f_back
    return REST


def operators_of(model: str, calls: int = 50) -> collections.Counter[str]:
    """Operator -> share of their time in calls of an epoch of 50 samples at batch 10."""
    import onnxruntime as ort
    import simulate_data

    from edge_sdk.model.bundle import read_bundle
    from edge_sdk.models.derive.epoch import write_epoch

    work, bundle = importlib.import_module(simulate_data.WORKS[model]), read_bundle(compiled(model))
    x, y = work.pool()
    feeds = {"data.x": x[:50], "data.y": y[:50], "epoch.start": bundle.theta0, "epoch.eta": np.float32(work.STEP)}
    order = np.arange(50).reshape(-1, work.BATCH)
    feeds |= {"epoch.order": order, "weights": np.full(work.BATCH, 1 / work.BATCH, np.float32)}
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.enable_profiling, options.log_severity_level = 1, True, 3
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/epoch"
        data = write_epoch(bytes(bundle.parts["loss_grad.onnx"]))
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        for _ in range(calls):
            session.run(None, {name: np.asarray(value) for name, value in feeds.items()})
        events = json.loads(Path(session.end_profiling()).read_text())
    times: dict[tuple[str, str], list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("kernel_time") and event["args"]["op_name"] != "Scan":
            times.setdefault((event["args"]["op_name"], event["name"]), []).append(event["dur"])
    spent: collections.Counter[str] = collections.Counter()
    for (operator, _), some in times.items():  # the middle one: a busy machine makes some take very long
        spent[operator] += statistics.median(some) * len(some)  # type: ignore[assignment]
    return shares_of(spent)


def shares_of(counts: collections.Counter[str]) -> collections.Counter[str]:
    total = sum(counts.values()) or 1
    found: collections.Counter[str] = collections.Counter()
    found.update({name: count / total for name, count in counts.items()})  # type: ignore[misc]
    return found


if __name__ == "__main__":
    main()
