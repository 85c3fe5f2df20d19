"""All baselines beside FedSLR and training alone, on the physiotherapy watches: equal gradients, equal trials.

    python benchmarks/baselines.py [--seconds 2] [--seeds 5] [--rounds 40] [--only METHOD ...] [--json FILE]
        [--picture FILE.svg]

14 wrists of the seven patients that docs/settling.md settles on, so many labelled seconds of each exercise to train on
and as many to choose by (needs the package seglearn, see `auscult traces watch`). In each round every device computes
GRADIENTS gradients of all its labelled windows, whatever the method spends them on: Ditto half of them on its own
model, FedRep half on the head, APFL each step two of them. They are counted. Every method has four trials, judged on
validation windows by the model that it is about: the personal one where it has one, else the global one.

Then everybody settles by the same recipe: start (the global model, or the method's own personal ones), steps and weight
of the local model are chosen by the fleet on validation. "fine-tuned" is the same without the local model. Alone has
four trials too: with and without augmentation, two step sizes; and its steps are chosen on validation.
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

from benchmarks import curves, protocol
from benchmarks import fleet as fleets
from benchmarks.fleet import Fleet, Walks
from benchmarks.holders import patient, watch
from benchmarks.protocol import TUNING, Point, Results, by_device, cost_to, grid, markdown, mean_sd, paired, tune
from edge_sdk.data.augment import Augment
from edge_sdk.methods.settling.settings import Candidate, Settling
from edge_sdk.model.model import Model
from edge_sdk.replay.planning.bundles import compile_network

PATIENTS = (1, 2, 4, 5, 7, 8, 10)
AUGMENT = Augment(rotation=0.25, scale=0.15, noise=0.1)
GRADIENTS = 6
COMMON = {"batch": 0, "decay": 0.995}
ETAS = (0.01, 0.02, 0.05, 0.1)
TWO = (0.02, 0.05)  # where a second parameter has trials, too
TARGET = 0.6

Job = tuple[str, dict[str, Any], list[dict[str, Any]]]
"""Method, what is fixed, trials."""
SLR = {"personal_epochs": 0, "local_epochs": GRADIENTS}
JOBS: Mapping[str, Job] = {
    "FedAvg": ("fedavg", {"local_epochs": 6}, grid(eta_l=ETAS)),
    "FedProx": ("fedavg", {"local_epochs": 6}, grid(eta_l=TWO, proximal=(0.01, 0.1))),
    "SCAFFOLD": ("scaffold", {"local_steps": 6}, grid(eta_l=ETAS)),
    "FedDyn": ("feddyn", {"local_epochs": 6}, grid(eta_l=TWO, alpha=(0.01, 0.1))),
    "FedBN": ("fedbn", {"local_epochs": 6}, grid(eta_l=ETAS)),
    "FedPer": ("fedper", {"local_epochs": 6}, grid(eta_l=ETAS)),
    "FedRep": ("fedrep", {"local_epochs": 3, "head_epochs": 3}, grid(eta_l=ETAS)),
    "FedBABU": ("fedbabu", {"local_epochs": 6}, grid(eta_l=ETAS)),
    "Ditto": ("ditto", {"local_epochs": 3, "personal_epochs": 3}, grid(eta_l=TWO, nearness=(0.1, 1.0))),
    "APFL": ("apfl", {"local_epochs": 3}, grid(eta_l=TWO, alpha=(0.25, 0.5))),
    "FedALA": ("fedala", {"local_epochs": 5}, grid(eta_l=ETAS)),
    "FedSLR, full rank": (
        "fedslr",
        {**SLR, "global_penalty": "none"},
        grid(eta_l=TWO, eta_g=(30.0, 100.0)),
    ),
    "FedSLR": ("fedslr", SLR, grid(eta_l=TWO, eta_g=(100.0,), lam=(0.0005, 0.001))),
}
ALONE = grid(augmented=(True, False), rate=(0.001, 0.003))
SETTLING = Settling(batch=0, steps=(0, 25, 50, 100), local_steps=(100, 200, 400))


def fleet_of(seconds: float) -> Fleet:
    model = Model(compile_network("wrist", ["--input", "6,64", "--classes", "7"], 0, lambda text: None))
    return Fleet(model, [h for h in watch(seconds) if patient(h.name) in PATIENTS], AUGMENT)


# Training alone -------------------------------------------------------------------------------------------------
def alone(fleet: Fleet, trial: Mapping[str, Any], seed: int) -> Walks:
    plainly = Fleet(fleet.model, fleet.holders) if not trial["augmented"] else fleet
    return fleets.walks_of(plainly, replace(SETTLING, rate=trial["rate"]), seed, None)


def right_alone(fleet: Fleet, trial: Mapping[str, Any]) -> float:
    """Share of validation windows that are right with the best number of steps."""
    walks = alone(fleet, trial, TUNING)
    right = [fleets.count_right(fleet, Candidate(0, n, 1.0), walks, walks) for n in SETTLING.local_steps]
    return max(right) / sum(len(h.validation.y) for h in fleet.holders)


# One method -----------------------------------------------------------------------------------------------------
def tuned(fleet: Fleet, job: Job, rounds: int) -> Any:
    name, fixed, trials = job

    def judge(trial: Mapping[str, Any]) -> float:
        return fleets.play(fleet, name, {**COMMON, **fixed, **trial}, rounds, TUNING).curve[-1].value

    return tune(trials, judge)


def measured(fleet: Fleet, job: Job, chosen: Mapping[str, Any], rounds: int, seed: int, local: Walks) -> Any:
    name, fixed, _ = job
    p = fleets.play(fleet, name, {**COMMON, **fixed, **chosen}, rounds, seed, every=5)
    found: dict[str, Any] = {"gradients": p.gradients, "megabytes": p.megabytes, "rank": p.rank}
    found["curve"] = [vars(point) for point in p.curve]
    found["global"] = fleets.test_accuracies(fleet, p.shared)
    found["own"] = fleets.test_accuracies(fleet, p.own) if p.own else None
    for kind, start in (("global", p.shared), ("own", p.own)):
        if start:
            walks = fleets.walks_of(fleet, SETTLING, seed, start)
            both = fleets.settle(fleet, SETTLING, walks, local, start)
            tuned_only = fleets.settle(fleet, replace(SETTLING, local_weights=(0.0,)), walks, local, start)
            found["alone"] = both.alone
            for how, one in (("settled", both), ("fine-tuned", tuned_only)):
                if how not in found or one.right > found[how]["right"]:
                    found[how] = {"choice": one.choice, "test": one.personal, "right": one.right, "start": kind}
    return found


# The table ------------------------------------------------------------------------------------------------------
HEAD = (
    "",
    "chosen",
    "global",
    "its own",
    "fine-tuned",
    "settled",
    "settled - alone",
    "settled - FedAvg",
    "gradients",
    "MB",
    f"to {TARGET:.0%}",
)


def row(
    name: str, chosen: Mapping[str, Any], seeds: Sequence[Mapping[str, Any]], usual: Sequence[Mapping[str, Any]]
) -> list[str]:
    """One line of the table; `usual` are FedAvg's runs with the same seeds, if there are any."""

    def accuracy(of: Any) -> str:
        return mean_sd([None if of(s) is None else mean(of(s)) for s in seeds], factor=100)

    settled = by_device([s["settled"]["test"] for s in seeds])
    against = by_device([s["alone"] for s in seeds])
    fedavg = by_device([s["settled"]["test"] for s in usual]) if usual else {}
    reached = [cost_to([Point(**p) for p in s["curve"]], TARGET) for s in seeds]
    words = ", ".join(f"{key} {value:g}" for key, value in chosen.items())
    return [
        name, words, accuracy(lambda s: s["global"]), accuracy(lambda s: s["own"]),
        accuracy(lambda s: s["fine-tuned"]["test"]), accuracy(lambda s: s["settled"]["test"]),
        paired(list(settled.values()), [against[d] for d in settled]),
        paired(list(settled.values()), [fedavg[d] for d in settled]) if fedavg and name != "FedAvg" else "-",
        f"{seeds[0]['gradients']:.0f}", f"{mean([s['megabytes'] for s in seeds]):.0f}", mean_sd(reached, 0),
    ]  # fmt: skip


