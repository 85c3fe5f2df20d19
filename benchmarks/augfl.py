"""AugFL with and without a pretrained model, beside Per-FedAvg and FedAvg, on images of two classes for each device.

    python benchmarks/augfl.py mnist:PATH|cifar10:PATH [--samples 5 10 20] [--seeds 3] [--json FILE]
        [--rounds R] [--rho RHO] [--only METHOD ...]

As in the paper's section VI: 50 devices, each with two random classes and between M and 2 M samples, half of them its
support set; 40 of them train, 10 do not. The first training samples are the aggregator's: its model is trained on them.
What is told is the accuracy of the 10 on their query sets, of the model as it is and after one step on their support
sets, and that of the latter on all test samples of a device's two classes, which are many more: mean over devices, then
mean and standard deviation over seeds. Roles and kernels are the product's, over the loopback: no broker, and no time
is measured. Smaller than the paper: the networks (see SETUPS), and R_h on one batch of 128 of the aggregator's samples
for each round. Step sizes and lambda were chosen on seed 99, for M = 20, without looking at others.

FILE is written after each run, and what is in it is not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aggregator.private_model.pretrain import Pretraining, pretrain
from aggregator.private_model.table import give_regulariser, regulariser_of
from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.contract.method import Method
from edge_sdk.methods import METHODS
from edge_sdk.methods.augfl.settings import Settings as AugFL
from edge_sdk.methods.fedavg import Settings as FedAvg
from edge_sdk.methods.perfedavg import Settings as PerFedAvg
from edge_sdk.methods.shared import meta
from edge_sdk.methods.shared.meta import Meta
from edge_sdk.model.model import Model
from edge_sdk.nodes.private_table import Private
from edge_sdk.nodes.settings import read_toml
from edge_sdk.replay import datasets
from models.bundle.compile import compile_module
from models.ir.spec import Spec
from models.zoo import ZOO

DEVICES, TRAINING, HOSPITALS = 50, 40, 4
CALM = NetworkFaults(repeat=0.0)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The sizes and rates that differ between data sets.

    Attributes:
        server: how many samples are the aggregator's.
        flat: images are vectors for both models.
        small: the devices' model, of the zoo. large, arguments, epochs: the aggregator's, and its training.
        rounds, alpha, rho: of all meta-learning. weight: lambda. tau: of R_h. rate: of FedAvg's mini-batches.
        more: how many of the variants are run too, at the largest M.
    """

    server: int
    flat: bool
    small: str
    large: str
    arguments: Mapping[str, Any]
    epochs: int
    rounds: int
    alpha: float
    rho: float
    weight: float
    rate: float
    tau: float = 0.5
    more: int = 4

    @property
    def step(self) -> float:
        """Step size of the global model of Per-FedAvg: AugFL's, so that only the method differs."""
        return 1 / (TRAINING * self.rho)


SETUPS = {
    "mnist": Setup(
        server=10_000,
        flat=True,
        small="mlp",
        large="mlp",
        arguments={"hidden": [256, 128]},
        epochs=8,
        rounds=100,
        alpha=0.01,
        rho=0.25,
        weight=2.0,
        rate=0.05,
    ),
    "cifar10": Setup(
        server=7000,
        flat=False,
        small="plain",
        large="plain",
        arguments={"widths": [32, 64, 128], "pool": True},
        epochs=10,
        rounds=120,
        alpha=0.03,
        rho=0.25,
        weight=1.0,
        rate=0.05,
        more=3,
    ),
}


@dataclass(frozen=True)
class Data:
    """The samples of all devices.

    Attributes:
        x, y: device -> its samples, and their classes.
        others, truth: device -> test samples of its classes, and their classes; of those devices that do not train.
    """

    x: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]
    others: Mapping[str, np.ndarray]
    truth: Mapping[str, np.ndarray]


def dealt(
    table: datasets.Table, rows: np.ndarray, test: np.ndarray, shape: tuple[int, ...], least: int, seed: int
) -> Data:
    """Two random classes for each device, of D_i in [M, 2 M] samples as evenly as it goes; nobody shares a sample."""
    random, y = np.random.default_rng([seed, 50]), table.y[rows]
    stock = {c: random.permutation(rows[y == c]).tolist() for c in range(len(table.classes))}
    x, labels, others, truth = {}, {}, {}, {}
    for i in range(DEVICES):
        size, pair = int(random.integers(least, 2 * least + 1)), random.choice(len(stock), 2, replace=False)
        mine = [stock[int(pair[k % 2])].pop() for k in range(size)]
        x[f"d{i:02d}"] = table.x[mine].reshape(size, *shape)
        labels[f"d{i:02d}"] = table.y[mine]
        if i >= TRAINING:
            alike = test[np.isin(table.y[test], pair)]
            others[f"d{i:02d}"], truth[f"d{i:02d}"] = table.x[alike].reshape(-1, *shape), table.y[alike]
    return Data(x, labels, others, truth)


