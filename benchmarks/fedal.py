"""FedAL beside FedMD, FedMD-LF, FedMD-AL, training alone and FedAvg on MNIST: mean accuracy of the devices.

    python benchmarks/fedal.py ../shared/data/mnist.npz [--seeds 3] [--iterations 100] [--alphas 1 2 5] [--json FILE]

The paper's arrangement on a smaller scale: 10 devices, each with a label mix drawn from Dir(alpha) (`mixes`), batches
of 32, Adam 1e-3 at the devices and 1e-4 at the discriminator (or `--set eta_d=...`), tau = 5 (FedMD also with its own
tau = 1), 1000 public inputs from the training set that nobody trains on. Three architectures are dealt out in turns.
FedAvg needs one for all and has LeNet at every device, with plain SGD at 0.1; FedAL and FedProto on public inputs (of
equal features) are run on that too. An iteration is one step of each stage, so every method takes equally many local
steps, of the same samples. Accuracy is each device's on the same test samples; sd is over seeds, and so is that of the
difference to FedMD, which is paired by seed. "together" is the accuracy of the mean logits, "sure" the probability
that the devices' mean output gives to the true class. The roles are those of the product, with the kernels of compiled
models and the torch discriminator, over the network in memory. Bytes are of one device, up and down, of what is
exchanged (FedAvg: the model).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from torch import nn

from aggregator.kernels import kernels_for
from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.methods.fedal import distillation
from edge_sdk.methods.fedal.device import train_alone
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedal.settings import FEDMD, Env, Settings
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedavg import Env as AverageEnv
from edge_sdk.methods.fedavg import Settings as AverageSettings
from edge_sdk.methods.shared.reports import Progress
from edge_sdk.model.model import Model
from edge_sdk.nodes.kernels import outputs
from edge_sdk.nodes.settings import from_mapping, parse_assignment
from edge_sdk.replay import datasets
from edge_sdk.replay.cohorts.datasets import set_apart
from models.bundle.compile import compile_module
from models.ir.spec import Spec
from models.zoo.dense import MLP
from models.zoo.vision import LeNet

FIGURES = {"gap": "gap", "payoff": "U", "caught": "caught", "together": "together", "sure": "sure"}
CALM = NetworkFaults(repeat=0, delay=(0, 0))
SHAPE, CLASSES, PUBLIC = (1, 28, 28), 10, 1000
HOSPITALS, DEVICES = 2, 5  # of each


class Strided(nn.Module):
    """Two convolutions with stride and one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.body = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(16 * 7 * 7, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


NETWORKS = {"lenet": LeNet, "mlp": lambda: MLP(SHAPE, CLASSES), "strided": Strided}
FEATURES = {"lenet": "head.3"}
FEDPROTO = {**FEDMD, "tau": 1, "features": 84}

SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "FedMD, tau 1": {**FEDMD, "tau": 1},
    "FedMD": FEDMD,
    "FedMD-LF": {"al": 0.0},
    "FedMD-AL": {"lf_local": 0.0, "lf_transfer": 0.0},
    "FedAL": {},
}


def models_of(names: Sequence[str], folder: Path) -> list[Model]:
    """Compiled, one for each name."""
    found = []
    for i, name in enumerate(names):
        torch.manual_seed(i)
        path = folder / f"{name}.bundle"
        compile_module(NETWORKS[name]().eval(), Spec(name, SHAPE, CLASSES, features=FEATURES.get(name, ""))).save(path)
        found.append(Model(path, check=False))
    return found


@dataclass(frozen=True)
class Data:
    """Training samples of each device, public inputs, test samples."""

    devices: Mapping[str, tuple[Any, Any]]
    public: Any
    test: tuple[Any, Any]


def read(path: Path, alpha: float, seed: int, samples: int, tests: int, public: int) -> Data:
    table = datasets.load(f"mnist:{path}")
    train, test = datasets.hold_out(table, seed=seed)
    table = datasets.standardise(table, train, together=True)
    x, y = table.x.reshape(-1, *SHAPE), table.y
    common, train = set_apart(train, public, seed)
    shares = datasets.deal_rows(y[train], f"mixes={alpha}", HOSPITALS, DEVICES, 0.0, seed)
    own = {}
    for i, share in enumerate(rows for devices in shares for rows in devices):
        rows = train[datasets.draw_some(share, samples, seed, i)]
        own[f"d{i}"] = (x[rows], y[rows])
    rows = test[datasets.draw_some(np.arange(len(test)), tests, seed, 99)]
    return Data(own, x[common], (x[rows], y[rows]))


