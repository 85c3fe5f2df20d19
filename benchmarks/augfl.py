"""AugFL with and without a pretrained model, beside Per-FedAvg and FedAvg, on images of two classes for each device.

    python benchmarks/augfl.py mnist:PATH|cifar10:PATH [--samples 5 20] [--seeds 3] [--rounds R] [--json FILE]
        [--only METHOD ...]

As in the paper's section VI: 50 devices, each with two random classes and between M and 2 M samples, half of them its
support set; 40 of them train, 10 do not. The first training samples are the aggregator's: its model is trained on them.
What is told is the accuracy of the 10 on their query sets, of the model as it is and after one step on their support
sets, and that of the latter on all test samples of a device's two classes, which are many more.

Every method has a step of its own, and its own step alpha of the adaptation, at each M: nine trials each, judged after
adaptation on the query sets of 10 devices in each of three other draws, whose images no device of the table has; the
mean counts. For AugFL they lie within its stability limit. Then, at these steps, AugFL with a model has four trials of
lambda and of the regulariser.
FedAvg makes an epoch of batches of 10 in a round, AugFL and Per-FedAvg compute three or four gradients of all samples:
"gradients" counts them in passes over a device's samples; "FedAvg, two epochs" has as many as they. MB are encoded
messages of all devices, both ways; "to 80 %": until the 10 reach that on their query sets after a step. Extra rows are
the baselines as the authors' public code has them: Per-FedAvg of first order, and a regulariser of cross-entropy and
contrastive distillation whose heads learn.
Roles and kernels are the product's, over the loopback. Smaller than the paper: networks, and R_h on one batch a round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch

from aggregator.private_model.pretrain import Pretraining, pretrain
from aggregator.private_model.table import give_regulariser, regulariser_of
from benchmarks.pairs import TRAINING, Data, dealt
from benchmarks.protocol import TUNING, Point, Quiet, Results, check_budgets, cost_to, grid, markdown, mean_sd, tune
from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import ROOT, NetworkFaults
from edge_sdk.contract.method import Method
from edge_sdk.methods import METHODS
from edge_sdk.methods.augfl.settings import Settings as AugFL
from edge_sdk.methods.fedavg import Settings as FedAvg
from edge_sdk.methods.perfedavg import Settings as PerFedAvg
from edge_sdk.methods.shared.training import meta
from edge_sdk.methods.shared.training.meta import Meta
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo import ZOO
from edge_sdk.nodes.configuration.private_table import Private
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.replay import datasets
from edge_sdk.replay.datasets.table import reserve_rows
from edge_sdk.wire.codec.codec import Codec

HOSPITALS = 4
EVERY = 5
DRAWS = 3  # of ten devices, by which a trial is judged: 37 query images of one draw at M = 5 are too few
TARGET = 0.8
"""Points of a curve are so many rounds apart; accuracy after a step until which megabytes are counted."""
CALM = NetworkFaults(repeat=0.0, delay=(0.0, 0.0))


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The sizes that differ between data sets.

    Attributes:
        server: how many samples are the aggregator's.
        tried: one of so many of the other training samples is for trials.
        flat: images are vectors for both models.
        small: the devices' model, of the zoo. large, arguments, epochs: the aggregator's, and its training.
        rounds: of all methods.
    """

    server: int
    tried: int
    flat: bool
    small: str
    large: str
    arguments: Mapping[str, Any]
    epochs: int
    rounds: int


SETUPS = {
    "mnist": Setup(
        server=10_000, tried=4, flat=True, small="mlp", large="mlp", arguments={"hidden": [256, 128]}, epochs=8,
        rounds=100,
    ),
    "cifar10": Setup(  # half of the paper's private images, so that a tenth of the data set is enough at M = 20
        server=5000, tried=2, flat=False, small="plain", large="plain",
        arguments={"widths": [32, 64, 128], "pool": True}, epochs=10, rounds=100,
    ),
}  # fmt: skip


# Methods and their trials ---------------------------------------------------------------------------------------
WITHOUT = {"weight": 0.0}
CRD = {"regulariser": "crd", "options": {"tau": 0.5, "head_steps": 8, "head_rate": 0.02}}


