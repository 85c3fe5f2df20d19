"""What honest devices predict with after a poisoned run: methods, rules and attacks, with and without the last line.

    python benchmarks/poisoned.py $AUSCULT_DATA/mnist.npz [--methods fedslr ...] [--seeds 2] [--rounds 15]
        [--shares 0.05 0.2] [--attacks little ...] [--rules none trimmed-mean ...] [--whole]

Devices, network and attacks are those of benchmarks/robust.py and benchmarks/attacks.py. Each device has 200
images in the mean, of which it trains on 100, judges models on 40 and is measured on 60: accuracies (%) are means over
the honest devices, each on its own test images. A cell has the model of the poisoned run; behind the arrow what the
device predicts with where it had the model of an honest run before, and edge_sdk/nodes/models/last_line.py decides; in
brackets, of a backdoor, the share of marked images for which that one says the backdoor's class. "alone" is what a
device reaches by itself in as many passes. With `--whole` whole hospitals are bad, and rules are over hospitals.
A run takes some three seconds of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import robust
from benchmarks.attacks import DOORS, TARGET, TOGETHER, mark
from benchmarks.robust import Fleet, Images, Loss, Options
from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods import METHODS
from edge_sdk.methods.robust.settings import NONE, RULES
from edge_sdk.nodes.models.last_line import are_worse

EACH, TRAIN, JUDGE = 200, 0.5, 0.7
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "fedslr": {"eta_g": 10.0, "lam": 0.0, "personal_epochs": 0},
    "scaffold": {"local_steps": 10},
}
"""As `replay/recommended.py` has FedSLR; SCAFFOLD with as many steps as two passes have."""
METHODS_SHOWN = ("fedavg", "fedslr", "feddyn", "scaffold")
ATTACKS = ("sign flip", *TOGETHER, "backdoor")


@dataclass(frozen=True)
class Holder:
    """A device's images: those it trains on, judges models on, and is measured on."""

    train: Images
    judge: Images
    test: Images


def cut(images: Images, seed: int) -> Holder:
    order, n = np.random.default_rng([seed, 5]).permutation(len(images.y)), len(images.y)
    first, second = max(1, int(TRAIN * n)), max(2, int(JUDGE * n))
    return Holder(images.some(order[:first]), images.some(order[first:second]), images.some(order[second:]))


@dataclass(frozen=True)
class Cell:
    """Accuracy (%) with a run's model, and with what the last line leaves; how often (%) the mark works on that one."""

    run: float
    kept: float
    fooled: float