def tree() -> dict[str, tuple[str, ...]]:
    return {f"h{h}": tuple(f"d{h * DEVICES + i}" for i in range(DEVICES)) for h in range(HOSPITALS)}


def played(method: Method, envs: Mapping[str, NodeEnv]) -> Loopback:
    net = Loopback(method, tree(), envs, None, 0, CALM)
    net.run()
    return net


def accuracy(model: Model, theta: Any, test: tuple[Any, Any]) -> float:
    found = model.score(*test)(theta)
    return found["correct"] / found["samples"]


# FedAL and its relatives ----------------------------------------------------------------------------------------
def distilled(data: Data, models: Sequence[Model], settings: Mapping[str, Any], iterations: int, seed: int) -> Any:
    """Accuracies of the devices, bytes of one device, and the last round's figures of the game."""
    s = from_mapping(Settings, {"start": "own", **settings}, "settings")
    envs, of = envs_of(data, models, s, iterations // s.tau, seed)
    net = played(FEDAL, envs)
    reached = [accuracy(of[d], net.nodes[d].record.state.theta, data.test) for d in data.devices]
    arrays, width = 1 + (s.kd > 0) + (s.al > 0), s.width(CLASSES)
    last = [m for who, m in net.transcript.told if who == ROOT and isinstance(m, Progress)][-1]
    game = {k: last.sums[k] / last.sums["exchanged"] for k in ("gap", "payoff", "caught") if k in last.sums}
    thetas = {d: net.nodes[d].record.state.theta for d in data.devices}
    return reached, arrays * iterations * s.public_batch * width * 4, {**game, **together(of, thetas, data.test)}


def together(of: Mapping[str, Model], thetas: Mapping[str, Any], test: tuple[Any, Any]) -> dict[str, float]:
    """Accuracy of all devices' models together, and how sure they are: the mean probability of the true label."""
    x, y = test
    logits = np.stack([of[d].predict(theta, x) for d, theta in thetas.items()])
    sure = distillation.softmax(logits).mean(0)[np.arange(len(y)), y]
    return {"together": float((logits.mean(0).argmax(1) == y).mean()), "sure": float(sure.mean())}


def envs_of(
    data: Data, models: Sequence[Model], s: Settings, rounds: int, seed: int
) -> tuple[dict[str, Env], dict[str, Model]]:
    common: dict[str, Any] = {"seed": seed, "rounds": rounds, "settings": s, "classes": CLASSES}
    sizes = {h: len(devices) for h, devices in tree().items()}
    envs = {ROOT: Env(**common, sizes=sizes, **kernels_for(Env, "cpu"))}
    envs |= {h: Env(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in tree().items()}
    of = {d: models[i % len(models)] for i, d in enumerate(data.devices)}
    for d, (x, y) in data.devices.items():
        kernels = outputs.device_kernels(of[d], x, y, data.public, features=s.features)
        own: dict[str, Any] = {"grad_fn": of[d].grad_fn(x, y), "samples": len(y), **kernels}
        envs[d] = Env(**common, layout=of[d].layout, theta0=of[d].theta0, **own)
    return envs, of


def by_oneself(data: Data, models: Sequence[Model], iterations: int, seed: int) -> Any:
    s = Settings(start="own")
    envs, of = envs_of(data, models, s, iterations // s.tau, seed)
    return [accuracy(of[d], train_alone(with_name(envs[d], d)), data.test) for d in data.devices], 0, {}


def with_name(env: Env, name: str) -> Env:
    return Env(**{**vars(env), "me": name})


# FedAvg ---------------------------------------------------------------------------------------------------------
def averaged(data: Data, model: Model, iterations: int, seed: int) -> Any:
    """One epoch between averages, as many local steps in all."""
    s = AverageSettings(eta_l=0.1, decay=1.0, weight_decay=0.0, batch=32, local_epochs=1, weighting="samples")
    samples = min(len(y) for _, y in data.devices.values())
    rounds = max(1, round(iterations / -(-samples // s.batch)))
    common: dict[str, Any] = {"seed": seed, "rounds": rounds, "layout": model.layout, "theta0": model.theta0}
    common["settings"] = s
    sizes = {h: len(devices) for h, devices in tree().items()}
    envs: dict[str, NodeEnv] = {ROOT: AverageEnv(**common, sizes=sizes)}
    envs |= {h: AverageEnv(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in tree().items()}
    envs |= {d: AverageEnv(**common, grad_fn=model.grad_fn(x, y), samples=len(y)) for d, (x, y) in data.devices.items()}
    net = played(FEDAVG, envs)
    theta = lowrank.unpack(model.layout, net.nodes[ROOT].record.state.model)
    return [accuracy(model, theta, data.test)] * len(data.devices), 2 * rounds * model.layout.size * 4, {}


# Everything -----------------------------------------------------------------------------------------------------
def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        models = models_of(list(NETWORKS), Path(folder))
        for alpha in options.alphas:
            for seed in range(options.seeds):
                data = read(options.data, alpha, seed, options.samples, options.tests, options.public)
                more = dict(parse_assignment(text) for text in options.set)
                for name, call in calls(data, models, options.iterations, seed, more).items():
                    if options.only and name not in options.only:
                        continue
                    began = time.perf_counter()
                    reached, traffic, game = call()
                    line = {"alpha": alpha, "seed": seed, "method": name, "accuracy": statistics.mean(reached)}
                    line |= {"devices": reached, "bytes": traffic, "seconds": time.perf_counter() - began, **game}
                    found.append(line)
                    print(json.dumps({k: v for k, v in line.items() if k != "devices"}), file=sys.stderr, flush=True)
    return found


def calls(data: Data, models: Sequence[Model], iterations: int, seed: int, more: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"alone": lambda: by_oneself(data, models, iterations, seed)}
    for name, settings in SCHEMES.items():
        found[name] = lambda s={**more, **settings}: distilled(data, models, s, iterations, seed)
    found["FedAvg, LeNet"] = lambda: averaged(data, models[0], iterations, seed)
    found["FedAL, LeNet"] = lambda: distilled(data, models[:1], more, iterations, seed)
    found["FedProto, LeNet"] = lambda: distilled(data, models[:1], {**more, **FEDPROTO}, iterations, seed)
    return found


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Percent, mean ± sd over seeds; and the difference to FedMD at the same tau."""
    alphas = list(dict.fromkeys(line["alpha"] for line in lines))
    heads = "".join(f"{f'alpha {a:g}':>16}{'to FedMD':>15}" for a in alphas)
    rows = [f"{'':16}{heads}{'kB':>8}" + "".join(f"{name:>9}" for name in FIGURES.values())]
    for name in dict.fromkeys(line["method"] for line in lines):
        mine = [line for line in lines if line["method"] == name]
        cells = "".join(cell(lines, mine, alpha) for alpha in alphas)
        extra = "".join(
            f"{statistics.mean(m[k] for m in mine):>9.3f}" if k in mine[0] else f"{'-':>9}" for k in FIGURES
        )
        rows.append(f"{name:16}{cells}{mine[0]['bytes'] / 1e3:>8.0f}{extra}")
    return "\n".join(rows)


def cell(lines: Sequence[Mapping[str, Any]], mine: Sequence[Mapping[str, Any]], alpha: float) -> str:
    base = {line["seed"]: line["accuracy"] for line in lines if line["method"] == "FedMD" and line["alpha"] == alpha}
    here = [line for line in mine if line["alpha"] == alpha]
    apart = [line["accuracy"] - base[line["seed"]] for line in here if line["seed"] in base]
    return f"{spread([line['accuracy'] for line in here]):>16}{spread(apart, '+'):>15}"


def spread(values: Sequence[float], sign: str = "") -> str:
    if not values:
        return "-"
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):{sign}.1f} ± {100 * sd:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--alphas", type=float, nargs="+", default=[1.0, 2.0, 5.0])
    parser.add_argument("--iterations", type=int, default=100, help="steps of each stage (100)")
    parser.add_argument("--samples", type=int, default=600, help="of each device (600); 0: its whole share")
    parser.add_argument("--tests", type=int, default=2000, help="test samples (2000); 0: all")
    parser.add_argument("--public", type=int, default=PUBLIC, help="public inputs (1000)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all but FedAvg")
    parser.add_argument("--only", nargs="+", help="names of methods")
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = run(options)
    print(table(lines))
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