def job(name: str, alpha: float, step: float) -> tuple[Method, Any]:
    """Method and settings. `step`: of the global model, in FedAvg of each batch."""
    per = PerFedAvg(alpha=alpha, eta_l=step)
    aug = AugFL(alpha=alpha, rho=1 / (TRAINING * step), upload="u")
    found = {
        "FedAvg": ("fedavg", FedAvg(eta_l=step, decay=1.0, weight_decay=0.0, batch=10, local_epochs=1)),
        "FedAvg, two epochs": ("fedavg", FedAvg(eta_l=step, decay=1.0, weight_decay=0.0, batch=10, local_epochs=2)),
        "Per-FedAvg": ("perfedavg", per),
        "Per-FedAvg, first order": ("perfedavg", replace(per, hvp="none")),
        "distillation only": ("augfl", replace(aug, weighting="none")),
    }
    method, settings = found.get(name, ("augfl", aug))
    return METHODS[method], settings


ALPHAS = (0.003, 0.01, 0.03)
STEPS = {
    "FedAvg": (0.03, 0.1, 0.3),
    "FedAvg, two epochs": (0.03, 0.1, 0.3),
    "Per-FedAvg": (0.03, 0.1, 0.3),
    "Per-FedAvg, first order": (0.03, 0.1, 0.3),
    "AugFL without model": (1 / 60, 1 / 30, 1 / 15),
}
TRIALS = {name: grid(alpha=ALPHAS, step=steps) for name, steps in STEPS.items()}
MODELS = {
    "AugFL with model, kd": grid(weight=(0.1, 0.3, 1.0, 3.0), regulariser=("kd",)),
    "AugFL with model, crd": [{"weight": w, **CRD} for w in (0.05, 0.2, 1.0, 5.0)],
}
"""Trials at the alpha and the step of AugFL without a model."""


# A run ----------------------------------------------------------------------------------------------------------
def envs_of(
    method: Method, settings: Any, model: Model, data: Data, rounds: int, seed: int, top: Mapping[str, Any]
) -> Any:
    """Hospital -> its devices, the first 40 in four; node -> env."""
    names = sorted(data.x)
    tree = {f"h{i}": tuple(names[:TRAINING][i::HOSPITALS]) for i in range(HOSPITALS)}
    common = dict(seed=seed, rounds=rounds, layout=model.layout, theta0=model.theta0, settings=settings)
    envs = {ROOT: method.env(**common, sizes={h: len(d) for h, d in tree.items()}, **top)}
    envs |= {h: method.env(**common, sizes=dict.fromkeys(d, 1)) for h, d in tree.items()}
    for d in names:
        grad_fn = model.grad_fn(data.x[d], data.y[d])
        envs[d] = method.env(**common, me=d, grad_fn=grad_fn, samples=len(data.y[d]))
    return tree, envs


