"""Methods beside FedAvg on the network on features, all with the same phases: what does which of their steps bring?

    python benchmarks/on_features.py watch|wrist [FOLDER] [--labels 0.1] [--seeds 5] [--only ROW ...] [--json FILE]

Data, splits and phases are those of `settling.py --recommended`: features standardised by the fleet; devices label
their own windows in turns, settle, and have a forest of their own. Only the method of the rounds changes. Each has
three trials of its main setting with the seed TUNING of protocol.py, judged by personal models on validation samples;
the test part is judged once for each of the seeds, with what was chosen. Every method has as many rounds (50), with
five passes over a device's samples in each, but for AugFL, whose rounds have four gradients of all its samples.

Rows: fedavg; fedslr without low rank (drift correction alone), with low rank, with the paper's personal part in each
round (of the five passes one is its); fedslr-b (FedBCD's consensus of the first two of three hospitals); fedbcd; augfl
(without a private model). FedAL shares no whole model, so nothing of this settles: it is not here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import holders, settling_runs
from benchmarks.holders import patient
from benchmarks.outcomes import interval
from benchmarks.protocol import TUNING, Results
from benchmarks.settling import NEW, TUNED
from benchmarks.settling_runs import Job
from edge_sdk.contract.run import Run
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration import window_runs
from edge_sdk.replay.planning.bundles import compile_network

Settings = Mapping[str, Any]
LOCAL = {**window_runs.TRAINING}
FEDSLR = {**LOCAL, "global_penalty": "none", "lam": 0.0, "personal_epochs": 0}
BCD = {"local_steps": 5, "draw_steps": False, "unit": "epoch", "batch": 64, "zeta": 0.0, "feasible": "free"}


@dataclass(frozen=True)
class Row:
    """A method, its settings, and its trials."""

    method: str
    settings: Settings
    trials: Sequence[Settings]


LOW_RANK = {**FEDSLR, "global_penalty": "nuclear", "eta_g": 10.0}
ROWS: Mapping[str, Row] = {
    "fedavg": Row("fedavg", {**LOCAL, "weighting": "uniform"}, [{"eta_l": e} for e in (0.05, 0.1, 0.2)]),
    "fedslr, drift": Row("fedslr", FEDSLR, [{"eta_g": e} for e in (3.0, 10.0, 30.0)]),
    "fedslr, low rank": Row("fedslr", LOW_RANK, [{"lam": e} for e in (3e-4, 1e-3, 3e-3)]),
    "fedslr, personal": Row(
        "fedslr",
        {**LOW_RANK, "lam": 3e-4, "local_epochs": 4, "personal_epochs": 1},
        [{"mu": e} for e in (1e-4, 1e-3, 1e-2)],
    ),
    "fedslr-b": Row(
        "fedslr-b",
        {**FEDSLR, "cloud": "first-b", "ready": 2, "one_prox": True},
        [{"eta_g": e} for e in (3.0, 10.0, 30.0)],
    ),
    "fedbcd": Row("fedbcd", BCD, [{"eta_x": e, "gamma": g} for e, g in ((0.1, 0.1), (0.1, 1.0), (0.05, 0.1))]),
    "augfl": Row("augfl", {"weighting": "uniform"}, [{"rho": r, "alpha": 0.03} for r in (0.1, 0.3, 1.0)]),
}


class Bench:
    """The fleet of each seed, and the network."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.watch = options, options.data == "watch"
        shape, self.classes = ((6, 64), 7) if self.watch else ((3, 64), 14)
        sizes = ["--input", ",".join(map(str, shape)), "--classes", str(self.classes)]
        self.model = Model(compile_network(window_runs.NETWORKS[0], sizes, 0, lambda text: None))
        self.settle = {**window_runs.SETTLE, "statistics": True}
        self.augment = window_runs.changes_of(shape)

    def job(self, row: Row, trial: Settings, seed: int) -> Job:
        run = Run(
            id="on-features",
            method=row.method,
            settings={**row.settings, **trial},
            rounds=self.options.rounds,
            seed=seed,
            bundle=self.model.sha256,
            classes=tuple(map(str, range(self.classes))),
            settle=self.settle,
            augment=self.augment,
        )
        if not self.watch:
            return Job(run, self.model, holders.people(self.options.folder, self.options.labels, seed))
        every = holders.watch(2.0)
        fleet = [h for h in every if patient(h.name) in TUNED]
        return Job(run, self.model, fleet, [h for h in every if patient(h.name) in NEW])

    def judge(self, row: Row, trial: Settings) -> float:
        """Personal accuracy on validation samples, with the seed of trials."""
        out, _ = settling_runs.play(replace(self.job(row, trial, TUNING), newcomers=()))
        return float(np.mean([found["personal"] for found in out.validation.values()]))

    def end(self, row: Row, trial: Settings, seed: int) -> dict[str, Any]:
        """Accuracies of one run by device, and its bytes."""
        began = time.monotonic()
        out, _ = settling_runs.play(self.job(row, trial, seed))
        return {"accuracy": out.accuracy, "bytes": out.bytes, "seconds": time.monotonic() - began}


