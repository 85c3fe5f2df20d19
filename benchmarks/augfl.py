"""AugFL with and without a pretrained model, beside Per-FedAvg and FedAvg, on images of two classes for each device.

    python benchmarks/augfl.py mnist:PATH [--samples 5 10 20] [--rounds 100] [--seeds 3] [--json FILE]

As in the paper's section VI: 50 devices, each with two random classes and between M and 2 M samples, half of them its
support set; 40 of them train, 10 do not. The first 10 000 samples are the aggregator's: its model is trained on them.
What is told is the accuracy of the 10 on their query sets, of the model as it is and after one step on their support
sets: mean over devices, then mean and standard deviation over seeds. Roles and kernels are the product's, over the
loopback: no broker, and no time is measured. Smaller than the paper: perceptrons of 64 (devices) and 256 and 128 units
(aggregator), and R_h on one batch of 128 of the aggregator's samples for each round. alpha, rho and lambda were chosen
on seed 99, for M = 20, without looking at others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aggregator.pretrain import Job as Training
from aggregator.pretrain import pretrain
from aggregator.private import given, regulariser_of
from edge_sdk import datasets, lowrank
from edge_sdk.loopback import Loopback, Weather
from edge_sdk.method import Method
from edge_sdk.methods import METHODS, meta
from edge_sdk.methods.augfl import Settings as AugFL
from edge_sdk.methods.fedavg import Settings as FedAvg
from edge_sdk.methods.meta import Meta
from edge_sdk.methods.perfedavg import Settings as PerFedAvg
from edge_sdk.model import Model
from edge_sdk.private import Private
from edge_sdk.settings import read_toml
from models.compile import compile_module
from models.spec import Spec
from models.zoo import ZOO

DEVICES, TRAINING, HOSPITALS, SERVER = 50, 40, 4, 10_000
CALM = Weather(repeat=0.0)


@dataclass(frozen=True)
class Data:
    """Attributes: device -> its samples; classes."""

    x: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]


def dealt(table: datasets.Table, rows: np.ndarray, shape: tuple[int, ...], least: int, seed: int) -> Data:
    """Two random classes for each device, of D_i in [M, 2 M] samples as evenly as it goes; nobody shares a sample."""
    random, y = np.random.default_rng([seed, 50]), table.y[rows]
    stock = {c: random.permutation(rows[y == c]).tolist() for c in range(len(table.classes))}
    x, labels = {}, {}
    for i in range(DEVICES):
        size, pair = int(random.integers(least, 2 * least + 1)), random.choice(len(stock), 2, replace=False)
        mine = [stock[int(pair[k % 2])].pop() for k in range(size)]
        x[f"d{i:02d}"] = table.x[mine].reshape(size, *shape)
        labels[f"d{i:02d}"] = table.y[mine]
    return Data(x, labels)


Job = tuple[Method, Any, float]
"""Method, settings, lambda."""

ALPHA, RHO, LAMBDA, TAU = 0.01, 0.25, 2.0, 0.5
STEP = 1 / (TRAINING * RHO)
"""Of the global model: that of AugFL, so that only the method differs."""


def jobs(samples: int) -> dict[str, Job]:
    """What is compared; all of it at the largest M, the main ones at each."""
    mini_batches = FedAvg(eta_l=0.05, decay=1.0, weight_decay=0.0, batch=10, local_epochs=1)
    per, aug = PerFedAvg(alpha=ALPHA, eta_l=STEP), AugFL(alpha=ALPHA, rho=RHO, upload="u")
    main = {
        "FedAvg": (METHODS["fedavg"], mini_batches, 0.0),
        "Per-FedAvg": (METHODS["perfedavg"], per, 0.0),
        "AugFL without model": (METHODS["augfl"], aug, 0.0),
        "AugFL with model": (METHODS["augfl"], aug, LAMBDA),
    }
    if samples < 20:
        return main
    return main | {
        "FedAvg, one step": (METHODS["fedavg"], replace(mini_batches, eta_l=STEP, batch=0), 0.0),
        "Per-FedAvg, first order": (METHODS["perfedavg"], replace(per, hvp="none"), 0.0),
        "Per-FedAvg, 4 steps": (METHODS["perfedavg"], replace(per, local_epochs=4), 0.0),
        "distillation only": (METHODS["augfl"], replace(aug, weighting="none"), LAMBDA),
    }


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


def trained(job: Job, model: Model, data: Data, rounds: int, seed: int, private: Private) -> dict[str, float]:
    """Accuracies on the devices that did not train."""
    method, settings, weight = job
    pull = regulariser_of(replace(private, weight=weight), model.bundle, seed, "cpu")
    tree, envs = envs_of(method, settings, model, data, rounds, seed, given(method.env, pull))
    net = Loopback(method, tree, envs, {}, seed, CALM)
    net.run()
    theta = lowrank.unpack(model.layout, net.nodes["aggregator"].record.state.model)
    return judged(theta, model, data, envs)


def judged(theta: np.ndarray, model: Model, data: Data, envs: Mapping[str, Any]) -> dict[str, float]:
    """Query accuracy: of theta, and after one step on the support set."""
    how, found = Meta(alpha=ALPHA), {"global": [], "adapted": []}
    for d in sorted(data.x)[TRAINING:]:
        support, query = meta.support_and_query(envs[d], how.support)
        phi = meta.adapted(envs[d].grad_fn, how, theta, support)
        for name, at in (("global", theta), ("adapted", phi)):
            right = model.predict(at, data.x[d][query]).argmax(1) == data.y[d][query]
            found[name].append(float(right.mean()))
    return {name: float(np.mean(values)) for name, values in found.items()}


def prepared(spec: str, seed: int, directory: Path) -> tuple[datasets.Table, np.ndarray, Model, Private]:
    """The data, the rows for devices, their model, and the aggregator's."""
    table = datasets.load(spec)
    train, _ = datasets.held_out(table, seed=seed)
    table = datasets.standardised(table, train, datasets.DATASETS[table.name].together)
    size, classes = int(np.prod(table.x.shape[1:])), len(table.classes)
    torch.manual_seed(seed)
    net = ZOO["mlp"].build((size,), classes).eval()
    compile_module(net, Spec("small", (size,), classes)).save(directory / "small.bundle")
    more = {"input": (size,), "architecture": "mlp", "arguments": {"hidden": [256, 128]}, "epochs": 8}
    found = pretrain(
        Training(data=spec, out=directory, rows=SERVER, seed=seed, device="cpu", **more), lambda text: None
    )
    print(
        f"seed {seed}: the aggregator's model gets {100 * found['accuracy']:.1f}% of the test samples right", flush=True
    )
    private = replace(read_toml(directory / "private.toml", Private), every="batch", options={"tau": TAU})
    rows = np.setdiff1d(train, datasets.reserved(table, SERVER))
    return table, rows, Model(directory / "small.bundle"), private


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    p.add_argument("data", help="mnist:PATH or cifar10:PATH")
    p.add_argument("--samples", type=int, nargs="+", default=[20, 10, 5], help="M")
    p.add_argument("--rounds", type=int, default=100)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--json", type=Path)
    options = p.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as directory:
            table, rows, model, private = prepared(options.data, seed, Path(directory))
            for samples in options.samples:
                data = dealt(table, rows, model.input_shape, samples, seed)
                for name, job in jobs(samples).items():
                    one = trained(job, model, data, options.rounds, seed, private)
                    found.setdefault(f"M = {samples}", {}).setdefault(name, []).append(one)
                    print(f"seed {seed}  M = {samples:2d}  {name:24} {said([one])}", flush=True)
    for samples, methods in found.items():
        print(f"\n{samples}, {options.rounds} rounds, {options.seeds} seeds      as it is       after one step")
        for name, ones in methods.items():
            print(f"{name:24} {said(ones)}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def said(ones: list[dict[str, float]]) -> str:
    columns = ([100 * one[kind] for one in ones] for kind in ("global", "adapted"))
    return "   ".join(f"{np.mean(c):6.1f} +- {np.std(c, ddof=1) if len(c) > 1 else 0:4.1f}" for c in columns)


if __name__ == "__main__":
    main()