def trained(at: Prepared, data: Data, name: str, chosen: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Accuracies on the devices that did not train, on the way and at the end.

    Args:
        chosen: alpha, step, and fields of the private table.
    """
    method, settings = job(name, chosen["alpha"], chosen["step"])
    table = {key: value for key, value in chosen.items() if key not in ("alpha", "step")}
    pull = regulariser_of(replace(at.private, **(table or WITHOUT)), at.model.bundle, seed, "cpu")
    top = give_regulariser(method.env, pull)
    tree, envs = envs_of(method, settings, at.model, data, at.setup.rounds, seed, top)
    passes, curve = Passes(), list[Point]()
    plain = {d: envs[d] for d in sorted(data.x)[TRAINING:]}
    envs |= {d: passes.through(envs[d]) for d in sorted(data.x)[:TRAINING]}
    net = Quiet(method, tree, envs, {}, seed, CALM)
    net.codec = Codec(method.messages, layout=at.model.layout)

    def reached(state: Any) -> dict[str, float]:
        return judged(lowrank.unpack(at.model.layout, state.model), at.model, data, plain, chosen["alpha"])

    def seen(state: Any, now: float) -> None:
        if state.round % EVERY == 0 and state.round > (curve[-1].round if curve else 0):
            curve.append(Point(state.round, net.bytes / 1e6, reached(state)["adapted"]))

    if seed < TUNING:
        net.seen = seen
    net.run()
    counted = {"gradients": passes.total / TRAINING, "megabytes": net.bytes / 1e6}
    return reached(net.nodes[ROOT].record.state) | counted | {"curve": [vars(point) for point in curve]}


class Passes:
    """Passes over a device's samples that gradients were computed of, summed over devices."""

    def __init__(self) -> None:
        self.total = 0.0

    def through(self, env: Any) -> Any:
        def gradient(theta: Any, indices: Any) -> Any:
            self.total += 1 if indices is None else len(indices) / env.samples
            return env.grad_fn(theta, indices)

        return replace(env, grad_fn=gradient)


KINDS = {"global": "as it is", "adapted": "after a step", "others": "test images"}


def judged(theta: np.ndarray, model: Model, data: Data, envs: Mapping[str, Any], alpha: float) -> dict[str, float]:
    """Query accuracy: of theta, and after one step on the support set; that of the latter on test samples."""
    how, found = Meta(alpha=alpha), {kind: [] for kind in KINDS}
    for d in sorted(data.x)[TRAINING:]:
        support, query = meta.support_and_query(envs[d], how.support)
        phi = meta.adapted(envs[d].grad_fn, how, theta, support)
        mine, others = (data.x[d][query], data.y[d][query]), (data.others[d], data.truth[d])
        for kind, at, (x, y) in (("global", theta, mine), ("adapted", phi, mine), ("others", phi, others)):
            if len(y):
                found[kind].append(float((model.predict(at, x).argmax(1) == y).mean()))
    return {name: float(np.mean(values)) for name, values in found.items() if values}


@dataclass(frozen=True)
class Prepared:
    """What is the same for each M.

    Attributes:
        rows: of the table, for devices; trials: for those of the trials. test: rows that nobody trains on.
        accuracy: of the private model.
    """

    setup: Setup
    table: datasets.Table
    rows: np.ndarray
    trials: np.ndarray
    test: np.ndarray
    model: Model
    private: Private
    accuracy: float

    def dealt(self, least: int, seed: int) -> Data:
        """Data of the devices; in trials there are no test images."""
        rows, test = (self.trials, self.test[:0]) if seed >= TUNING else (self.rows, self.test)
        return dealt(self.table, rows, test, self.model.input_shape, least, seed)


def prepared(spec: str, setup: Setup, seed: int, directory: Path) -> Prepared:
    table = datasets.load(spec)
    train, test = datasets.hold_out(table, seed=seed)
    table = datasets.standardise(table, train, datasets.DATASETS[table.name].together)
    shape = tuple(int(d) for d in table.x.shape[1:])
    shape, classes = (int(np.prod(shape)),) if setup.flat else shape, len(table.classes)
    torch.manual_seed(seed)
    net = ZOO[setup.small].build(shape, classes).eval()
    compile_module(net, Spec("small", shape, classes)).save(directory / "small.bundle")
    more: dict[str, Any] = {"input": shape, "architecture": setup.large, "arguments": dict(setup.arguments)}
    more |= {"epochs": setup.epochs, "rows": setup.server, "seed": seed, "device": "cpu"}
    found = pretrain(Pretraining(data=spec, out=directory, **more), lambda text: None)
    private = replace(read_toml(directory / "private.toml", Private), every="batch", options={})
    rows = np.setdiff1d(train, reserve_rows(table, setup.server))
    model, tried = Model(directory / "small.bundle"), np.arange(len(rows)) % setup.tried == 0
    return Prepared(setup, table, rows[~tried], rows[tried], test, model, private, found["accuracy"])


# The table ------------------------------------------------------------------------------------------------------
class Bench:
    """All runs of one data set; a private model is trained once for each seed."""

    def __init__(self, spec: str, setup: Setup, kept: Results, folder: Path) -> None:
        self.spec, self.setup, self.kept, self.folder, self.ready = spec, setup, kept, folder, dict[int, Prepared]()

    def at(self, seed: int) -> Prepared:
        if seed not in self.ready:
            folder = self.folder / str(seed)
            folder.mkdir()
            self.ready[seed] = prepared(self.spec, self.setup, seed, folder)
            print(f"seed {seed}: private model {100 * self.ready[seed].accuracy:.1f} % on test images", file=sys.stderr)
        return self.ready[seed]

    def once(self, name: str, chosen: Mapping[str, Any], least: int, seed: int) -> Any:
        at = self.at(seed)
        return trained(at, at.dealt(least, seed), name, chosen, seed)

    def chosen(self, name: str, trials: Sequence[Mapping[str, Any]], least: int) -> Any:
        best, scores = self.kept.get(
            f"M = {least}, {name}: trials",
            lambda: tune([dict(t) for t in trials], lambda t: self.tried(name, t, least)),
        )
        print(f"M = {least}, {name}: {best}, trials {[round(100 * s, 1) for s in scores]}", file=sys.stderr)
        return best

    def tried(self, name: str, trial: Mapping[str, Any], least: int) -> float:
        """Accuracy after a step, mean over the draws of devices that are for trials."""
        return float(np.mean([self.once(name, trial, least, TUNING + k)["adapted"] for k in range(DRAWS)]))

    def rows(self, least: int, seeds: int, only: Sequence[str]) -> list[list[str]]:
        found, own = [], dict[str, Any]()
        for name, trials in TRIALS.items():
            own[name] = self.chosen(name, trials, least)
        base = own["AugFL without model"]
        for name, trials in MODELS.items():
            own[name] = self.chosen(name, [{**base, **t} for t in trials], least)
        own["distillation only"] = own["AugFL with model, kd"]
        crd = own["AugFL with model, crd"]
        own["AugFL with model, crd, heads of one batch"] = {**crd, "options": {"tau": 0.5}}
        reached: dict[str, Any] = {}
        for name in (n for n in own if not only or n in only):
            reached[name] = [
                self.kept.get(f"M = {least}, {name}: {s}", lambda n=name, s=s: self.once(n, own[n], least, s))
                for s in range(seeds)
            ]
            found.append(row(name, own[name], reached[name], reached.get("AugFL without model")))
            print(markdown(HEAD, found[-1:]), flush=True)
        return found


HEAD = ("", "chosen", *KINDS.values(), "test images, gain of the model", "gradients", "MB", f"to {TARGET:.0%}")


def row(name: str, chosen: Mapping[str, Any], seeds: Sequence[Any], without: Sequence[Any] | None) -> list[str]:
    words = ", ".join(f"{k} {v:.3g}" for k, v in chosen.items() if isinstance(v, float))
    gains = [a["others"] - b["others"] for a, b in zip(seeds, without or (), strict=False)]
    cells = [mean_sd([one[kind] for one in seeds], factor=100) for kind in KINDS]
    gain = mean_sd(gains, factor=100) if "with model" in name and gains else ""
    cost = mean_sd([cost_to([Point(**p) for p in one["curve"]], TARGET) for one in seeds], 0)
    return [name, words, *cells, gain, f"{seeds[0]['gradients']:.0f}", f"{seeds[0]['megabytes']:.0f}", cost]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", help="mnist:PATH or cifar10:PATH")
    p.add_argument("--samples", type=int, nargs="+", default=[5, 20], help="M")
    p.add_argument("--rounds", type=int)
    p.add_argument("--only", nargs="+", default=[], metavar="METHOD", help="the names in the table, in place of all")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--json", type=Path, help="results are kept there, and not computed again")
    options = p.parse_args()
    torch.set_num_threads(1)
    check_budgets(TRIALS)
    check_budgets(MODELS)
    setup = SETUPS[options.data.partition(":")[0]]
    setup = replace(setup, rounds=options.rounds or setup.rounds)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.data, setup, Results(options.json), Path(folder))
        tables = {m: bench.rows(m, options.seeds, options.only) for m in options.samples}
    for m, rows in tables.items():
        print(f"\nM = {m}, {setup.rounds} rounds, {options.seeds} seeds\n\n{markdown(HEAD, rows)}")


if __name__ == "__main__":
    main()