def by_device(runs: Sequence[Mapping[str, Any]], model: str, new: bool) -> dict[str, float]:
    """Device -> accuracy in percent, mean over the runs; newcomers' names end in "*"."""
    names = [n for n in runs[0]["accuracy"] if n.endswith("*") == new]
    return {n: 100 * float(np.mean([run["accuracy"][n][model] for run in runs])) for n in names}


def cell(found: Mapping[str, float], beside: Mapping[str, float]) -> str:
    gain, low, high = interval([found[n] - beside[n] for n in found])
    return f"{np.mean(list(found.values())):.1f} ({gain:+.1f} [{low:+.1f}, {high:+.1f}])"


def table(rows: Mapping[str, Any]) -> str:
    """The rows in Markdown; in brackets paired differences to FedAvg, with 95 % intervals over devices."""
    fedavg = rows["fedavg"]["runs"]
    lines = ["| method | chosen | global | personal | newcomers | MB |", "|---|---|---|---|---|---|"]
    there = any(n.endswith("*") for n in fedavg[0]["accuracy"])
    for name, row in rows.items():
        cells = [cell(by_device(row["runs"], m, False), by_device(fedavg, m, False)) for m in ("global", "personal")]
        cells.append(
            cell(by_device(row["runs"], "personal", True), by_device(fedavg, "personal", True)) if there else "-"
        )
        chosen = ", ".join(f"{key} {value:g}" for key, value in row["chosen"].items())
        megabytes = np.mean([run["bytes"] for run in row["runs"]]) / 1e6
        lines.append(f"| {name} | {chosen} | {' | '.join(cells)} | {megabytes:.0f} |")
    return "\n".join(lines)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("data", choices=("watch", "wrist"))
    words.add_argument("folder", type=Path, nargs="?")
    words.add_argument("--labels", type=float, default=0.1)
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--rounds", type=int, default=50)
    words.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    words.add_argument("--json", type=Path, help="results are kept there; those that are there are not computed again")
    options = words.parse_args()
    bench, kept = Bench(options), Results(options.json)
    rows: dict[str, Any] = {}
    for name in options.only:
        row = ROWS[name]
        scores = [
            kept.get(f"{name} trial {k}", lambda row=row, t=t: bench.judge(row, t)) for k, t in enumerate(row.trials)
        ]
        best = row.trials[max(range(len(scores)), key=lambda i: (scores[i], -i))]
        runs = [
            kept.get(f"{name} seed {s}", lambda s=s, row=row, best=best: bench.end(row, best, s))
            for s in range(options.seeds)
        ]
        rows[name] = {"chosen": best, "runs": runs, "scores": scores}
        print(f"{name}: trials {', '.join(f'{100 * s:.1f}' for s in scores)}", flush=True)
        if "fedavg" in rows:
            print(table(rows), flush=True)


if __name__ == "__main__":
    main()
