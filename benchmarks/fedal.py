"""FedAL beside FedMD, FedMD-LF, a frozen discriminator, training alone and FedAvg on MNIST, after equal steps.

    python benchmarks/fedal.py $AUSCULT_DATA/mnist.npz [--seeds 3] [--iterations 300] [--alpha 1] [--json FILE]
        [--only ROW ...] [--picture FILE.svg]

The paper's arrangement on a smaller scale, so that several seeds are affordable: 10 devices, each with a label
mix drawn from Dir(alpha) (`mixes`), images of 14 x 14 (means of four pixels), batches of 32, Adam 1e-3 at the devices,
tau = 5, 1000 public inputs from the training set that nobody trains on. Three networks are dealt out in turns, of
which none has a parameter in common with another. A fifth of each device's samples is for validation.

An iteration is one step of the local and one of the transfer stage, so a device computes two gradients of 32 inputs.
"FedAvg, equal steps" makes as many local steps in all, of batches of 32; "FedAvg, equal bytes" so many rounds that the
models cost what FedAL's outputs do; both have one network at every device, and so has "FedAL, one network". Every
method has four trials, judged on validation samples after a quarter of the iterations: FedAL's of eta_d and of the
weight of the adversarial term, which the frozen discriminator keeps (its eta_d is next to nothing). Accuracy is each
device's on the same test samples. Bytes are of one device, both ways, of what is exchanged.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from torch import nn

from aggregator.kernels import kernels_for
from benchmarks import curves
from benchmarks.protocol import (
    TUNING,
    Point,
    Quiet,
    Results,
    check_budgets,
    cost_to,
    grid,
    markdown,
    mean_sd,
    still_rising,
    tune,
)
from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import ROOT, NetworkFaults
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.methods.fedal.device import train_alone
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedal.settings import FEDMD, Env, Settings
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedavg import Env as AverageEnv
from edge_sdk.methods.fedavg import Settings as AverageSettings
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.kernels import outputs
from edge_sdk.replay import datasets
from edge_sdk.replay.cohorts.datasets import set_apart
from edge_sdk.replay.datasets.partition import deal_rows, draw_some

CALM = NetworkFaults(repeat=0, delay=(0, 0))
SIDE, CLASSES, PUBLIC = 14, 10, 1000
SHAPE = (SIDE * SIDE,)
HOSPITALS, DEVICES = 2, 5  # of each
VALIDATION, TRIED = 0.2, 4


def dense(*widths: int) -> nn.Module:
    sizes, layers = (SIDE * SIDE, *widths), list[nn.Module]()
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], CLASSES))


NETWORKS = {"one": (32,), "two": (48, 24), "three": (24, 24, 24)}
LF = {"al": 0.0}
FROZEN = {"eta_d": 1e-12}
TRIALS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "FedMD": [{**FEDMD, **t} for t in grid(tau=(1, 5), kd=(0.5, 1.0))],
    "FedMD-LF": [{**LF, **t} for t in grid(lf_local=(0.3, 1.0), lf_transfer=(0.3, 1.0))],
    "FedAL": grid(eta_d=(1e-4, 1e-3), al=(1.0, 10.0)),
    "FedAvg": grid(eta_l=(0.05, 0.1, 0.2, 0.4)),
}
ROWS: Mapping[str, str | None] = {
    "alone": None,
    "FedMD": "FedMD",
    "FedMD-LF": "FedMD-LF",
    "FedAL": "FedAL",
    "FedAL, frozen discriminator": "FedAL",
    "FedAvg, equal steps": "FedAvg",
    "FedAvg, equal bytes": "FedAvg",
    "FedAL, one network": "FedAL",
}
"""Row of the table -> whose trials it has."""


def models_of(names: Sequence[str], folder: Path) -> list[Model]:
    """Compiled, one for each name."""
    found = []
    for i, name in enumerate(names):
        torch.manual_seed(i)
        path = folder / f"{name}.bundle"
        compile_module(dense(*NETWORKS[name]).eval(), Spec(name, SHAPE, CLASSES)).save(path)
        found.append(Model(path, check=False))
    return found


# Data -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Data:
    """Training and validation samples of each device, public inputs, test samples."""

    devices: Mapping[str, tuple[Any, Any]]
    validation: Mapping[str, tuple[Any, Any]]
    public: Any
    test: tuple[Any, Any]


def read(path: Path, alpha: float, seed: int, samples: int, tests: int) -> Data:
    table = small_images(path)
    train, test = datasets.hold_out(table, seed=seed)
    common, train = set_apart(train, PUBLIC, seed)
    shares = deal_rows(table.y[train], f"mixes={alpha}", HOSPITALS, DEVICES, 0.0, seed)
    own, judged, cut = {}, {}, round(VALIDATION * samples)

    def part(rows: Any) -> tuple[Any, Any]:
        return table.x[rows], table.y[rows]

    for i, share in enumerate(rows for devices in shares for rows in devices):
        rows = np.random.default_rng([seed, 8, i]).permutation(train[draw_some(share, samples, seed, i)])
        own[f"d{i}"], judged[f"d{i}"] = part(rows[cut:]), part(rows[:cut])
    rows = test[draw_some(np.arange(len(test)), tests, seed, 99)]
    return Data(own, judged, part(common)[0], part(rows))


@cache
def small_images(path: Path) -> datasets.Table:
    """Images of a quarter of the pixels, as vectors; MNIST has a test part of its own, so they fit all seeds."""
    table = datasets.load(f"mnist:{path}")
    x = table.x.reshape(-1, SIDE, 2, SIDE, 2).mean((2, 4), dtype=np.float32).reshape(-1, SIDE * SIDE)
    table = replace(table, x=x)
    return datasets.standardise(table, datasets.hold_out(table)[0], together=True)


def tree() -> dict[str, tuple[str, ...]]:
    return {f"h{h}": tuple(f"d{h * DEVICES + i}" for i in range(DEVICES)) for h in range(HOSPITALS)}


# FedAL and its relatives ----------------------------------------------------------------------------------------
@dataclass
class Trained:
    """Models of the devices at the end, bytes of one device, and validation accuracy over kB of it on the way."""

    thetas: dict[str, Any]
    of: dict[str, Model]
    bytes: int
    curve: list[Point]


def accuracy(model: Model, theta: Any, part: tuple[Any, Any]) -> float:
    return float((model.predict(theta, part[0]).argmax(1) == part[1]).mean())


def on_validation(data: Data, of: Mapping[str, Model], thetas: Mapping[str, Any]) -> float:
    return statistics.mean(accuracy(of[d], thetas[d], data.validation[d]) for d in data.devices)


def on_test(data: Data, t: Trained) -> float:
    return statistics.mean(accuracy(t.of[d], t.thetas[d], data.test) for d in data.devices)


def played(method: Method, envs: Mapping[str, NodeEnv], every: int, cost: float, judge: Any) -> Any:
    """The network after a run, and the curve. `cost`: bytes of a round; `judge`: network -> accuracy on validation."""
    net, curve = Quiet(method, tree(), envs, None, 0, CALM), list[Point]()

    def seen(state: Any, now: float) -> None:
        round = getattr(state, "round", 0)
        if round and round % every == 0 and (not curve or curve[-1].round < round):
            curve.append(Point(round, cost * round / 1e3, judge(net)))

    net.seen = seen
    net.run()
    return net, curve


def distilled(data: Data, models: Sequence[Model], settings: Mapping[str, Any], iterations: int, seed: int) -> Trained:
    s = from_mapping(Settings, {"start": "own", **settings}, "settings")
    rounds = iterations // s.tau
    envs, of = envs_of(data, models, s, rounds, seed)

    def thetas(net: Any) -> dict[str, Any]:
        return {d: net.nodes[d].record.state.theta for d in data.devices}

    cost = (1 + (s.kd > 0) + (s.al > 0)) * s.public_batch * CLASSES * 4  # of an iteration
    net, curve = played(
        FEDAL, envs, max(1, rounds // 20), s.tau * cost, lambda net: on_validation(data, of, thetas(net))
    )
    return Trained(thetas(net), of, iterations * cost, curve)


def envs_of(data: Data, models: Sequence[Model], s: Settings, rounds: int, seed: int) -> Any:
    common: dict[str, Any] = {"seed": seed, "rounds": rounds, "settings": s, "classes": CLASSES}
    sizes = {h: len(devices) for h, devices in tree().items()}
    envs = {ROOT: Env(**common, sizes=sizes, **kernels_for(Env, "cpu"))}
    envs |= {h: Env(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in tree().items()}
    of = {d: models[i % len(models)] for i, d in enumerate(data.devices)}
    for d, (x, y) in data.devices.items():
        kernels = outputs.device_kernels(of[d], x, y, data.public, features=s.features)
        own: dict[str, Any] = {"grad_fn": of[d].grad_fn(x, y), "samples": len(y), **kernels}
        envs[d] = Env(**common, me=d, layout=of[d].layout, theta0=of[d].theta0, **own)
    return envs, of


def alone(data: Data, models: Sequence[Model], iterations: int, seed: int) -> Trained:
    """As many gradients as the others compute, all of them of the own samples."""
    s = Settings(start="own")
    envs, of = envs_of(data, models, s, 2 * iterations // s.tau, seed)
    return Trained({d: train_alone(envs[d]) for d in data.devices}, of, 0, [])


# FedAvg ---------------------------------------------------------------------------------------------------------
def averaged(data: Data, model: Model, eta: float, rounds: int, seed: int) -> Trained:
    """One epoch between averages."""
    s = AverageSettings(eta_l=eta, decay=1.0, weight_decay=0.0, batch=32, local_epochs=1, weighting="samples")
    common: dict[str, Any] = {"seed": seed, "rounds": rounds, "layout": model.layout, "theta0": model.theta0}
    common["settings"], of = s, dict.fromkeys(data.devices, model)
    sizes = {h: len(devices) for h, devices in tree().items()}
    envs: dict[str, NodeEnv] = {ROOT: AverageEnv(**common, sizes=sizes)}
    envs |= {h: AverageEnv(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in tree().items()}
    envs |= {d: AverageEnv(**common, grad_fn=model.grad_fn(x, y), samples=len(y)) for d, (x, y) in data.devices.items()}

    def shared(net: Any) -> dict[str, Any]:
        return dict.fromkeys(data.devices, lowrank.unpack(model.layout, net.nodes[ROOT].record.state.model))

    cost = 2 * model.layout.size * 4
    net, curve = played(FEDAVG, envs, max(1, rounds // 20), cost, lambda net: on_validation(data, of, shared(net)))
    return Trained(shared(net), of, rounds * cost, curve)


# The table ------------------------------------------------------------------------------------------------------
class Bench:
    """All runs of one alpha."""

    def __init__(self, options: argparse.Namespace, models: Sequence[Model]) -> None:
        self.o, self.models, self.kept = options, models, Results(options.json)

    def trained(self, name: str, settings: Mapping[str, Any], iterations: int, seed: int) -> Any:
        data = read(self.o.data, self.o.alpha, seed, self.o.samples, self.o.tests)
        models = self.models[:1] if "one network" in name or "FedAvg" in name else self.models
        if name.startswith("alone"):
            return data, alone(data, models, iterations, seed)
        if "FedAvg" not in name:
            return data, distilled(data, models, settings, iterations, seed)
        steps = -(-len(data.devices["d0"][1]) // 32)
        rounds = 2 * iterations // steps
        if name.endswith("bytes"):
            rounds = max(1, 3 * iterations * 32 * CLASSES // (2 * models[0].layout.size))
        return data, averaged(data, models[0], settings["eta_l"], rounds, seed)

    def chosen(self, name: str) -> Any:
        def judge(trial: Mapping[str, Any]) -> float:
            data, t = self.trained(name, trial, self.o.iterations // TRIED, TUNING)
            return on_validation(data, t.of, t.thetas)

        best, scores = self.kept.get(f"{name}: trials", lambda: tune([dict(t) for t in TRIALS[name]], judge))
        print(f"{name}: {best}, trials {[round(100 * s, 2) for s in scores]}", file=sys.stderr)
        return best

    def measured(self, name: str, settings: Mapping[str, Any], seed: int) -> Any:
        data, t = self.trained(name, settings, self.o.iterations, seed)
        rising = still_rising(t.curve) if len(t.curve) > 3 else None
        return {"test": on_test(data, t), "bytes": t.bytes, "rising": rising, "curve": [vars(p) for p in t.curve]}

    def rows(self) -> tuple[list[list[str]], dict[str, Any]]:
        """The table, and the curves of each row."""
        found, drawn, base = [], {}, None
        for name in self.o.only:
            settings = self.settings_of(name)
            seeds = [self.kept.get(f"{name}: {s}", lambda n=name, k=settings, s=s: self.measured(n, k, s))
                     for s in range(self.o.seeds)]  # fmt: skip
            base = seeds if name == "FedMD-LF" else base
            drawn[name] = [one["curve"] for one in seeds]
            found.append(row(name, settings, seeds, base))
            print(markdown(HEAD, found[-1:]), flush=True)
        return found, drawn

    @cache  # noqa: B019
    def settings_of(self, name: str) -> Any:
        """What the trials of a row's method have chosen; training alone has none."""
        tried = ROWS[name]
        chosen = self.chosen(tried) if tried else {}
        return {**chosen, **FROZEN} if "frozen" in name else chosen


