"""Simulated clients per second: `auscult simulate`, Flower's simulation (Ray) and pfl-research on the same work.

    python benchmarks/simulate.py [--flower .flower-ray/bin/python] [--pfl .pfl/bin/python] [--model mlp,wrist]
        [--clients 1000] [--ours] [--json]

The work is in simulate_data.py: FedAvg with an MLP of 36k parameters, 50 of the clients in each round, one epoch of 50
samples at batch 10; and in simulate_wrist.py, the same with a convolutional network of 78k parameters. Everybody has as
many processes as there are cores, with one thread each; libraries are loaded and two rounds are over when the clock
starts. Flower's clients train the MLP with plain numpy, which is faster there than torch, and the other with torch;
those of pfl-research both with torch, which it is made for. Flower plays 12 rounds at most: they take it long. The MLP
is also trained by a plain numpy loop that has nothing of a simulator (simulate_loop.py): a floor, against which a rate
can be judged on any machine. Memory is the sum over all processes of one participant, pages that they share counted
once for each. CPU: ours and the floor's, of all processes, for each answer. Figures depend on what else the machine
does, which is printed beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ROUNDS = {"mlp": 200, "wrist": 40}
"""Model -> rounds of a race that takes some minutes."""
FLOWER_ROUNDS = 12
"""Flower's rounds at most: a round takes it seconds."""
WARM = 2
"""Rounds before the clock starts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flower", help="python of an environment with flwr[simulation]")
    parser.add_argument("--pfl", help="python of an environment with pfl[pytorch]")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--rounds", type=int, help=f"({', '.join(f'{k}: {v}' for k, v in ROUNDS.items())})")
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--model", default="mlp,wrist", help="models to race with, with a comma between them")
    parser.add_argument("--ours", action="store_true", help="`auscult simulate` only, as it is by default")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--calls", default="epoch", help=argparse.SUPPRESS)
    parser.add_argument("--by-ray", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play is not None:
        if args.by_ray:
            from edge_sdk.simulation.processes.on_ray import play_on_ray

            play_on_ray(play, args, args.ranks, gpus=False)
        else:
            play(args)
        return
    found = [
        {"model": model, **race(name, command, args)}
        for model in args.model.split(",")
        for name, command in participants(args, model).items()
    ]
    print(json.dumps(found) if args.json else table(found))


# The race ---------------------------------------------------------------------------------------------------------
def participants(args: argparse.Namespace, model: str) -> dict[str, list[str]]:
    """Name -> command, which prints an object with "rate" (clients per second) as its last line."""
    sizes = [
        "--clients",
        str(args.clients),
        "--cohort",
        str(args.cohort),
        "--rounds",
        str(args.rounds or ROUNDS[model]),
    ]
    sizes += ["--model", model]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.ranks)]
    found = {"auscult simulate": [sys.executable, *launch, __file__, *sizes]}
    if args.ours:
        return found
    if model == "mlp":  # of convolutions, a call of torch for many clients takes longer on a core
        found["the same, --calls cohort"] = [*found["auscult simulate"], "--calls", "cohort"]
    if importlib.util.find_spec("ray"):
        command = [sys.executable, __file__, *sizes, "--by-ray", "--ranks", str(args.ranks)]
        found["the same, by Ray"] = command
    if model == "mlp":  # of the other network, plain numpy would be slower than torch
        found["plain numpy loop"] = [sys.executable, str(HERE / "simulate_loop.py"), *sizes, "--ranks", str(args.ranks)]
    if args.flower:
        less = ["--rounds", str(min(args.rounds or ROUNDS[model], FLOWER_ROUNDS))]  # the last word counts
        found["Flower, Ray"] = [
            args.flower,
            str(HERE / "simulate_flower.py"),
            *sizes,
            *less,
            "--ranks",
            str(args.ranks),
        ]
    if args.pfl:
        found["pfl-research"] = [args.pfl, *launch, str(HERE / "simulate_pfl.py"), *sizes]
    return found


def race(name: str, command: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """What one participant comes to: {"name", "rate", "mb", "load"}."""
    with tempfile.TemporaryDirectory() as directory:
        more = ["--play", directory] if __file__ in command else []
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(HERE.parent)}
        process = subprocess.Popen(
            [*command, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        memory = Memory(process.pid)
        out, errors = process.communicate()
        peak = memory.stop()
        if process.returncode:
            print(errors[-2000:], file=sys.stderr)
            return {"name": name, "rate": None, "mb": peak, "load": os.getloadavg()[0]}
        found = json.loads(out.strip().splitlines()[-1])
        cpu = found.get("cpu_ms")
        return {"name": name, "rate": found["rate"], "cpu_ms": cpu, "mb": peak, "load": os.getloadavg()[0]}


class Memory(threading.Thread):
    """The largest sum of resident memory of a process and all that it has started, in MB, looked at twice a second."""

    def __init__(self, first: int) -> None:
        super().__init__(daemon=True)
        self.known = {(first, look_at(first)[1])}  # with their starts: numbers of processes are used again
        self.peak, self.over = 0.0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.peak = max(self.peak, sum(map(resident_mb, self.members())))

    def stop(self) -> float:
        self.over.set()
        for pid in self.members():  # Ray leaves some behind
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return round(self.peak)

    def members(self) -> list[int]:
        """The processes that there are of those that were ever seen to descend from the first."""
        there = {int(p.name): look_at(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
        ours = {pid for pid, start in self.known if there.get(pid, (0, -1))[1] == start}
        before = -1
        while len(ours) > before:
            before = len(ours)
            ours |= {pid for pid, (parent, _) in there.items() if parent in ours}
        self.known |= {(pid, there[pid][1]) for pid in ours}
        return sorted(ours)


def look_at(pid: int) -> tuple[int, int]:
    """The parent of a process, and when it started, in ticks of the kernel; (-1, -1): it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(words[1]), int(words[19])
    except (OSError, IndexError):
        return -1, -1


