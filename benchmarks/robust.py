"""Bad devices against the rules of methods/robust on MNIST: accuracy with and without each rule, and its honest cost.

    python benchmarks/robust.py $AUSCULT_DATA/mnist.npz [--method fedavg] [--seeds 1] [--rounds 15]
        [--deal dirichlet=0.5] [--shares 0.02 0.1 0.2 0.3] [--attacks garbage ...] [--rules none clip ...]
        [--set KEY=VALUE] [--robust KEY=VALUE] [--choose]

5 hospitals of 10 devices, 100 images of 14 x 14 pixels on each in the mean, each label dealt out by shares from
Dirichlet(0.5), a network of two layers (196, 32, 10), two epochs of mini-batch SGD per round. The bad ones are drawn,
equally many at each hospital as far as they divide. "bare" is the method without the bounds that every service has
(methods/shared/aggregation/guard.py); "none" has these bounds and plain sums; the rules have them too. Accuracies (%)
of the global model on 3000 test images; of a backdoor also, in brackets, the share of marked test images that are taken
for its target. The network is the product's, in memory. `--choose` judges on 2000 validation images instead: what is
chosen (a rule's settings, eta_l) is chosen there. The whole table takes about 4 minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks.attacks import ALONE, ATTACKS, DOORS, TARGET, attacked, mark, poison_samples
from edge_sdk.algebra.vectors import Layout, Vector, layout_of
from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.contract.method import Method
from edge_sdk.contract.round import Policy
from edge_sdk.methods import METHODS
from edge_sdk.methods.robust.method import robust
from edge_sdk.methods.robust.settings import NONE, RULES, Robust
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.nodes.configuration.settings import assigned, from_mapping
from edge_sdk.replay import datasets
from edge_sdk.replay.datasets.partition import deal_rows

HOSPITALS, DEVICES, EACH, VALIDATION, TESTS = 5, 10, 100, 2000, 3000
BARE = "bare"
HIDDEN, CLASSES = 32, 10
TRAINING = {"eta_l": 0.2, "batch": 20, "local_epochs": 2, "decay": 0.99, "weight_decay": 1e-4}


# Data and model -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Images:
    """Images (n, side, side) with values from 0 to 1, and their classes."""

    x: Any
    y: Any

    def some(self, rows: Any) -> Images:
        return Images(self.x[rows], self.y[rows])


@dataclass(frozen=True)
class Fleet:
    """Who holds what: device -> its images, and images that all are judged by."""

    parts: Mapping[str, Images]
    judged: Images

    @property
    def tree(self) -> dict[str, tuple[str, ...]]:
        return {h: tuple(d for d in self.parts if d.startswith(f"{h}-")) for h in hospitals(self)}


def hospitals(fleet: Fleet) -> tuple[str, ...]:
    return tuple(dict.fromkeys(d.partition("-")[0] for d in fleet.parts))


def read_images(path: Path) -> Images:
    """MNIST with four pixels made one."""
    table = datasets.load(f"mnist:{path}")
    n, side = len(table.y), table.x.shape[1] // 2
    return Images(table.x.reshape(n, side, 2, side, 2).mean((2, 4)), table.y)


def deal(images: Images, rule: str, seed: int, validation: bool, each: int = EACH) -> Fleet:
    """The images of every device, drawn with the seed; test and validation images are nobody's."""
    order = np.random.default_rng([seed, 1]).permutation(len(images.y))
    judged = order[:VALIDATION] if validation else order[VALIDATION : VALIDATION + TESTS]
    rest = images.some(order[VALIDATION + TESTS :][: HOSPITALS * DEVICES * each])
    rows = deal_rows(rest.y, rule, HOSPITALS, DEVICES, 0.0, seed)
    parts = {f"h{h}-{d}": rest.some(own) for h, devices in enumerate(rows) for d, own in enumerate(devices)}
    return Fleet(parts, images.some(judged))


def make_layout(side: int) -> Layout:
    sizes = ("0.weight", (HIDDEN, side * side)), ("0.bias", (HIDDEN,)), ("1.weight", (CLASSES, HIDDEN))
    return layout_of(
        *[(n, shape, "bias" if n.endswith("bias") else "linear") for n, shape in (*sizes, ("1.bias", (CLASSES,)))]
    )


