"""HSGD beside JFL, TDCD, C-HSGD and C-TDCD on EEG: what each sends until the AUC of validation samples is reached.

    python benchmarks/hsgd.py $AUSCULT_DATA/bonn_eeg.npz [--seeds 3] [--iterations 240] [--json FILE]

The paper's arrangement: 10 groups, 76 % of each group of two labels, one sample for each device, 15 devices of a group
in an iteration. Smaller: 100 devices in a group in place of 736. Training, validation and test samples are of
different recordings, which the paper does not separate; the test recordings are the same for all seeds and trials.

Every scheme has its own step size: three trials, judged by the paper's megabytes until the last target or, where it is
not reached, by the best AUC. S1 to S3 are the paper's strategies (S1: Q for P = 8, S2: P = Q, S3: the step size at
P = Q = 4), with constants from four rounds of pretraining, which count. S3 chooses its step size and has no trials.
The roles are those of the product, with the kernels of a compiled split model, over the network in memory. Bytes are
of one group: "paper" by the paper's own formula (19), "all hops" by the ledger of every message; compressed messages
count with their true size, indices included, in the latter. In TDCD the groups' raw data are brought together first.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import costs
from benchmarks.protocol import TUNING, Quiet, Results, check_budgets, grid, markdown, mean_sd, tune
from edge_sdk.algebra.metrics import classification
from edge_sdk.contract.loopback import ROOT, NetworkFaults
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from edge_sdk.methods.shared.aggregation.draw import round_half_up
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.kernels import split as parties
from edge_sdk.replay import datasets
from edge_sdk.replay.datasets import DATASETS
from edge_sdk.replay.datasets.partition import deal_mixed, draw_some
from edge_sdk.replay.datasets.table import Vertical, hold_out_of

BUNDLE = Path(__file__).parents[1] / "models" / "shipped" / "split-esr.bundle"
TARGETS = (0.8, 0.88)
GROUP, ALPHA = 100, 0.15
HELD_OUT = 0.2
CALM = NetworkFaults(repeat=0, delay=(0, 0))


@dataclass(frozen=True)
class Scheme:
    """HSGD or one of its baselines.

    Attributes:
        settings: where they differ from HSGD's.
        pooled: all patients are in one group, after their data have been moved there.
        trials: of the step size.
    """

    settings: Mapping[str, Any]
    pooled: bool = False
    trials: Sequence[Mapping[str, Any]] = field(default_factory=lambda: grid(eta=ETAS))


ETAS = (0.1, 0.3, 1.0)
COMPRESSED = {"keep": compression.PAPER_KEEP}
MEASURED = {"pretraining": 4, "pretraining_eta": 0.1}
SCHEMES = {
    "HSGD": Scheme({}),
    "JFL": Scheme({"copies": "pair"}),
    "TDCD": Scheme({}, pooled=True),
    "C-HSGD": Scheme(COMPRESSED),
    "C-TDCD": Scheme(COMPRESSED, pooled=True),
    "HSGD, P = Q = 2": Scheme({"P": 2, "Q": 2}),
    "HSGD, P = Q = 4": Scheme({"P": 4, "Q": 4}),
    "HSGD, P = Q = 8": Scheme({"P": 8, "Q": 8}),
    "S1, P = 8": Scheme({"P": 8, "Q": 1, "strategies": ("relation",), **MEASURED}),
    "S2": Scheme({"strategies": ("size",), **MEASURED}),
    "S3, P = Q = 4": Scheme({"P": 4, "Q": 4, "strategies": ("rate",), **MEASURED}, trials=grid(eta=(0.3,))),
}


@dataclass(frozen=True)
class Data:
    """Training samples, the rows of each group, validation and test samples."""

    train: Vertical
    groups: Sequence[Any]
    validation: Vertical
    test: Vertical


@cache
def table_of(path: Path) -> datasets.Table:
    return datasets.load(f"esr:{path}")


def read(path: Path, seed: int) -> Data:
    table, known = table_of(path), DATASETS["esr"]
    rest, test = datasets.hold_out(table, HELD_OUT, 0)
    train, validation = hold_out_of(table, rest, HELD_OUT, seed)
    whole = datasets.divide(datasets.standardise(table, train, known.together))
    train = train[draw_some(np.arange(len(train)), GROUP * known.groups, seed)]
    groups = deal_mixed(table.y[train], known.groups, known.majority, seed)
    return Data(whole.rows(train), groups, whole.rows(validation), whole.rows(test))


# The run --------------------------------------------------------------------------------------------------------
def tree_of(data: Data, pooled: bool) -> dict[str, list[tuple[str, int]]]:
    """Hospital -> its devices, each with the row of its one sample."""
    groups = {f"h{m}": [(f"d{row:05}", int(row)) for row in rows] for m, rows in enumerate(data.groups)}
    return {"h0": [device for devices in groups.values() for device in devices]} if pooled else groups


def envs_of(model: SplitModel, data: Data, tree: Mapping[str, Any], settings: Settings, seed: int, rounds: int) -> Any:
    common: dict[str, Any] = {"seed": seed, "rounds": rounds, "theta0": model.theta0, "layout": model.layout}
    common |= {"settings": settings, "split": parties.split_of(model)}
    envs = {ROOT: HSGD.env(**common, sizes={h: len(devices) for h, devices in tree.items()})}
    for h, devices in tree.items():
        rows = np.array([row for _, row in devices])
        own = {name: np.array([i]) for i, (name, _) in enumerate(devices)}
        kernels = parties.hospital_kernels(model, data.train.x1[rows], data.train.y[rows], own)
        envs[h] = HSGD.env(**common, sizes=dict.fromkeys(own, 1), **kernels)
        for name, row in devices:
            mine = parties.device_kernels(model, data.train.x2[row : row + 1], data.train.y[row : row + 1])
            envs[name] = HSGD.env(**common, **mine)
    return envs


class Enough(Exception):
    """The last target is reached, or the iterations are over."""


@dataclass
class Run:
    """(P, Q) of each global round, (iterations, AUC on validation samples) after it, and the last model."""

    rounds: list[tuple[int, int]]
    curve: list[tuple[int, float]]
    theta: Any


def auc(model: SplitModel, theta: Any, part: Vertical) -> float:
    logits = model.logits(theta, {"hospital": part.x1, "device": part.x2})
    return classification.macro_auc(part.y, classification.softmax(logits)) or 0.0


def played(model: SplitModel, data: Data, scheme: Scheme, chosen: Mapping[str, Any], seed: int, most: int) -> Run:
    given = {"alpha": ALPHA, "iterations": most, **scheme.settings, **chosen}
    tree = tree_of(data, scheme.pooled)
    envs = envs_of(model, data, tree, Settings(**given), seed, most + 100)
    network = Quiet(HSGD, {h: [name for name, _ in d] for h, d in tree.items()}, envs, seed=seed, faults=CALM)
    run, before = Run([], [], None), [0]
    plans: list[Any] = [None]  # of the round that is being played

    def seen(state: Any, now: float) -> None:
        plan, plans[0] = plans[0], state.plan
        if state.round == before[0]:
            return
        before[0] = state.round
        run.rounds.append((plan.P, plan.Q))
        run.theta = state.theta
        if state.t > 0:
            run.curve.append((state.t, auc(model, state.theta, data.validation)))
            if run.curve[-1][1] >= TARGETS[-1] or state.t >= most:
                raise Enough

    network.seen = seen
    with contextlib.suppress(Enough):
        network.run()
    return run


# What it has sent -----------------------------------------------------------------------------------------------
def megabytes(model: SplitModel, data: Data, scheme: Scheme, rounds: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Megabytes of one group over these global rounds, by the paper's formula and over all hops."""
    split, groups, patients = parties.split_of(model), len(data.groups), sum(len(rows) for rows in data.groups)
    members = [patients] if scheme.pooled else [len(rows) for rows in data.groups]
    sizes = [(n, taking_part(n)) for n in members]
    traffic = costs.Traffic(split, sizes, pairs=scheme.settings.get("copies") == "pair")
    raw = patients * (data.train.x1[0].size + data.train.x2[0].size) if scheme.pooled else 0
    squeezed = "keep" in scheme.settings
    paper = replace(traffic, ratio=compression.PAPER_KEEP) if squeezed else traffic
    true = replace(traffic, ratio=true_ratio(split)) if squeezed else traffic
    if scheme.pooled:
        counted = costs.pooled_floats(split, sizes[0][1], 1, sum(P for P, _ in rounds), raw, paper.ratio)
    else:
        counted = sum(costs.paper_floats(paper, P, Q, P) for P, Q in rounds)
    every = raw + costs.count_floats(costs.list_messages(true, rounds))
    return {"paper": counted * costs.BYTES / groups / 1e6, "all hops": every * costs.BYTES / groups / 1e6}


