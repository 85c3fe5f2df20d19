"""What low rank, sparsity and drift correction are each worth in FedSLR, on recorded wrist traces.

    python benchmarks/fedslr.py $AUSCULT_DATA/wrist [--labels 0.1] [--seeds 3] [--rounds 40] [--json FILE]
        [--picture FILE.svg]

Nine volunteers with two classes or more; a share of their labels, drawn anew with each seed; training, validation and
test by whole recordings. Every row makes the same local epochs. The step of drift correction eta_g has three trials in
each of the four cells {gamma on, off} x {low rank on, off}, judged on validation; the sweeps keep that choice. "gamma
off" is FedSLR without its linear term: FedProx's pull 1/(2 eta_g) ||v - w||^2 with the same threshold at the
aggregator (GPGD; with FedAvg's schedule, so that the threshold decays with the step size).

Ranks: lam is swept, densities: the penalty of settling's component is the same and its largest entries are kept. The
paper's own personal phase (p beside w in each round) has a row with three trials of mu. All settle by the recipe of
docs/settling.md; "alone" is that recipe's local model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import curves
from benchmarks import fleet as fleets
from benchmarks.fleet import Fleet, Walks
from benchmarks.holders import people
from benchmarks.protocol import TUNING, Point, Results, by_device, cost_to, grid, markdown, mean_sd, paired, tune
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.model.model import Model

COMMON = {"eta_l": 0.05, "decay": 0.99}
SETTLING = Settling(steps=(0, 50, 100, 200), local_steps=(100, 200, 400))
ETAS_G = (3.0, 10.0, 30.0)
LOW, LAMS = 0.005, (0.0015, 0.003, 0.01)
DENSITIES = (0.05, 0.1, 0.2)
MUS = (0.0001, 0.001, 0.01)


def job(gamma: bool, lam: float, eta_g: float) -> tuple[str, dict[str, Any]]:
    """Method and settings of a cell."""
    low = {"lam": lam, "global_penalty": "nuclear"} if lam else {"lam": 0.0, "global_penalty": "none"}
    if gamma:
        return "fedslr", {**COMMON, **low, "eta_g": eta_g, "personal_epochs": 0}
    pull = {"proximal": 1 / eta_g, "weighting": "uniform"}
    if not lam:
        return "fedavg", {**COMMON, **pull}
    return "fedavg", {**COMMON, **pull, "lam": lam * eta_g / COMMON["eta_l"], "server_penalty": "nuclear"}


# Runs -----------------------------------------------------------------------------------------------------------
class Bench:
    """The fleets of all seeds, and what devices reach alone there."""

    def __init__(self, folder: Path, labels: float, rounds: int, kept: Results) -> None:
        self.folder, self.labels, self.rounds, self.kept = folder, labels, rounds, kept
        self.model = Model(Path(__file__).parents[1] / "models" / "shipped" / "wrist.bundle")

    @cache  # noqa: B019
    def fleet(self, seed: int) -> Fleet:
        return Fleet(self.model, people(self.folder, self.labels, seed))

    @cache  # noqa: B019
    def local(self, seed: int) -> Walks:
        return fleets.walks_of(self.fleet(seed), SETTLING, seed, None)

    def tuned(self, name: str, trials: Sequence[Mapping[str, Any]], of: Any) -> Any:
        """`of`: trial -> method and settings."""

        def judge(trial: Mapping[str, Any]) -> float:
            return fleets.play(self.fleet(TUNING), *of(**trial), self.rounds, TUNING).curve[-1].value

        if len(trials) == 1:
            return dict(trials[0])
        chosen, scores = self.kept.get(f"{name}: trials", lambda: tune([dict(t) for t in trials], judge))
        print(f"{name}: {chosen}, validation {[round(100 * s, 1) for s in scores]}", file=sys.stderr)
        return chosen

    def row(self, name: str, method: str, settings: Mapping[str, Any], seeds: int, densities: bool = False) -> Any:
        return [self.kept.get(f"{name}: {seed}", lambda seed=seed: self.measured(method, settings, seed, densities))
                for seed in range(seeds)]  # fmt: skip

    def measured(self, method: str, settings: Mapping[str, Any], seed: int, densities: bool) -> Any:
        fleet = self.fleet(seed)
        p = fleets.play(fleet, method, settings, self.rounds, seed, every=10)
        found: dict[str, Any] = {"rank": p.rank, "megabytes": p.megabytes, "gradients": p.gradients}
        found |= {"global": fleets.test_accuracies(fleet, p.shared), "curve": [vars(point) for point in p.curve]}
        found["own"] = fleets.test_accuracies(fleet, p.own) if p.own else None
        if p.own:
            found["density of p"] = float(np.mean([np.mean(p.own[d] != p.shared[d]) for d in p.own]))
        wanted = {f"{d:g}": replace(SETTLING, density=d) for d in (DENSITIES if densities else (SETTLING.density,))}
        wanted |= {"dense": replace(SETTLING, personal="dense")} if densities else {}
        found["settled"] = {kind: self.settled(fleet, s, seed, p.shared) for kind, s in wanted.items()}
        return found

    def settled(self, fleet: Fleet, s: Settling, seed: int, start: Mapping[str, Any]) -> Any:
        walks = fleets.walks_of(fleet, s, seed, start)
        both = fleets.settle(fleet, s, walks, self.local(seed), start)
        return {"test": both.personal, "alone": both.alone, "choice": both.choice, "density": both.density}


# The tables -----------------------------------------------------------------------------------------------------
TARGET = 0.5
HEAD = ("", "global", "own p", "settled", "settled - alone", "rank", "MB", f"to {TARGET:.0%}", "gradients")

SWEEP = ("entries of p", "density", "settled", "settled - alone")


def density(seeds: Sequence[Mapping[str, Any]], kind: str) -> str:
    return mean_sd([s["settled"][kind]["density"] for s in seeds], 1, 100)


def words(name: str, seeds: Sequence[Mapping[str, Any]], kind: str = "0.2") -> list[str]:
    def percent(values: Sequence[Any]) -> str:
        return mean_sd([None if v is None else float(np.mean(list(v.values()))) for v in values], factor=100)

    settled = [s["settled"][kind] for s in seeds]
    one, other = by_device([s["test"] for s in settled]), by_device([s["alone"] for s in settled])
    return [
        name, percent([s["global"] for s in seeds]), percent([s["own"] for s in seeds]),
        percent([s["test"] for s in settled]), paired(list(one.values()), [other[d] for d in one]),
        mean_sd([s["rank"] for s in seeds], 0), f"{np.mean([s['megabytes'] for s in seeds]):.1f}",
        mean_sd([cost_to([Point(**p) for p in s["curve"]], TARGET) for s in seeds], 0),
        f"{np.mean([s['gradients'] for s in seeds]):.0f}",
    ]  # fmt: skip


def main() -> None:
    options = parser().parse_args()
    bench = Bench(options.folder, options.labels, options.rounds, Results(options.json))
    rows, drawn, eta = [], {}, {}
    for gamma in (True, False):
        for lam in (0.0, LOW):
            name = f"gamma {'on' if gamma else 'off'}, {'low rank' if lam else 'full rank'}"
            eta[gamma, lam] = bench.tuned(
                name, grid(eta_g=options.eta_g), lambda eta_g, g=gamma, k=lam: job(g, k, eta_g)
            )
            chosen = eta[gamma, lam]["eta_g"]
            found = bench.row(name, *job(gamma, lam, chosen), options.seeds, densities=gamma and lam > 0)
            rows.append(words(f"{name}, eta_g {chosen:g}", found))
            drawn[name] = [one["curve"] for one in found]
            print(markdown(HEAD, rows[-1:]), flush=True)
            if gamma and lam:
                sweep = [
                    [f"at most {kind}", density(found, kind), *words("", found, kind)[3:5]]
                    for kind in found[0]["settled"]
                ]
    plain = bench.row("FedAvg", "fedavg", {**COMMON, "weighting": "uniform"}, options.seeds)
    rows.append(words("FedAvg", plain))
    drawn["FedAvg"] = [one["curve"] for one in plain]
    for lam in LAMS:
        found = bench.row(f"lam {lam:g}", *job(True, lam, eta[True, LOW]["eta_g"]), options.seeds)
        rows.append(words(f"lam {lam:g}", found))
        print(markdown(HEAD, rows[-1:]), flush=True)
    base = {**job(True, LOW, eta[True, LOW]["eta_g"])[1], "personal_epochs": 1, "local_epochs": 1}
    mu = bench.tuned("paper's p", grid(mu=MUS), lambda mu: ("fedslr", {**base, "mu": mu}))
    found = bench.row("paper's p", "fedslr", {**base, **mu}, options.seeds)
    if options.picture:
        curves.draw(options.picture, drawn, "MB, all devices, both ways")
    dense = np.mean([s["density of p"] for s in found])
    rows.append(words(f"1 epoch w, 1 epoch p; mu {mu['mu']:g}, p {dense:.0%} dense", found))
    alone = by_device([s["settled"]["0.2"]["alone"] for s in found])
    print(f"\nalone {100 * np.mean(list(alone.values())):.1f}\n\n{markdown(HEAD, rows)}\n\n{markdown(SWEEP, sweep)}")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path, help="a folder of traces")
    found.add_argument("--labels", type=float, default=0.1, help="share of the labels that devices have")
    found.add_argument("--seeds", type=int, default=3)
    found.add_argument("--rounds", type=int, default=40)
    found.add_argument("--eta-g", type=float, nargs="+", default=ETAS_G, help="trials; a single one is taken as it is")
    found.add_argument("--picture", type=Path, help="an SVG file of the curves of the parts and of FedAvg")
    found.add_argument("--json", type=Path, help="results are kept there, and not computed again")
    return found


if __name__ == "__main__":
    main()