def first_model(layout: Layout, seed: int) -> Vector:
    random, theta = np.random.default_rng([seed, 2]), np.zeros(layout.size, np.float32)
    for slot in layout.slots:
        if slot.kind == "linear":
            layout.view(theta, slot)[...] = random.normal(0, np.sqrt(2 / slot.shape[1]), slot.shape)
    return theta


def forward(layout: Layout, theta: Vector, x: Any) -> tuple[Any, Any]:
    """The hidden layer and the logits of images (n, side, side)."""
    w1, b1, w2, b2 = (layout.view(theta, slot) for slot in layout.slots)
    hidden = np.maximum(x.reshape(len(x), -1) @ w1.T + b1, 0)
    return hidden, hidden @ w2.T + b2


@dataclass(frozen=True)
class Loss:
    """Mean cross entropy of some images, and its gradient, as `NodeEnv.grad_fn` has them."""

    layout: Layout
    images: Images

    def __call__(self, theta: Vector, rows: Any = None) -> tuple[float, Vector]:
        images = self.images if rows is None else self.images.some(rows)
        hidden, logits = forward(self.layout, theta, images.x)
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        n, loss = np.arange(len(p)), -float(np.log(p[np.arange(len(p)), images.y] + 1e-12).mean())
        p[n, images.y] -= 1
        p /= len(p)
        back = (p @ self.layout.view(theta, self.layout.slots[2])) * (hidden > 0)
        x = images.x.reshape(len(n), -1)
        parts = (back.T @ x, back.sum(0), p.T @ hidden, p.sum(0))
        return loss, np.concatenate([part.ravel() for part in parts]).astype(theta.dtype)


