"""FedBCD and FedBCD-I beside FedAvg and FedProx on MNIST, all with the same number of local epochs.

    python benchmarks/fedbcd.py $AUSCULT_DATA/mnist.npz [--seeds 3] [--epochs 24] [--diversity 3 6] [--samples 150]
        [--only SCHEME ...] [--json FILE]

The paper's arrangement: 10 hospitals of 10 devices, each device holds so many labels only ("diversity"), 3 devices of
each hospital take part in a round, 1 to 5 epochs on batches of 32, a network of three layers (784, 64, 10). Smaller:
the samples of a device, of which a fifth is for validation, and 1000 test images.

Equal epochs: a run ends when its devices have computed so many epochs of gradients on average, counted, whoever asked
for them: in FedBCD-I also those that a device makes by itself. FedAvg and FedProx spend the last FINE_TUNED of them on
fine-tuning each device's own model from the final w, after 1 or 3 epochs as all devices' validation samples say. Alone:
all of them without the others. Every method has four trials, judged on validation samples of its personal models.

Personalised accuracy: of each device's own model on the test images of its own labels, mean over the 100 devices.
Global: of z, or the mean of all z_n, on all test images. Seconds are simulated by the paper's model of delays: devices
ask for work after Exp(2), each epoch takes them Exp(1). "first-3": a round ends with the first three hospitals. MB are
encoded messages of all devices, both ways; "to 85 %": until devices' own models, or w, reach that on validation. The
table of round lengths, simulated and by the paper's theory, is printed with `--clock`.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import latency
from benchmarks.fedbcd_data import HOSPITALS, NAMES, TREE, Data, dealt
from benchmarks.latency import Delays, Hospitals
from benchmarks.protocol import (
    TUNING,
    Gradients,
    Point,
    Quiet,
    Results,
    by_device,
    check_budgets,
    cost_to,
    grid,
    markdown,
    mean_sd,
    paired,
    tune,
)
from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import ROOT, NetworkFaults
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.training.local import batches, descend
from edge_sdk.model.model import Model
from edge_sdk.replay.planning.bundles import compile_network
from edge_sdk.wire.codec.codec import Codec

TAKING_PART = 3  # devices of each hospital, in a round
FINE_TUNED, TRIED = 3, (1, 3)  # epochs of fine-tuning: most, and those that are tried
OFFLINE = 10.0  # seconds after which a device that nobody has called trains by itself, in FedBCD-I
FOREVER = 10_000


@dataclass(frozen=True)
class Scheme:
    """A method with its fixed settings, and its trials.

    Attributes:
        method, settings: as a run has them.
        trials: settings of which the best is taken.
        fine_tunes: the last epochs are each device's own.
    """

    method: str
    settings: Mapping[str, Any]
    trials: Sequence[Mapping[str, Any]]
    fine_tunes: bool = False

    @property
    def asynchronous(self) -> Scheme:
        return replace(self, settings={**self.settings, "cloud": "first-b", "ready": 3})


FEDBCD = {"participation": float(TAKING_PART), "zeta": 0.9}
SHARED = {"participation": float(HOSPITALS * TAKING_PART), "decay": 1.0, "weight_decay": 0.0, "batch": 32}
SHARED |= {"local_epochs": 5, "draw_epochs": True}
ALONE = "alone"
ETAS = (0.1, 0.2, 0.4, 0.8)
STEPS = (0.01, 0.02, 0.04, 0.08)
TARGET = 0.85
SCHEMES = {
    "FedBCD": Scheme("fedbcd", FEDBCD, grid(eta_x=STEPS)),
    "FedBCD-I": Scheme("fedbcd-i", {**FEDBCD, "offline_every": OFFLINE, "offline_share": 0.8}, grid(eta_x=STEPS)),
    "FedAvg": Scheme("fedavg", SHARED, grid(eta_l=ETAS), True),
    "FedProx": Scheme("fedavg", SHARED, grid(eta_l=(0.2, 0.4), proximal=(0.01, 0.1)), True),
    ALONE: Scheme("fedavg", SHARED, grid(eta_l=ETAS)),
}


# A run ----------------------------------------------------------------------------------------------------------
class Enough(Exception):
    """The epochs are spent."""


@dataclass
class Reached:
    """Models at the end of a run, and what they took. `shared`: z; `own`: device -> its model, z where it has none.

    `curve`: after each round, MB of all devices in both directions, and the accuracy of `own` on validation samples."""

    shared: Any
    own: dict[str, Any]
    round: int
    seconds: float
    epochs: float
    curve: list[Point] = field(default_factory=list)


def played(
    model: Model, data: Data, scheme: Scheme, chosen: Mapping[str, Any], seed: int, epochs: float, watch: bool = False
) -> Reached:
    """Trains until the devices have made so many epochs on average; `watch`: with the curve."""
    method, counter = METHODS[scheme.method], Gradients()
    settings = method.settings(**{**scheme.settings, **chosen})
    common: dict[str, Any] = {"seed": seed, "rounds": FOREVER, "layout": model.layout, "theta0": model.theta0}
    common["settings"] = settings
    sizes = {h: len(devices) for h, devices in TREE.items()}
    envs = {ROOT: method.env(**common, sizes=sizes)}
    envs |= {h: method.env(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in TREE.items()}
    for d, (x, y) in data.train.items():
        envs[d] = counter.through(method.env(**common, grad_fn=model.grad_fn(x, y), samples=len(x)))
    delays = Delays(TREE, Hospitals(accepted=TAKING_PART), seed)
    network = Quiet(method, TREE, envs, method.policies(settings, sizes, inf, inf, 0), seed,
                    NetworkFaults(repeat=0.0, delay=(0.0, 0.0), slow=delays))  # fmt: skip
    per_epoch = sum(-(-len(y) // 32) for _, y in data.train.values())
    network.codec = Codec(method.messages, layout=model.layout)
    apart = getattr(settings, "cloud", "sync") != "sync"
    last, curve = [], list[Point]()

    def seen(state: Any, now: float) -> None:
        last[:] = [state, now]
        if watch and state.round > len(curve):
            _, own = models_of(model, network, state, apart)
            curve.append(Point(state.round, network.bytes / 1e6, on_validation(model, data, own)))
        if counter.count >= epochs * per_epoch:
            raise Enough

    network.seen = seen
    with contextlib.suppress(Enough):
        network.run()
    state, now = last
    return Reached(*models_of(model, network, state, apart), state.round, now, counter.count / per_epoch, curve)


def models_of(model: Model, network: Any, state: Any, apart: bool) -> tuple[Any, dict[str, Any]]:
    """z, and each device's own model. `apart`: hospitals do not wait for each other, so z is the mean of theirs."""
    nodes = {name: network.nodes[name].record.state for name in (*TREE, *NAMES)}
    z = lowrank.unpack(model.layout, state.model)
    if hasattr(nodes["h0"], "inner") and apart:
        z = np.mean([lowrank.unpack(model.layout, nodes[h].inner.model) for h in TREE], 0, dtype=z.dtype)
    return z, {d: z if getattr(nodes[d], "x", None) is None else nodes[d].x for d in NAMES}