TARGET = 0.8
HEAD = ("", "chosen", "accuracy", "over FedMD-LF", "still rising", "kB per device", f"to {TARGET:.0%}")


def row(name: str, settings: Mapping[str, Any], seeds: Sequence[Any], base: Sequence[Any] | None) -> list[str]:
    words = ", ".join(f"{key} {value:g}" for key, value in settings.items() if isinstance(value, (int, float)))
    gains = (
        [a["test"] - b["test"] for a, b in zip(seeds, base, strict=True)]
        if base and name.startswith("FedAL") and "one" not in name
        else []
    )
    return [
        name, words, mean_sd([s["test"] for s in seeds], 2, 100), mean_sd(gains, 2, 100) if gains else "",
        mean_sd([s["rising"] for s in seeds], 2, 100), f"{seeds[0]['bytes'] / 1e3:.0f}",
        mean_sd([cost_to([Point(**p) for p in s["curve"]], TARGET) for s in seeds], 0) if name != "alone" else "-",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--iterations", type=int, default=300, help="steps of each stage (300)")
    parser.add_argument("--samples", type=int, default=600, help="of each device (600)")
    parser.add_argument("--tests", type=int, default=2000, help="test samples (2000)")
    parser.add_argument("--only", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    parser.add_argument("--picture", type=Path, help="an SVG file of the curves")
    parser.add_argument("--json", type=Path, help="results are kept there, and not computed again")
    options = parser.parse_args()
    torch.set_num_threads(1)
    check_budgets(TRIALS)
    with tempfile.TemporaryDirectory() as folder:
        rows, drawn = Bench(options, models_of(list(NETWORKS), Path(folder))).rows()
    if options.picture:
        curves.draw(options.picture, drawn, "kB per device, both ways")
    print(
        f"\n{options.iterations} iterations, alpha {options.alpha:g}, {options.seeds} seeds\n\n{markdown(HEAD, rows)}"
    )


if __name__ == "__main__":
    main()