Job = tuple[Method, Any, float]
"""Method, settings, lambda."""


def jobs(setup: Setup, samples: int) -> dict[str, Job]:
    """The methods that are compared: all of them at the largest M, the main ones at each."""
    mini_batches = FedAvg(eta_l=setup.rate, decay=1.0, weight_decay=0.0, batch=10, local_epochs=1)
    per = PerFedAvg(alpha=setup.alpha, eta_l=setup.step)
    aug = AugFL(alpha=setup.alpha, rho=setup.rho, upload="u")
    main = {
        "FedAvg": (METHODS["fedavg"], mini_batches, 0.0),
        "Per-FedAvg": (METHODS["perfedavg"], per, 0.0),
        "AugFL without model": (METHODS["augfl"], aug, 0.0),
        "AugFL with model": (METHODS["augfl"], aug, setup.weight),
    }
    if samples < 20:
        return main
    variants = {
        "FedAvg, one step": (METHODS["fedavg"], replace(mini_batches, eta_l=setup.step, batch=0), 0.0),
        "distillation only": (METHODS["augfl"], replace(aug, weighting="none"), setup.weight),
        "Per-FedAvg, first order": (METHODS["perfedavg"], replace(per, hvp="none"), 0.0),
        "Per-FedAvg, 4 steps": (METHODS["perfedavg"], replace(per, local_epochs=4), 0.0),
    }
    return main | dict(list(variants.items())[: setup.more])


def envs_of(
    method: Method, settings: Any, model: Model, data: Data, rounds: int, seed: int, top: Mapping[str, Any]
) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
    """Hospital -> its devices, the first 40 in four; node -> env."""
    names = sorted(data.x)
    tree = {f"h{i}": tuple(names[:TRAINING][i::HOSPITALS]) for i in range(HOSPITALS)}
    common = dict(seed=seed, rounds=rounds, layout=model.layout, theta0=model.theta0, settings=settings)
    envs = {"aggregator": method.env(**common, sizes={h: len(d) for h, d in tree.items()}, **top)}
    envs |= {h: method.env(**common, sizes=dict.fromkeys(d, 1)) for h, d in tree.items()}
    for d in names:
        grad_fn = model.grad_fn(data.x[d], data.y[d])
        envs[d] = method.env(**common, me=d, grad_fn=grad_fn, samples=len(data.y[d]))
    return tree, envs


def trained(
    job: Job, model: Model, data: Data, rounds: int, seed: int, private: Private, alpha: float
) -> dict[str, float]:
    """Accuracies on the devices that did not train."""
    method, settings, weight = job
    pull = regulariser_of(replace(private, weight=weight), model.bundle, seed, "cpu")
    tree, envs = envs_of(method, settings, model, data, rounds, seed, give_regulariser(method.env, pull))
    net = Loopback(method, tree, envs, {}, seed, CALM)
    net.run()
    theta = lowrank.unpack(model.layout, net.nodes["aggregator"].record.state.model)
    return judged(theta, model, data, envs, alpha)


KINDS = {"global": "as it is", "adapted": "after one step", "others": "test samples"}


def judged(theta: np.ndarray, model: Model, data: Data, envs: Mapping[str, Any], alpha: float) -> dict[str, float]:
    """Query accuracy: of theta, and after one step on the support set; that of the latter on test samples."""
    how, found = Meta(alpha=alpha), {kind: [] for kind in KINDS}
    for d in sorted(data.x)[TRAINING:]:
        support, query = meta.support_and_query(envs[d], how.support)
        phi = meta.adapted(envs[d].grad_fn, how, theta, support)
        mine, others = (data.x[d][query], data.y[d][query]), (data.others[d], data.truth[d])
        for kind, at, (x, y) in (("global", theta, mine), ("adapted", phi, mine), ("others", phi, others)):
            found[kind].append(float((model.predict(at, x).argmax(1) == y).mean()))
    return {name: float(np.mean(values)) for name, values in found.items()}


@dataclass(frozen=True)
class Prepared:
    """What is the same for each M.

    Attributes:
        rows: of the table, for devices.
        test: rows that nobody trains on.
        accuracy: of the private model.
    """

    table: datasets.Table
    rows: np.ndarray
    test: np.ndarray
    model: Model
    private: Private
    accuracy: float