def resident_mb(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


def table(found: list[dict[str, Any]]) -> str:
    lines = [f"{'':32} {'clients/s':>10} {'CPU ms':>8} {'MB':>8} {'load':>6}"]
    for one in found:
        rate = "failed" if one["rate"] is None else f"{one['rate']:.0f}"
        cpu = f"{one['cpu_ms']:.2f}" if one.get("cpu_ms") else ""
        lines.append(f"{one['model']:6}{one['name']:26} {rate:>10} {cpu:>8} {one['mb']:>8} {one['load']:>6.1f}")
    return "\n".join(lines)


# Our part ---------------------------------------------------------------------------------------------------------
def play(args: argparse.Namespace) -> None:
    """One rank of `auscult simulate`, with the clients of the race; rank 0 prints its rate."""
    sys.path.insert(0, str(HERE))
    work = importlib.import_module(importlib.import_module("simulate_data").WORKS[args.model])
    from edge_sdk.replay.planning.plan import Replay
    from edge_sdk.replay.tuning.worker import find_kernels
    from edge_sdk.simulation.processes.ranks import find_ranks
    from edge_sdk.simulation.runs.job import Course
    from edge_sdk.simulation.runs.node_envs import Envs
    from edge_sdk.simulation.runs.plan import Simulation

    ranks = find_ranks()
    out = args.play / f"rank-{ranks.number}"
    out.mkdir()
    replay = Replay(data="race", out=out, method="fedavg", rounds=args.rounds, resume=True, local_only=False)
    job = Simulation(replay=replay, judges=1, save_every=math.inf, calls=args.calls)
    prepared = prepare_race(work, args, job)
    times: list[tuple[float, float]] = []

    def note(line: Any) -> None:
        times.append((time.monotonic(), time.process_time()))

    course = Course(job, prepared, ranks, Envs(prepared, find_kernels(), args.calls), note)
    course.begin(lambda text: None)
    course.play()
    seconds, cpu = (times[args.rounds - 1][i] - times[WARM - 1][i] for i in range(2))
    spent = sum(json.loads(data) for data in ranks.gather(json.dumps(cpu).encode()))
    if ranks.number == 0:
        answers = args.cohort * (args.rounds - WARM)
        print(json.dumps({"rate": answers / seconds, "cpu_ms": 1000 * spent / answers}), flush=True)
    ranks.close()


def prepare_race(work: Any, args: argparse.Namespace, job: Any) -> Any:
    """The simulation of the race, ready to begin: a `Prepared`."""
    from edge_sdk.contract.run import Run
    from edge_sdk.model.bundle import read_bundle
    from edge_sdk.replay.cohorts.cohort import Cohort
    from edge_sdk.replay.planning.bundles import compile_network
    from edge_sdk.simulation.clients.numbered import make_tree
    from edge_sdk.simulation.runs.plan import Prepared

    sizes = ["--input", ",".join(map(str, work.SHAPE)), "--classes", str(work.CLASSES)]
    network = compile_network(args.model, sizes, 0, lambda text: None)
    settings = {"eta_l": work.STEP, "batch": work.BATCH, "local_epochs": 1, "weight_decay": 0.0, "decay": 1.0}
    settings |= {"participation": args.cohort / args.clients, "weighting": "uniform"}
    classes = tuple("abcdefghijklmn"[: work.CLASSES])
    bundle = read_bundle(network)
    run = Run(id="race", method="fedavg", settings=settings, rounds=args.rounds, bundle=bundle.sha256, classes=classes)
    tree = make_tree(args.clients, 1)
    cohort = Cohort("", tree, classes, {"x": work.SHAPE}, True, True, lambda *_: {})
    return Prepared(job, run, cohort, make_clients(work, network, tree), bundle.task, None, 0)


def make_clients(work: Any, network: Path, tree: Any) -> Any:
    """The clients of the race, a `Population`: each has some rows of the pool."""
    from edge_sdk.replay.nodes.node_files import NodeFiles
    from edge_sdk.simulation.clients.numbered import number_of
    from edge_sdk.simulation.clients.population import MOST_KEPT, ClientData

    x, y = work.pool()

    class RaceClients:
        files = NodeFiles({"hospital-1": network}, {}, {}, None)
        kept = MOST_KEPT

        def __init__(self) -> None:
            self.tree = tree

        def data(self, client: str) -> ClientData:
            rows = work.rows_of(number_of(client))
            return ClientData((x[rows], y[rows]), (x[:0], y[:0]), None)

        def patients(self, hospital: str) -> None:
            return None

        def bundle(self, node: str) -> Path:
            return network

    return RaceClients()


if __name__ == "__main__":
    main()
