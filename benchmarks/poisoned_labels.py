"""What devices with wrong labels, windows or uploads cost the others, where all of them label their own windows.

    python benchmarks/poisoned_labels.py [--seeds 2] [--bad 3] [--attacks NAME ...] [--rules none trimmed-mean]

The run is that of `settling.py watch --recommended` on the network on features: 14 wrists, two labelled seconds of each
exercise, statistics of the fleet, three turns of labelling, settling, a forest on each device. The last `--bad` of them
are bad, one in each hospital:

label flip    its labels are 6 - y, those it trains on and those it judges by, so that all that it counts is wrong, too
one class     all its labels are 0
windows       its windows are a hundred times as large, so the fleet's statistics are of other things
sign flip, product, min-max    what it sends, as in attacks.py; its labels are right

Printed are means over the honest devices and seeds (%): the global and the personal model on their own test parts, the
best that they reach alone (chosen by the validation samples of honest devices), the difference, and how many of them
the run costs more than two points against it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks.alone import reach_alone, right_of
from benchmarks.attacks import attacked
from benchmarks.holders import Holder, Part, patient, watch
from benchmarks.outcomes import interval
from benchmarks.settling import TUNED
from benchmarks.settling_runs import Job, play
from edge_sdk.contract.run import Run
from edge_sdk.methods.robust.settings import NONE, RULES
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration import window_runs
from edge_sdk.replay.planning.bundles import compile_network

CLASSES, SECONDS, LARGER = 7, 2.0, 100.0
OF_SAMPLES = ("label flip", "one class", "windows")
OF_UPLOADS = ("sign flip", "product", "min-max")
ATTACKS = ("nobody", *OF_SAMPLES, *OF_UPLOADS)
COST = 0.02
"""Share of its test samples that an honest device may lose against the best alone."""


def poisoned(holder: Holder, attack: str) -> Holder:
    """A bad device's samples. Its test part is not looked at."""

    def changed(part: Part) -> Part:
        y = {"label flip": CLASSES - 1 - part.y, "one class": np.zeros_like(part.y)}.get(attack, part.y)
        return Part(part.x * LARGER if attack == "windows" else part.x, y, part.recording)

    loose = holder.unlabelled
    return replace(
        holder,
        train=changed(holder.train),
        validation=changed(holder.validation),
        unlabelled=None if loose is None else changed(loose),
    )


def run_of(model: Model, rule: str, seed: int) -> Run:
    """The recommended run with a robust rule."""
    method = window_runs.METHOD
    return Run(
        id="poisoned",
        method=method,
        settings={**window_runs.TRAINING, **window_runs.BY_METHOD.get(method, {})},
        rounds=window_runs.ROUNDS,
        seed=seed,
        bundle=model.sha256,
        classes=tuple(map(str, range(CLASSES))),
        settle={"optimiser": "adam", **window_runs.SETTLE, "statistics": True},
        augment=window_runs.changes_of(model.input_shape),
        robust={} if rule == NONE else {"rule": rule},
    )


Alone = dict[str, dict[str, float]]


def losses(
    model: Model, fleet: Sequence[Holder], bad: int, attack: str, rule: str, seed: int, alone: dict[int, Alone]
) -> dict[str, list[float]]:
    """Honest device -> accuracy of its global and its personal model, and the best that it reaches alone.

    Args:
        alone: seed -> what honest devices reach alone, which no attack changes; found with the first run of a seed.
    """
    honest, others = fleet[:-bad], fleet[-bad:]
    every = [*honest, *(poisoned(h, attack) if attack in OF_SAMPLES else h for h in others)]
    job = Job(run_of(model, rule, seed), model, every)
    names = frozenset(h.name for h in others)
    out, _ = play(job, (lambda method: attacked(method, attack, names)) if attack in OF_UPLOADS else (lambda m: m))
    if seed not in alone:
        right = right_of({h.name: out.validation[h.name] for h in honest}, out.windows)
        alone[seed], _ = reach_alone(honest, (), job.run, model, out.accuracy, right)
    best = {h.name: alone[seed][h.name]["best alone"] for h in honest}
    return {name: [*(out.accuracy[name][kind] for kind in ("global", "personal")), best[name]] for name in best}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seeds", type=int, default=2)
    words.add_argument("--bad", type=int, default=3)
    words.add_argument("--attacks", nargs="*", choices=ATTACKS, default=ATTACKS)
    words.add_argument("--rules", nargs="*", choices=(NONE, *RULES), default=(NONE, "trimmed-mean"))
    options = words.parse_args()
    model = Model(compile_network("features", ["--input", "6,64", "--classes", str(CLASSES)], 0, print))
    fleet = [h for h in watch(SECONDS) if patient(h.name) in TUNED]
    print(f"{len(fleet)} wrists, {options.bad} of them bad, {options.seeds} seeds")
    print(
        f"{'attack':12} {'rule':14} {'global':>7} {'personal':>9} {'alone':>6}   personal - alone   > 2 worse  seconds"
    )
    alone: dict[int, Alone] = {}
    for attack in options.attacks:
        for rule in options.rules:
            began = time.monotonic()
            found = [losses(model, fleet, options.bad, attack, rule, seed, alone) for seed in range(options.seeds)]
            rows = np.array([np.mean([one[name] for one in found], 0) for name in found[0]])
            gain = rows[:, 1] - rows[:, 2]
            mean, low, high = 100 * np.array(interval(gain))
            cells = " ".join(f"{100 * value:8.1f}" for value in rows.mean(0))
            worse = f"{(gain < -COST).sum():2} of {len(gain)}"
            seconds = time.monotonic() - began
            print(
                f"{attack:12} {rule:14} {cells}   {mean:+5.1f} [{low:+.1f}, {high:+.1f}]   {worse} {seconds:8.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