class Bench:
    """A fleet of one seed, and what its runs without attackers come to."""

    def __init__(self, images: Images, seed: int, rounds: int, whole: bool = False):
        fleet = robust.deal(images, "dirichlet=0.5", seed, validation=False, each=EACH)
        self.holders = {d: cut(part, seed + k) for k, (d, part) in enumerate(fleet.parts.items())}
        self.fleet = Fleet({d: h.train for d, h in self.holders.items()}, fleet.judged)
        self.layout = robust.make_layout(fleet.judged.x.shape[1])
        self.seed, self.rounds, self.whole = seed, rounds, whole
        self.before: dict[str, Vector] = {}

    def options(self, method: str, rule: str) -> Options:
        settings = {**robust.TRAINING, **SETTINGS.get(method, {})}
        rules = {"rule": NONE, "robust": {"hospitals": rule}} if self.whole else {"rule": rule}
        return Options(method, seed=self.seed, rounds=self.rounds, settings=settings, **rules)  # type: ignore[arg-type]

    def bad(self, share: float) -> frozenset[str]:
        """So many devices, drawn; or so many hospitals with all that they have."""
        if not self.whole:
            return robust.bad_devices(self.fleet, share, self.seed)
        hospitals = list(self.fleet.tree.values())
        return frozenset(d for devices in hospitals[: round(share * len(hospitals))] for d in devices)

    def train(self, options: Options, attack: str, bad: frozenset[str]) -> Vector:
        return robust.train(self.fleet, METHODS[options.method], attack, bad, options)

    def right(self, theta: Vector, images: Images) -> Any:
        """Which images a model gets right (n,)."""
        return self.classes(theta, images.x) == images.y

    def classes(self, theta: Vector, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return robust.forward(self.layout, theta, x)[1].argmax(1)

    def run(self, method: str, rule: str, attack: str, share: float) -> Cell:
        """A run with so many bad devices, and what honest devices have of it."""
        if method not in self.before:
            self.before[method] = self.train(self.options(method, NONE), "nobody", frozenset())
        bad = self.bad(share)
        theta = self.train(self.options(method, rule), attack, bad)
        rows = [self.judge(theta, self.before[method], h) for d, h in self.holders.items() if d not in bad]
        return Cell(*(100 * float(np.nanmean(column)) for column in zip(*rows, strict=True)))

    def judge(self, theta: Vector, before: Vector, holder: Holder) -> tuple[float, float, float]:
        declined = are_worse(~self.right(theta, holder.judge), ~self.right(before, holder.judge))
        kept = before if declined else theta
        others = holder.test.some(holder.test.y != TARGET)
        fooled = float((self.classes(kept, mark(others.x)) == TARGET).mean()) if len(others.y) else np.nan
        right = (float(self.right(model, holder.test).mean()) for model in (theta, kept))
        return (*right, fooled)  # type: ignore[return-value]

    def alone(self) -> float:
        """Mean accuracy (%) of devices that train by themselves."""
        found = [self.right(self.train_alone(h.train, k), h.test).mean() for k, h in enumerate(self.holders.values())]
        return 100 * float(np.mean(found))

    def train_alone(self, images: Images, number: int) -> Vector:
        loss, theta = Loss(self.layout, images), robust.first_model(self.layout, self.seed)
        random, s = np.random.default_rng([self.seed, 9, number]), robust.TRAINING
        for t in range(self.rounds * int(s["local_epochs"])):
            order = random.permutation(len(images.y))
            eta = s["eta_l"] * s["decay"] ** (t // int(s["local_epochs"]))
            for start in range(0, len(order), int(s["batch"])):
                theta = theta - np.float32(eta) * loss(theta, order[start : start + int(s["batch"])])[1]
        return theta


# Table ----------------------------------------------------------------------------------------------------------
def rows_of(options: argparse.Namespace) -> Iterator[tuple[str, str, float]]:
    for method in options.methods:
        yield method, "nobody", 0.0
        yield from ((method, attack, share) for attack in options.attacks for share in options.shares)


def mean_of(cells: Sequence[Cell]) -> Cell:
    return Cell(*(float(np.mean([getattr(cell, name) for cell in cells])) for name in ("run", "kept", "fooled")))


def written(cell: Cell, attack: str) -> str:
    door = f" ({cell.fooled:.0f})" if attack in DOORS else ""
    return f"{cell.run:.1f} → {cell.kept:.1f}{door}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="mnist.npz")
    parser.add_argument("--methods", nargs="+", default=list(METHODS_SHOWN))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.05, 0.2])
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS))
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--whole", action="store_true", help="whole hospitals are bad; rules over hospitals")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options, began = parse(arguments), time.perf_counter()
    images = robust.read_images(options.data)
    benches = [Bench(images, seed, options.rounds, options.whole) for seed in range(options.seeds)]
    print(f"alone: {np.mean([bench.alone() for bench in benches]):.1f}\n", flush=True)
    print(f"| method | attack | bad devices | {' | '.join(options.rules)} |\n|{'---|' * (3 + len(options.rules))}")
    for method, attack, share in rows_of(options):
        cells = [mean_of([bench.run(method, rule, attack, share) for bench in benches]) for rule in options.rules]
        texts = " | ".join(written(cell, attack) for cell in cells)
        print(f"| {method} | {attack} | {100 * share:.0f} % | {texts} |", flush=True)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