def mean(values: Any) -> float:
    every = list(values.values() if isinstance(values, Mapping) else values)
    return float(sum(every) / len(every))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=2.0)
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--rounds", type=int, default=40)
    words.add_argument("--only", nargs="+", choices=list(JOBS), default=list(JOBS), metavar="METHOD")
    words.add_argument("--json", type=Path, help="results are kept there, and not computed again")
    words.add_argument("--picture", type=Path, help="an SVG file of the curves")
    options = words.parse_args()
    protocol.check_budgets({name: job[2] for name, job in JOBS.items()} | {"alone": ALONE})
    fleet, kept = fleet_of(options.seconds), Results(options.json)
    own, scores = kept.get("alone: trials", lambda: tune(ALONE, lambda trial: right_alone(fleet, trial)))
    print(f"alone: {own}, trials {scores}", file=sys.stderr)
    local = cache(lambda seed: alone(fleet, own, seed))
    rows, drawn, usual = [], {}, []
    for name in options.only:
        job = JOBS[name]
        chosen, _ = kept.get(f"{name}: trials", lambda job=job: tuned(fleet, job, options.rounds))
        seeds = [kept.get(f"{name}: {seed}", lambda job=job, chosen=chosen, seed=seed:
                          measured(fleet, job, chosen, options.rounds, seed, local(seed)))
                 for seed in range(options.seeds)]  # fmt: skip
        usual = seeds if name == "FedAvg" else usual
        rows.append(row(name, chosen, seeds, usual))
        drawn[name] = [one["curve"] for one in seeds]
        print(markdown(HEAD, rows[-1:]), flush=True)
    if options.picture:
        curves.draw(options.picture, drawn, "MB, all devices, both ways")
    by = by_device([s["alone"] for s in seeds])
    print(f"\nalone {100 * mean(by):.1f}: {own}\n\n{markdown(HEAD, rows)}")


if __name__ == "__main__":
    main()
