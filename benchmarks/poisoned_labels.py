"""What devices with wrong labels, windows or uploads cost the others, where all of them label their own windows.

    python benchmarks/poisoned_labels.py [--seeds 2] [--bad 3] [--whole] [--attacks NAME ...] [--rules none median]

The run is that of `settling.py watch --recommended` on the network on features: 14 wrists, two labelled seconds of each
exercise, statistics of the fleet, three turns of labelling, settling, a forest on each device. The last `--bad` of them
are bad, one in each hospital:

label flip    its labels are 6 - y, those it trains on and those it judges by, so that all that it counts is wrong, too
one class     all its labels are 0
windows       its windows are a hundred times as large, so the fleet's statistics are of other things
sign flip, little, product, min-max, min-sum, drift    what it sends, as in attacks.py; its labels are right
counts, flip, late             what it counts, and later changes, as in lies.py

Printed are means over the honest devices and seeds (%): the global and the personal model on their own test parts, the
best that they reach alone (chosen by the validation samples of honest devices), the difference, and how many of them
the run costs more than two points against it. With `--whole` the bad devices are all of one hospital (five of 14), and
rules are over hospitals. Each result is a line of `--json FILE`, if that is given; what is there is not computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks.alone import reach_alone, right_of
from benchmarks.attacks import attacked
from benchmarks.holders import Holder, Part, patient, watch
from benchmarks.lies import LIES, lying
from benchmarks.outcomes import interval
from benchmarks.settling import TUNED
from benchmarks.settling_runs import HOSPITALS, Job, play
from edge_sdk.contract.method import Method
from edge_sdk.contract.run import Run
from edge_sdk.methods.robust.settings import NONE, RULES
from edge_sdk.methods.settling import own_line
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration import window_runs
from edge_sdk.nodes.configuration.settings import assigned, from_mapping
from edge_sdk.replay.planning.bundles import compile_network

CLASSES, SECONDS, LARGER = 7, 2.0, 100.0
OF_SAMPLES = ("label flip", "one class", "windows")
OF_UPLOADS = ("sign flip", "little", "product", "min-max", "min-sum", "drift")
ATTACKS = ("nobody", *OF_SAMPLES, *OF_UPLOADS, *LIES)
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


def run_of(model: Model, rule: str, seed: int, whole: bool = False) -> Run:
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
        robust={} if rule == NONE else {"hospitals" if whole else "rule": rule},
    )


def changed_by(attack: str, run: Run, names: frozenset[str]) -> Callable[[Method], Method]:
    """What an attack makes of the run's method; samples are poisoned elsewhere."""
    if attack in OF_UPLOADS:
        return lambda method: attacked(method, attack, names)
    if attack in LIES:
        return lambda method: lying(method, attack, names, from_mapping(Settling, run.settle, "run.settle"))
    return lambda method: method


Alone = dict[str, dict[str, float]]


@dataclass
class Bench:
    """A fleet of which some are bad.

    Attributes:
        bad: names of the bad ones. whole: they are a hospital, and rules are over hospitals.
        settle: other settings of the settling phase.
        alone: seed -> what devices reach alone, which no attack changes; found with the first run of a seed.
    """

    model: Model
    fleet: Sequence[Holder]
    bad: frozenset[str]
    whole: bool = False
    settle: Mapping[str, Any] = field(default_factory=dict)
    alone: dict[int, Alone] = field(default_factory=dict)

    def losses(self, attack: str, rule: str, seed: int) -> dict[str, list[float]]:
        """Honest device -> accuracy of its global and its personal model, and the best that it reaches alone."""
        every = [poisoned(h, attack) if attack in OF_SAMPLES and h.name in self.bad else h for h in self.fleet]
        run = run_of(self.model, rule, seed, self.whole)
        job = Job(replace(run, settle={**run.settle, **self.settle}), self.model, every)
        out, _ = play(job, changed_by(attack, job.run, self.bad))
        honest = [h for h in self.fleet if h.name not in self.bad]
        if seed not in self.alone:
            right = right_of({h.name: out.validation[h.name] for h in honest}, out.windows)
            self.alone[seed], _ = reach_alone(honest, (), job.run, self.model, out.accuracy, right)
        best = {h.name: self.alone[seed][h.name]["best alone"] for h in honest}
        return {name: [*(out.accuracy[name][kind] for kind in ("global", "personal")), best[name]] for name in best}


def row_of(attack: str, rule: str, found: Sequence[Mapping[str, Sequence[float]]]) -> str:
    """A line of the table. `found`: of each seed, as `losses` has it."""
    rows = np.array([np.mean([one[name] for one in found], 0) for name in found[0]])
    gain = rows[:, 1] - rows[:, 2]
    mean, low, high = 100 * np.array(interval(gain))
    cells = " ".join(f"{100 * value:8.1f}" for value in rows.mean(0))
    worse = f"{(gain < -COST).sum():2} of {len(gain)}"
    return (
        f"{attack:12} {rule:16} {cells}   {mean:+5.1f} [{low:+.1f}, {high:+.1f}]   {worse}   {100 * gain.min():+5.1f}"
    )


def bad_ones(fleet: Sequence[Holder], number: int, whole: bool) -> frozenset[str]:
    """The last so many, one in each hospital in turn; or all of the first hospital."""
    return frozenset(h.name for h in (fleet[::HOSPITALS] if whole else fleet[-number:]))


def parse() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seeds", type=int, default=2)
    words.add_argument("--bad", type=int, default=3)
    words.add_argument("--attacks", nargs="*", choices=ATTACKS, default=ATTACKS)
    words.add_argument("--rules", nargs="*", choices=(NONE, *RULES), default=(NONE, "trimmed-mean"))
    words.add_argument("--whole", action="store_true", help="the bad ones are a hospital; rules are over hospitals")
    words.add_argument("--settle", action="append", default=[], metavar="KEY=VALUE", help="such as keep_own=false")
    words.add_argument("--one-look", action="store_true", help="no device looks a second time before it falls back")
    words.add_argument("--json", type=Path)
    return words.parse_args()


def main() -> None:
    options = parse()
    own_line.FAR_AHEAD = -inf if options.one_look else own_line.FAR_AHEAD
    model = Model(compile_network("features", ["--input", "6,64", "--classes", str(CLASSES)], 0, print))
    fleet = [h for h in watch(SECONDS) if patient(h.name) in TUNED]
    bad = bad_ones(fleet, options.bad, options.whole)
    bench = Bench(model, fleet, bad, options.whole, assigned(options.settle))
    print(f"{len(fleet)} wrists, {len(bench.bad)} of them bad, {options.seeds} seeds")
    print(f"{'attack':12} {'rule':14}   global personal    alone   personal - alone   > 2 worse   most")
    kept = json.loads(options.json.read_text()) if options.json and options.json.is_file() else {}
    for attack in options.attacks:
        for rule in options.rules:
            for seed in range(options.seeds):
                key = f"{attack}/{rule}/{seed}"
                kept[key] = kept.get(key) or bench.losses(attack, rule, seed)
                if options.json:
                    options.json.write_text(json.dumps(kept))
            found = [kept[f"{attack}/{rule}/{seed}"] for seed in range(options.seeds)]
            print(row_of(attack, rule, found), flush=True)


if __name__ == "__main__":
    main()
