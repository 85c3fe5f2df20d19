"""FedBCD and FedBCD-I beside FedAvg and FedProx on MNIST, and synchronous beside first-B rounds in simulated time.

    python benchmarks/fedbcd.py ../shared/data/mnist.npz [--seeds 3] [--rounds 40] [--diversity 3 6] [--samples 600]
        [--only SCHEME ...]

The paper's arrangement: 10 hospitals of 10 devices, each device holds so many labels only ("diversity"), 3 devices of
each hospital take part in a round, 1 to 5 epochs on batches of 32, a network of three layers (784, 64, 10). One thing
is smaller: 1000 test images. It takes 20 minutes of one core, half of that with 200 samples.
Personalised accuracy: of each device's own model on the test images of its own labels, mean over the 100 devices (of
FedAvg and FedProx, the shared model on the same images). Global: of z, or the mean of all z_n, on all test images.
"Alone" is FedAvg's training without the others, for as many epochs as a device makes on average in a synchronous run.

The roles are those of the product, over the network in memory, whose clock is the paper's model of delays: devices ask
for work after Exp(2), each epoch takes them Exp(1). First-B goes on until its personalised accuracy is what the
synchronous run reached at its end. The table of round lengths, simulated and by the paper's theory, is printed below.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import latency
from benchmarks.latency import Delays, Hospitals
from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.methods import METHODS
from edge_sdk.model.model import Model
from edge_sdk.nodes.local_only import train_alone
from edge_sdk.replay import datasets
from edge_sdk.replay.bundles import compile_network

HOSPITALS, DEVICES, TAKING_PART, TESTS = 10, 10, 3, 1000
LONGER = 12  # first-B may take so many times the rounds of sync: each is shorter, and fewer hospitals work in it
OFFLINE = 10.0  # seconds after which a device that nobody has called trains by itself, in FedBCD-I


@dataclass(frozen=True)
class Scheme:
    """A method with its settings.

    Attributes:
        method, settings: as a run has them.
        ready: B, hospitals that end a round; 0: synchronous.
    """

    method: str
    settings: Mapping[str, Any]
    ready: int = 0

    @property
    def asynchronous(self) -> Scheme:
        return Scheme(self.method, {**self.settings, "cloud": "first-b", "ready": 3}, 3)


FEDBCD = {"participation": float(TAKING_PART), "eta_x": 0.005, "zeta": 0.9}
SHARED = {"participation": float(HOSPITALS * TAKING_PART), "decay": 1.0, "weight_decay": 0.0, "batch": 32}
SHARED |= {"local_epochs": 5, "draw_epochs": True}
ALONE = "Alone"
SCHEMES = {
    "FedBCD": Scheme("fedbcd", FEDBCD),
    "FedBCD-I": Scheme("fedbcd-i", {**FEDBCD, "offline_every": OFFLINE, "offline_share": 0.8}),
    "FedAvg": Scheme("fedavg", {**SHARED, "eta_l": 0.05}),
    "FedProx": Scheme("fedavg", {**SHARED, "eta_l": 0.005, "momentum": 0.9, "proximal": 5.0}),
}


@dataclass(frozen=True)
class Data:
    """The images of all devices.

    Attributes:
        parts: device -> (x, y) to train on.
        x, y: test images and their labels.
        labels: device -> the labels that it holds.
    """

    parts: Mapping[str, tuple[Any, Any]]
    x: Any
    y: Any
    labels: Mapping[str, Any]


TREE = {f"h{h}": tuple(f"h{h}-{d}" for d in range(DEVICES)) for h in range(HOSPITALS)}
NAMES = [d for devices in TREE.values() for d in devices]


def dealt(path: Path, diversity: int, samples: int, seed: int) -> Data:
    table = datasets.load(f"mnist:{path}")
    train, test = datasets.hold_out(table)
    shares = datasets.deal_rows(table.y[train], f"classes={diversity}", HOSPITALS, DEVICES, 0.0, seed)
    flat = [train[datasets.draw_some(rows, samples, seed, i)] for i, rows in enumerate(r for d in shares for r in d)]
    tests = datasets.draw_some(test, TESTS, seed)
    parts = {d: (table.x[rows].reshape(len(rows), -1), table.y[rows]) for d, rows in zip(NAMES, flat, strict=True)}
    labels = {d: np.unique(y) for d, (_, y) in parts.items()}
    return Data(parts, table.x[tests].reshape(len(tests), -1), table.y[tests], labels)


# The run --------------------------------------------------------------------------------------------------------
class Enough(Exception):
    """The target is reached, or the last round is over."""


@dataclass(frozen=True)
class Point:
    """After a round: when, and how good the models are."""

    round: int
    time: float
    personal: float
    shared: float


class Watched(Loopback):
    """Keeps no record of messages, and judges all models now and then."""

    def begin(self, model: Model, data: Data, every: int, target: float) -> None:
        self.model, self.data, self.every, self.target = model, data, every, target
        self.curve: list[Point] = []

    def commit(self, name: str, done: Any, now: float) -> None:
        super().commit(name, done, now)
        if name != ROOT:
            return
        for record in (
            self.transcript.crossed,
            self.transcript.states,
            self.transcript.closed,
            self.transcript.asked,
            self.transcript.ran,
        ):
            record.clear()
        round = done.node.record.state.round
        if round and round % self.every == 0 and (not self.curve or self.curve[-1].round < round):
            self.curve.append(Point(round, now, *self.judged(done.node.record.state)))
            if self.curve[-1].personal >= self.target or round >= done.node.env.rounds:
                raise Enough  # devices with a clock of their own would go on for ever

    def judged(self, state: Any) -> tuple[float, float]:
        z = lowrank.unpack(self.model.layout, state.model)
        hospitals = [self.nodes[h].record.state for h in TREE]
        if hasattr(hospitals[0], "inner") and self.nodes[ROOT].env.settings.cloud != "sync":
            z = np.mean([lowrank.unpack(self.model.layout, h.inner.model) for h in hospitals], 0, dtype=z.dtype)
        guessed = self.model.predict(z, self.data.x).argmax(1)
        own = [self.own_accuracy(d, guessed) for d in NAMES]
        return float(np.mean(own)), float((guessed == self.data.y).mean())

    def own_accuracy(self, device: str, shared: Any) -> float:
        mine = np.isin(self.data.y, self.data.labels[device])
        x = getattr(self.nodes[device].record.state, "x", None)
        guessed = shared[mine] if x is None else self.model.predict(x, self.data.x[mine]).argmax(1)
        return float((guessed == self.data.y[mine]).mean())


def played(model: Model, data: Data, scheme: Scheme, seed: int, rounds: int, target: float = inf) -> list[Point]:
    """The curve of one run. First-B is judged as often as sync in the same number of answers."""
    method = METHODS[scheme.method]
    settings = method.settings(**scheme.settings)
    common: dict[str, Any] = {"seed": seed, "rounds": rounds * (LONGER if scheme.ready else 1)}
    common |= {"layout": model.layout, "theta0": model.theta0, "settings": settings}
    sizes = {h: len(devices) for h, devices in TREE.items()}
    envs = {ROOT: method.env(**common, sizes=sizes)}
    envs |= {h: method.env(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in TREE.items()}
    for d, (x, y) in data.parts.items():
        envs[d] = method.env(**common, grad_fn=model.grad_fn(x, y), samples=len(x))
    delays = Delays(TREE, Hospitals(accepted=TAKING_PART), seed)
    faults = NetworkFaults(repeat=0.0, delay=(0.0, 0.0), slow=delays)
    network = Watched(method, TREE, envs, method.policies(settings, sizes, inf, inf, 0), seed, faults)
    network.begin(model, data, 10 if scheme.ready else 5, target)
    with contextlib.suppress(Enough):
        network.run()
    return network.curve


def alone(model: Model, data: Data, seed: int, rounds: int) -> list[Point]:
    """The curve of devices that train by themselves, in as many rounds as a device takes part in: 3 of 10 are asked."""
    method, took_part = METHODS["fedavg"], rounds * TAKING_PART // DEVICES
    settings = method.settings(
        eta_l=SCHEMES["FedAvg"].settings["eta_l"], decay=1.0, weight_decay=0.0, batch=32, local_epochs=3
    )
    common: dict[str, Any] = {"seed": seed, "rounds": took_part, "layout": model.layout, "theta0": model.theta0}
    own = []
    for d, (x, y) in data.parts.items():
        env = method.env(me=d, settings=settings, grad_fn=model.grad_fn(x, y), samples=len(x), **common)
        mine = np.isin(data.y, data.labels[d])
        guessed = model.predict(train_alone(method, env), data.x[mine]).argmax(1)
        own.append(float((guessed == data.y[mine]).mean()))
    return [Point(took_part, nan, float(np.mean(own)), nan)]


# Table ----------------------------------------------------------------------------------------------------------
def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    bundle = compile_network("mlp", ["--input", "784", "--classes", "10"], 0, lambda text: print(text, file=sys.stderr))
    model, rows = Model(bundle), []
    for diversity in options.diversity:
        for seed in range(options.seeds):
            data = dealt(options.data, diversity, options.samples, seed)
            if ALONE in options.only:
                noted(rows, ALONE, diversity, seed, alone, model, data, seed, options.rounds)
            for name, scheme in SCHEMES.items():
                if name not in options.only:
                    continue
                curve = noted(rows, name, diversity, seed, played, model, data, scheme, seed, options.rounds)
                if scheme.method.startswith("fedbcd"):
                    target, later = curve[-1].personal, (model, data, scheme.asynchronous, seed, options.rounds)
                    noted(rows, f"{name} first-3", diversity, seed, played, *later, target)
    return rows


def noted(rows: list[dict[str, Any]], name: str, diversity: int, seed: int, play: Any, *job: Any) -> list[Point]:
    began = time.monotonic()
    curve: list[Point] = play(*job)
    last = curve[-1]
    row = {"name": name, "diversity": diversity, "seed": seed, "curve": [vars(p) for p in curve]}
    rows.append(row | {"seconds": round(time.monotonic() - began, 1)})
    reached = f"personalised {last.personal:.3f}, global {last.shared:.3f}, simulated {last.time:.0f} s"
    print(f"{name:17} D={diversity} seed {seed}: {reached}, took {rows[-1]['seconds']} s", file=sys.stderr, flush=True)
    return curve


def spread(values: Sequence[float], digits: int = 1) -> str:
    if any(isnan(v) for v in values):
        return "-"
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {sd:.{digits}f}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Mean and standard deviation over the seeds, at the end of each run."""
    head = f"{'diversity':>9}  {'scheme':17} {'rounds':>7} {'personalised %':>15} {'global %':>13} {'simulated s':>15}"
    lines = [head]
    for key in dict.fromkeys((row["diversity"], row["name"]) for row in rows):
        last = [row["curve"][-1] for row in rows if (row["diversity"], row["name"]) == key]
        own, shared = (spread([100 * p[k] for p in last]) for k in ("personal", "shared"))
        times, rounds = spread([p["time"] for p in last], 0), round(statistics.mean(p["round"] for p in last))
        lines.append(f"{key[0]:>9}  {key[1]:17} {rounds:>7} {own:>15} {shared:>13} {times:>15}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="mnist.npz")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40, help="of the synchronous runs")
    parser.add_argument("--diversity", type=int, nargs="+", default=[3, 6])
    parser.add_argument("--samples", type=int, default=600, help="of each device")
    parser.add_argument("--only", nargs="+", default=[ALONE, *SCHEMES], choices=[ALONE, *SCHEMES], metavar="SCHEME")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options)
    print(table(rows))
    print(f"\nMean round by clock, of {HOSPITALS} hospitals with {TAKING_PART} devices each, where B are waited for")
    print(latency.format_table(latency.make_table(Hospitals(accepted=TAKING_PART), (1, 2, 3, 5, 7, 10))))
    if options.json:
        options.json.write_text(json.dumps({"options": vars(options), "runs": rows}, default=str, indent=1))


if __name__ == "__main__":
    main()