def taking_part(patients: int) -> int:
    return max(1, round_half_up(ALPHA * patients))


def true_ratio(split: Any) -> float:
    """Size of a compressed embedding with its indices, to that of a full one."""
    return compression.true_bits(compression.pack(np.ones((1, split.d2), np.float32), compression.PAPER_KEEP)) / (
        32 * split.d2
    )


def reached(model: SplitModel, data: Data, scheme: Scheme, run: Run, target: float) -> dict[str, float]:
    """Iterations and megabytes until the target; empty where it is not reached."""
    at = next((k for k, (_, value) in enumerate(run.curve) if value >= target), None)
    if at is None:
        return {}
    before = len(run.rounds) - len(run.curve)  # rounds of pretraining
    return {"iterations": run.curve[at][0], **megabytes(model, data, scheme, run.rounds[: before + at + 1])}


# Table ----------------------------------------------------------------------------------------------------------
class Bench:
    """All runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.o, self.kept, self.model = options, Results(options.json), SplitModel(BUNDLE)

    def played(self, name: str, chosen: Mapping[str, Any], seed: int) -> tuple[Data, Run]:
        data = read(self.o.data, seed)
        return data, played(self.model, data, SCHEMES[name], chosen, seed, self.o.iterations)

    def chosen(self, name: str) -> Any:
        def judge(trial: Mapping[str, Any]) -> float:
            data, run = self.played(name, trial, TUNING)
            last = reached(self.model, data, SCHEMES[name], run, TARGETS[-1])
            return -last["paper"] if last else max(value for _, value in run.curve) - 1e6

        best, scores = self.kept.get(f"{name}: trials", lambda: tune([dict(t) for t in SCHEMES[name].trials], judge))
        print(f"{name}: {best}, trials {[round(s, 3) for s in scores]}", file=sys.stderr)
        return best

    def measured(self, name: str, chosen: Mapping[str, Any], seed: int) -> Any:
        data, run = self.played(name, chosen, seed)
        found = {str(t): reached(self.model, data, SCHEMES[name], run, t) for t in TARGETS}
        sizes = sorted(set(run.rounds[SCHEMES[name].settings.get("pretraining", 0) :]))
        return found | {
            "test": auc(self.model, run.theta, data.test),
            "best": max(v for _, v in run.curve),
            "PQ": sizes,
        }

    def row(self, name: str) -> list[str]:
        chosen = self.chosen(name)
        seeds = [self.kept.get(f"{name}: {seed}", lambda seed=seed: self.measured(name, chosen, seed))
                 for seed in range(self.o.seeds)]  # fmt: skip
        cells = [mean_sd([s[str(t)].get(key) for s in seeds], digits)
                 for t in TARGETS for key, digits in (("iterations", 0), ("paper", 3), ("all hops", 3))]  # fmt: skip
        sizes = "/".join(sorted({f"{P},{Q}" for s in seeds for P, Q in s["PQ"]}))
        return [name, f"{chosen['eta']:g}", sizes, *cells, mean_sd([s["test"] for s in seeds], 3)]


HEAD = (
    "",
    "eta",
    "P,Q",
    *(f"{what} to {t}" for t in TARGETS for what in ("iterations", "paper MB", "all hops MB")),
    "test AUC",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="bonn_eeg.npz")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=240, help="most iterations of a run")
    parser.add_argument("--only", nargs="+", choices=list(SCHEMES), default=list(SCHEMES), metavar="SCHEME")
    parser.add_argument("--json", type=Path, help="results are kept there, and not computed again")
    options = parser.parse_args()
    check_budgets({name: scheme.trials for name, scheme in SCHEMES.items() if not name.startswith("S3")})
    bench, rows = Bench(options), []
    for name in options.only:
        rows.append(bench.row(name))
        print(markdown(HEAD, rows[-1:]), flush=True)
    print("\n" + markdown(HEAD, rows))


if __name__ == "__main__":
    main()
