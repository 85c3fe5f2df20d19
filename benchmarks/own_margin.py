"""The margin of a device's last line (edge_sdk/methods/settling/own_line.py), chosen on validation samples alone.

    python benchmarks/own_margin.py FILE watch [--attacks label-flip min-max ...] [--seeds 5]
    python benchmarks/own_margin.py FILE wrist FOLDER --labels 0.1 0.25 1.0
    python benchmarks/own_margin.py FILE traces FOLDER --labels 0.1
    python benchmarks/own_margin.py FILE

The first three play recommended runs on the network on features, as settling.py and poisoned_labels.py play them, and
keep in FILE what both ways to predict say of each device's validation and test samples: what the fleet has chosen, and
what the device made alone. What is in FILE is not played again. The last prints the tables of all that is there.

A margin is judged by validation samples that it did not decide on: of each device they are dealt into five parts, the
device decides on four of them (which weight of its forest, and whether it falls back), and is right or wrong on the
fifth; 20 deals. The share that is right, less that of what the fleet has chosen, is averaged over the devices and seeds
of a fleet, and over fleets: those in which nobody lies, and those that are attacked, weighted alike. Below the means is
how far each is behind the best one: an interval (95 %) over draws of devices. Then, for the best margin, for that of
the product and for both ends, the same is printed of test samples, with the devices that lose more than two points by
falling back.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import numpy.typing as npt

from benchmarks import settling
from benchmarks.poisoned_labels import ATTACKS, OF_SAMPLES, bad_ones, changed_by, poisoned
from benchmarks.settling_runs import Job, play
from edge_sdk.contract.environment.samples import Labelled
from edge_sdk.methods.settling import method, own_line
from edge_sdk.methods.settling.equations import ensemble
from edge_sdk.nodes.configuration import window_runs

MARGINS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, inf)
FOLDS, DEALS, BAD, NOBODY = 5, 20, 3, "nobody"
COST = 0.02

Part = dict[str, Any]
"""Of samples: loss (n,) and right (n,) by the fleet's way, own_loss (weights, n) and own_right (weights, n)."""
Floats = npt.NDArray[np.floating]
Devices = dict[str, dict[str, Part]]
"""Device -> validation, test -> what is said of its samples."""


# Recording ------------------------------------------------------------------------------------------------------
def recorded(job: Job, attack: str, bad: frozenset[str]) -> Devices:
    """A run in which nobody falls back, and what both ways to predict say of honest devices' samples."""
    found: Devices = {}

    def record(env: Any, s: Any, weight: float, models: Mapping[str, Any]) -> Mapping[str, Any]:
        if env.validation is None or env.held_out is None or env.me in bad:
            return models
        known, (own, weights) = ensemble(env, s, weight).classes, own_line.own_models(env, s, models)
        found[env.me] = {
            name: {
                **said_of(judged, [(models, weight)], known, ""),
                **said_of(judged, [(own, w) for w in weights], known, "own_"),
            }
            for name, judged in (("validation", env.validation), ("test", env.held_out))
        }
        return models

    with mock.patch.object(method, "behind_own_line", record):
        play(job, changed_by(attack, job.run, bad))
    return found


def said_of(judged: Labelled, ways: Sequence[tuple[Any, float]], known: tuple[int, ...], prefix: str) -> Part:
    """Losses and right answers of some ways to predict on samples."""
    log_p = np.array([own_line.log_predicted(judged, models, weight, known) for models, weight in ways])
    p = np.exp(log_p[:, np.arange(len(judged.labels)), judged.labels])
    loss, right = -np.log(np.maximum(p, own_line.FLOOR)), log_p.argmax(2) == judged.labels
    rows = {f"{prefix}loss": loss.round(5), f"{prefix}right": right.astype(int)}
    return {name: (values if prefix else values[0]).tolist() for name, values in rows.items()}


def play_all(options: argparse.Namespace) -> None:
    """Plays what FILE does not have yet."""
    kept = read(options.file)
    for title, jobs in settling.jobs(options).items():
        for attack in options.attacks:
            runs = kept.setdefault(f"{title}, {attack}", [])
            for job in jobs[len(runs) :]:
                bad = frozenset[str]() if attack == NOBODY else bad_ones(job.fleet, BAD, whole=False)
                every = [poisoned(h, attack) if attack in OF_SAMPLES and h.name in bad else h for h in job.fleet]
                runs.append(recorded(replace(job, fleet=every), attack, bad))
                options.file.write_text(json.dumps(kept))
                print(f"{title}, {attack}: run {len(runs)} of {len(jobs)}", flush=True)


def read(file: Path) -> dict[str, list[Devices]]:
    found: dict[str, list[Devices]] = json.loads(file.read_text()) if file.is_file() else {}
    return found


# Judging --------------------------------------------------------------------------------------------------------
def falls_back(part: Part, rows: Any, margin: float) -> int:
    """The row of the own way that a device takes by some of its samples; -1: it stays with the fleet's."""
    own = np.array(part["own_loss"])[:, rows].sum(1)
    best = int(own.argmin())
    return best if np.array(part["loss"])[rows].sum() - own[best] > margin else -1