# Runs -----------------------------------------------------------------------------------------------------------
def bad_devices(fleet: Fleet, share: float, seed: int) -> frozenset[str]:
    """So many devices, drawn, equally many at each hospital as far as they divide."""
    random, count = np.random.default_rng([seed, 3]), round(share * len(fleet.parts))
    queues = [list(random.permutation(devices)) for devices in fleet.tree.values()]
    return frozenset(str(queues[k % len(queues)][k // len(queues)]) for k in range(count))


def with_rule(method: Method, rule: str, settings: Mapping[str, Any]) -> Method:
    """The method as a service has it with this rule over devices; "bare": without any bound."""
    if rule == BARE:
        return method
    asked = Robust(**{**settings, "rule": rule})
    return evaluated(method if asked.rule == asked.hospitals == NONE else robust(method, asked))


def train(fleet: Fleet, method: Method, attack: str, bad: frozenset[str], options: Options) -> Vector:
    """The global model at the end of a run."""
    layout, settings = make_layout(fleet.judged.x.shape[1]), settings_of(options)
    common: dict[str, Any] = {"seed": options.seed, "rounds": options.rounds, "layout": layout}
    common |= {"theta0": first_model(layout, options.seed), "settings": settings}
    envs = {ROOT: method.env(**common, sizes={h: len(d) for h, d in fleet.tree.items()})}
    envs |= {h: method.env(**common, sizes=dict.fromkeys(d, 1)) for h, d in fleet.tree.items()}
    for k, (name, images) in enumerate(fleet.parts.items()):
        x, y = poison_samples(attack, images.x, images.y, options.seed + k) if name in bad else (images.x, images.y)
        envs[name] = method.env(**common, grad_fn=Loss(layout, Images(x, y)), samples=len(y))
    wrapped = attacked(with_rule(method, options.rule, options.robust), attack, bad)
    net = Loopback(wrapped, fleet.tree, envs, {"aggregator": Policy(quorum=1)}, 0, NetworkFaults(repeat=0.0))
    with np.errstate(all="ignore"):
        net.run()
        shown = wrapped.show(envs[ROOT], net.nodes[ROOT].record.state)
        return np.asarray(wrapped.models(envs[ROOT], None, shown)["global"])


@dataclass(frozen=True)
class Options:
    """What decides a run, beside the data and the attack."""

    method: str = "fedavg"
    rule: str = NONE
    seed: int = 0
    rounds: int = 15
    settings: Mapping[str, Any] = field(default_factory=lambda: TRAINING)
    robust: Mapping[str, Any] = field(default_factory=dict)


def settings_of(options: Options) -> Any:
    kind = METHODS[options.method].settings
    known = {k: v for k, v in options.settings.items() if k in kind.__dataclass_fields__}
    return from_mapping(kind, known, f"settings of {options.method}")


def judge(fleet: Fleet, theta: Vector) -> tuple[float, float]:
    """Accuracy (%) on the images that all are judged by, and on how many of them (%) the mark works."""
    layout, images = make_layout(fleet.judged.x.shape[1]), fleet.judged
    others = images.some(images.y != TARGET)
    with np.errstate(all="ignore"):
        found = forward(layout, theta, images.x)[1].argmax(1)
        fooled = forward(layout, theta, mark(others.x))[1].argmax(1) == TARGET
    return 100 * float((found == images.y).mean()), 100 * float(fooled.mean())


def run_once(fleet: Fleet, attack: str, share: float, options: Options) -> tuple[float, float]:
    bad = bad_devices(fleet, share, options.seed)
    return judge(fleet, train(fleet, METHODS[options.method], attack, bad, options))


def rows_of(options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """The attacks with their shares; first nobody."""
    yield "nobody", 0.0
    for attack in options.attacks:
        for share in options.shares:
            yield attack, share


# Table ----------------------------------------------------------------------------------------------------------
def make_table(found: Mapping[tuple[str, float], Mapping[str, tuple[float, float]]], rules: Sequence[str]) -> str:
    head = f"| attack | bad devices | {' | '.join(rules)} |\n|{'---|' * (2 + len(rules))}"
    lines = []
    for (attack, share), cells in found.items():
        texts = [f"{a:.1f} ({b:.0f})" if attack in DOORS else f"{a:.1f}" for a, b in cells.values()]
        lines.append(f"| {attack} | {100 * share:.0f} % | {' | '.join(texts)} |")
    return "\n".join([head, *lines])


def measure(images: Images, options: argparse.Namespace) -> dict[tuple[str, float], dict[str, tuple[float, float]]]:
    """(attack, share) -> rule -> means over seeds of accuracy and of the backdoor's success."""
    base = Options(
        options.method,
        rounds=options.rounds,
        settings={**TRAINING, **assigned(options.set)},
        robust=assigned(options.robust),
    )
    fleets = [deal(images, options.deal, s, options.choose, options.samples) for s in range(options.seeds)]
    found: dict[tuple[str, float], dict[str, tuple[float, float]]] = {}
    for attack, share in rows_of(options):
        cells = found.setdefault((attack, share), {})
        for rule in options.rules:
            runs = [
                run_once(fleet, attack, share, replace(base, rule=rule, seed=seed)) for seed, fleet in enumerate(fleets)
            ]
            cells[rule] = float(np.mean([a for a, _ in runs])), float(np.mean([b for _, b in runs]))
        print(f"{attack:12} {share:5.2f}", {r: f"{a:.1f}" for r, (a, _) in cells.items()}, file=sys.stderr, flush=True)
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="mnist.npz")
    parser.add_argument("--method", default="fedavg")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--samples", type=int, default=EACH, help="of each device, in the mean")
    parser.add_argument("--deal", default="dirichlet=0.5", help="as `auscult replay --deal` has it")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.02, 0.1, 0.2, 0.3])
    parser.add_argument("--attacks", nargs="*", default=list(ALONE), choices=ATTACKS)
    parser.add_argument("--rules", nargs="+", default=[BARE, *RULES], choices=[BARE, *RULES])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the method")
    parser.add_argument("--robust", action="append", default=[], metavar="KEY=VALUE", help="a setting of the rules")
    parser.add_argument("--choose", action="store_true", help="judge on validation images")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options, began = parse(arguments), time.perf_counter()
    found = measure(read_images(options.data), options)
    if options.json:
        print(json.dumps({f"{attack} {share}": cells for (attack, share), cells in found.items()}))
    else:
        print(make_table(found, options.rules))
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