def walked(model: Model, data: Data, start: Any, eta: float, epochs: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """Each device's own model after so many epochs of mini-batch SGD from `start`, ascending."""
    found: list[dict[str, Any]] = [{} for _ in epochs]
    for i, (d, (x, y)) in enumerate(data.train.items()):
        theta, done, random = start.copy(), 0, np.random.default_rng([seed, 9, i])
        for k, wanted in enumerate(epochs):
            descend(model.grad_fn(x, y), theta, batches(random, len(y), 32, wanted - done), eta)
            done, found[k][d] = wanted, theta.copy()
    return found


def personal(
    model: Model, data: Data, name: str, chosen: Mapping[str, Any], seed: int, epochs: int, watch: bool = False
) -> Any:
    """Models after a run and, where the method fine-tunes, the number of epochs that validation chose."""
    scheme = SCHEMES[name.removesuffix(", first-3")]
    if name == ALONE:
        (own,) = walked(model, data, model.theta0, chosen["eta_l"], (epochs,), seed)
        return Reached(None, own, 0, 0.0, epochs), 0
    scheme = scheme.asynchronous if name.endswith("first-3") else scheme
    epochs -= FINE_TUNED if scheme.fine_tunes else 0
    reached = played(model, data, scheme, chosen, seed, epochs, watch)
    if not scheme.fine_tunes:
        return reached, 0
    tried = walked(model, data, reached.shared, chosen["eta_l"], TRIED, seed)
    best = max(range(len(TRIED)), key=lambda k: on_validation(model, data, tried[k]))
    return replace(reached, own=tried[best], epochs=reached.epochs + TRIED[best]), TRIED[best]


def on_validation(model: Model, data: Data, own: Mapping[str, Any]) -> float:
    shares = [model.predict(own[d], x).argmax(1) == y for d, (x, y) in data.validation.items()]
    return float(np.mean([s.mean() for s in shares]))


def on_test(model: Model, data: Data, own: Mapping[str, Any]) -> dict[str, float]:
    """Device -> share of the test images of its own labels."""
    found = {}
    for d in NAMES:
        mine = np.isin(data.y, data.labels[d])
        found[d] = float((model.predict(own[d], data.x[mine]).argmax(1) == data.y[mine]).mean())
    return found


# The table ------------------------------------------------------------------------------------------------------
class Bench:
    """All runs of one diversity."""

    def __init__(self, options: argparse.Namespace, diversity: int, kept: Results) -> None:
        self.options, self.diversity, self.kept = options, diversity, kept
        self.model = Model(compile_network("mlp", ["--input", "784", "--classes", "10"], 0, lambda text: None))

    def data(self, seed: int) -> Data:
        return dealt(self.options.data, self.diversity, self.options.samples, seed)

    def chosen(self, name: str) -> Any:
        data = self.data(TUNING)

        def judge(trial: Mapping[str, Any]) -> float:
            reached, _ = personal(self.model, data, name, trial, TUNING, self.options.epochs)
            return on_validation(self.model, data, reached.own)

        best, scores = self.kept.get(
            f"{self.diversity} labels, {name}: trials", lambda: tune(SCHEMES[name].trials, judge)
        )
        print(f"{name}: {best}, trials {[round(100 * s, 1) for s in scores]}", file=sys.stderr)
        return best

    def measured(self, name: str, chosen: Mapping[str, Any], seed: int) -> Any:
        data = self.data(seed)
        reached, tuned = personal(self.model, data, name, chosen, seed, self.options.epochs, watch=True)
        guessed = None if reached.shared is None else self.model.predict(reached.shared, data.x).argmax(1)
        found = {"own": on_test(self.model, data, reached.own), "fine_tuned": tuned, "round": reached.round}
        found["global"] = None if guessed is None else float((guessed == data.y).mean())
        if guessed is not None and SCHEMES[name.removesuffix(", first-3")].fine_tunes:
            found["untuned"] = float(
                np.mean(list(on_test(self.model, data, dict.fromkeys(NAMES, reached.shared)).values()))
            )
        found["curve"] = [vars(point) for point in reached.curve]
        return found | {"seconds": reached.seconds, "epochs": reached.epochs}

    def rows(self) -> list[list[str]]:
        found, alone = [], self.alone()
        for name in (n for n in SCHEMES if n in self.options.only):
            chosen = self.chosen(name)
            for kind in (name, f"{name}, first-3") if name.startswith("FedBCD") else (name,):
                seeds = [self.kept.get(f"{self.diversity} labels, {kind}: {seed}",
                                       lambda kind=kind, chosen=chosen, seed=seed: self.measured(kind, chosen, seed))
                         for seed in range(self.options.seeds)]  # fmt: skip
                found.append(row(kind, chosen, seeds, alone))
                print(markdown(HEAD, found[-1:]), flush=True)
        return found

    def alone(self) -> dict[str, float]:
        """What each device reaches by itself."""
        chosen = self.chosen(ALONE)
        seeds = [self.kept.get(f"{self.diversity} labels, {ALONE}: {seed}",
                               lambda seed=seed: self.measured(ALONE, chosen, seed))
                 for seed in range(self.options.seeds)]  # fmt: skip
        return by_device([s["own"] for s in seeds])


HEAD = ("", "chosen", "personalised", "against alone", "global", "w on own labels", "epochs", "rounds")
HEAD += ("simulated s", "MB", f"to {TARGET:.0%}")


def row(name: str, chosen: Mapping[str, Any], seeds: Sequence[Any], alone: Mapping[str, float]) -> list[str]:
    words = ", ".join(f"{key} {value:g}" for key, value in chosen.items())
    words += f", fine-tuned {'/'.join(str(s['fine_tuned']) for s in seeds)}" if seeds[0]["fine_tuned"] else ""
    own, of_all = by_device([s["own"] for s in seeds]), [[Point(**p) for p in s["curve"]] for s in seeds]
    return [
        name, words, mean_sd([float(np.mean(list(s["own"].values()))) for s in seeds], factor=100),
        "" if name == ALONE else paired(list(own.values()), [alone[d] for d in own]),
        mean_sd([s["global"] for s in seeds], factor=100), mean_sd([s.get("untuned") for s in seeds], factor=100),
        mean_sd([s["epochs"] for s in seeds]), mean_sd([s["round"] for s in seeds], 0),
        mean_sd([s["seconds"] for s in seeds], 0),
        mean_sd([c[-1].cost if c else 0.0 for c in of_all], 0),
        mean_sd([cost_to(c, TARGET) for c in of_all], 0) if name != ALONE else "-",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="mnist.npz")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=24, help="of each device, on average")
    parser.add_argument("--diversity", type=int, nargs="+", default=[3, 6])
    parser.add_argument("--samples", type=int, default=150, help="of each device, for training and validation")
    parser.add_argument("--only", nargs="+", default=list(SCHEMES), choices=list(SCHEMES), metavar="SCHEME")
    parser.add_argument("--clock", action="store_true", help="print round lengths, and nothing else")
    parser.add_argument("--json", type=Path, help="results are kept there, and not computed again")
    options = parser.parse_args()
    if options.clock:
        print(f"Mean round by clock, of {HOSPITALS} hospitals with {TAKING_PART} devices each, where B are waited for")
        print(latency.format_table(latency.make_table(Hospitals(accepted=TAKING_PART), (1, 2, 3, 5, 7, 10))))
        return
    check_budgets({name: scheme.trials for name, scheme in SCHEMES.items()})
    kept = Results(options.json)
    tables = {d: Bench(options, d, kept).rows() for d in options.diversity}
    for diversity, rows in tables.items():
        print(f"\n{diversity} labels\n\n{markdown(HEAD, rows)}")


if __name__ == "__main__":
    main()