def gain(part: Part, row: int, rows: Any) -> float:
    """Share of samples that are right by falling back, less the share that are by the fleet's way."""
    if row < 0 or not len(rows):
        return 0.0
    return float((np.array(part["own_right"])[row, rows] - np.array(part["right"])[rows]).mean())


def crossed(part: Part, margin: float, seed: int) -> float:
    """Mean gain on validation samples that a device did not decide on."""
    n, random = len(part["loss"]), np.random.default_rng(seed)
    if n < FOLDS:
        return 0.0
    gains = []
    for _ in range(DEALS):
        for fold in np.array_split(random.permutation(n), FOLDS):
            rest = np.setdiff1d(np.arange(n), fold)
            gains.append(gain(part, falls_back(part, rest, margin), fold))
    return float(np.mean(gains))


def on_validation(runs: Sequence[Devices]) -> Floats:
    """Points (devices, margins), means over seeds."""
    names = sorted({name for one in runs for name in one})
    rows = [[[crossed(one[name]["validation"], m, k) for m in MARGINS] for one in runs] for k, name in enumerate(names)]
    return 100 * np.array([np.mean(of_seeds, 0) for of_seeds in rows])


def on_test(runs: Sequence[Devices], margin: float) -> dict[str, float]:
    """Device -> mean gain over seeds."""
    found: dict[str, list[float]] = {}
    for one in runs:
        for name, parts in one.items():
            part, test = parts["validation"], parts["test"]
            row = falls_back(part, np.arange(len(part["loss"])), margin)
            found.setdefault(name, []).append(gain(test, row, np.arange(len(test["loss"]))))
    return {name: float(np.mean(values)) for name, values in found.items()}


def mean_of(tables: Mapping[str, Floats]) -> Floats:
    """Mean over devices, then over fleets: those without and those with liars weighted alike."""
    kinds = [[table.mean(0) for title, table in tables.items() if title.endswith(NOBODY) == k] for k in (True, False)]
    return np.asarray(np.mean([np.mean(rows, 0) for rows in kinds if rows], 0))


def choose(kept: Mapping[str, Sequence[Devices]]) -> float:
    """Prints what margins bring on validation samples, and gives the best one."""
    print(f"{'validation, points':52}" + "".join(f"{m:>7g}" for m in MARGINS))
    tables = {title: on_validation(runs) for title, runs in kept.items()}
    for title, table in tables.items():
        print(f"{title[:50]:52}" + "".join(f"{v:+7.2f}" for v in table.mean(0)))
    means, random = mean_of(tables), np.random.default_rng(0)
    best = int(np.flatnonzero(means >= means.max() - 1e-9)[-1])
    draws = [
        mean_of({t: one[random.integers(len(one), size=len(one))] for t, one in tables.items()}) for _ in range(1000)
    ]
    low, high = np.percentile([one - one[best] for one in draws], (2.5, 97.5), 0)
    for words, row in (
        ("mean, fleets with and without liars alike", means),
        ("less than the best: from", low),
        ("to", high),
    ):
        print(f"{words:52}" + "".join(f"{v:+7.2f}" for v in row))
    return MARGINS[best]


def show_test(kept: Mapping[str, Sequence[Devices]], margins: Sequence[float]) -> None:
    """Prints what some margins bring on test samples."""
    print(f"\n{'test, points; devices that lose more than two':52}" + "".join(f"{m:>14g}" for m in margins))
    for title, runs in kept.items():
        cells = []
        for margin in margins:
            gains = np.array(list(on_test(runs, margin).values()))
            cells.append(f"{100 * gains.mean():+6.2f}, {(gains < -COST).sum():2}/{len(gains):2}")
        print(f"{title[:50]:52}" + "".join(f"{cell:>14}" for cell in cells))


def parse() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("file", type=Path)
    words.add_argument("data", choices=("wrist", "traces", "watch"), nargs="?")
    words.add_argument("folder", type=Path, nargs="?")
    words.add_argument("--attacks", nargs="*", choices=ATTACKS, default=[NOBODY], help="watch only")
    words.add_argument("--labels", type=float, nargs="*", default=[1.0])
    words.add_argument("--seeds", type=int, default=5)
    options = words.parse_args()
    fixed = {"recommended": True, "newcomers": False, "rounds": None, "set": [], "settle": [], "augment": []}
    fixed |= {"network": window_runs.NETWORKS[0], "method": window_runs.METHOD, "seconds": 2.0}
    return argparse.Namespace(**vars(options), **fixed)


def main() -> None:
    options = parse()
    if options.data:
        return play_all(options)
    kept = read(options.file)
    best = choose(kept)
    print(f"chosen: {best:g}; the product's: {own_line.SURE:g}")
    show_test(kept, sorted({best, own_line.SURE, 0.0, inf}))


if __name__ == "__main__":
    main()