def prepared(spec: str, setup: Setup, seed: int, directory: Path) -> Prepared:
    table = datasets.load(spec)
    train, test = datasets.hold_out(table, seed=seed)
    table = datasets.standardise(table, train, datasets.DATASETS[table.name].together)
    shape = tuple(int(d) for d in table.x.shape[1:])
    shape, classes = (int(np.prod(shape)),) if setup.flat else shape, len(table.classes)
    torch.manual_seed(seed)
    net = ZOO[setup.small].build(shape, classes).eval()
    compile_module(net, Spec("small", shape, classes)).save(directory / "small.bundle")
    more: dict[str, Any] = {
        "input": shape,
        "architecture": setup.large,
        "arguments": dict(setup.arguments),
        "epochs": setup.epochs,
    }
    found = pretrain(
        Pretraining(data=spec, out=directory, rows=setup.server, seed=seed, device="cpu", **more), lambda text: None
    )
    private = replace(read_toml(directory / "private.toml", Private), every="batch", options={"tau": setup.tau})
    rows = np.setdiff1d(train, datasets.reserve_rows(table, setup.server))
    return Prepared(table, rows, test, Model(directory / "small.bundle"), private, found["accuracy"])


# Command line ---------------------------------------------------------------------------------------------------
Found = dict[str, dict[str, dict[str, dict[str, float]]]]
"""M -> method -> seed -> accuracies."""


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    p.add_argument("data", help="mnist:PATH or cifar10:PATH")
    p.add_argument("--samples", type=int, nargs="+", default=[20, 10, 5], help="M")
    p.add_argument("--rounds", type=int, help="100 for MNIST, 120 for CIFAR-10")
    p.add_argument("--rho", type=float, help="0.25; the step of all meta-learning is 1 / (40 rho)")
    p.add_argument("--only", nargs="+", metavar="METHOD", help="the names in the table, in place of all")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--json", type=Path)
    options = p.parse_args()
    torch.set_num_threads(1)
    setup = SETUPS[options.data.partition(":")[0]]
    setup = replace(setup, rounds=options.rounds or setup.rounds, rho=options.rho or setup.rho)
    found = before(options.json, setup)
    for seed in range(options.seeds):
        wanted = {m: missing(found, setup, m, seed, options.only) for m in options.samples}
        if any(wanted.values()):
            one_seed(options.data, setup, seed, wanted, found, options.json)
    for m in options.samples:
        print(f"\nM = {m}, {setup.rounds} rounds, {options.seeds} seeds")
        print(" " * 24 + "  ".join(f"{text:>14}" for text in KINDS.values()))
        every = found[f"M = {m}"].items()
        ones = {k: [by[str(i)] for i in range(options.seeds)] for k, by in every if k in (options.only or [k])}
        for name, of in ones.items():
            print(f"{name:24}{said(of)}")
        if not {"AugFL with model", "AugFL without model"} <= set(ones):
            continue
        pairs = zip(ones["AugFL with model"], ones["AugFL without model"], strict=True)
        print(f"{'gain of the model':24}{said([{kind: a[kind] - b[kind] for kind in KINDS} for a, b in pairs])}")


def missing(found: Found, setup: Setup, samples: int, seed: int, only: Sequence[str] | None) -> dict[str, Job]:
    """The wanted methods that have not been run yet."""
    done = found.setdefault(f"M = {samples}", {})
    wanted = {name: job for name, job in jobs(setup, samples).items() if only is None or name in only}
    return {name: job for name, job in wanted.items() if str(seed) not in done.get(name, {})}


def one_seed(
    spec: str, setup: Setup, seed: int, wanted: Mapping[int, Mapping[str, Job]], found: Found, file: Path | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        at = prepared(spec, setup, seed, Path(directory))
        print(
            f"seed {seed}: the aggregator's model gets {100 * at.accuracy:.1f}% of the test samples right", flush=True
        )
        for samples, some in wanted.items():
            data = dealt(at.table, at.rows, at.test, at.model.input_shape, samples, seed)
            for name, job in some.items():
                one = trained(job, at.model, data, setup.rounds, seed, at.private, setup.alpha)
                found[f"M = {samples}"].setdefault(name, {})[str(seed)] = one
                print(f"seed {seed}  M = {samples:2d}  {name:24}{said([one])}", flush=True)
                if file:
                    file.write_text(json.dumps({"setup": asdict(setup), "found": found}, indent=1))


def before(file: Path | None, setup: Setup) -> Found:
    """Reads the figures of an interrupted run."""
    if file is None or not file.is_file():
        return {}
    kept = json.loads(file.read_text())
    if kept["setup"] != json.loads(json.dumps(asdict(setup))):
        raise SystemExit(f"{file} is of a run with other settings: name another file")
    found: Found = kept["found"]
    return found


def said(ones: Sequence[Mapping[str, float]]) -> str:
    columns = ([100 * one[kind] for one in ones] for kind in KINDS)
    return "  ".join(f"{np.mean(c):6.1f} +- {np.std(c, ddof=1) if len(c) > 1 else 0:4.1f}" for c in columns)


if __name__ == "__main__":
    main()
