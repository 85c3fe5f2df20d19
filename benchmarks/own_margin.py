"""A device's last line (edge_sdk/methods/settling/own_line.py): rules beside it, chosen without test samples.

    python benchmarks/own_margin.py FILE watch [--attacks nobody label-flip min-max ...] [--seeds 5]
    python benchmarks/own_margin.py FILE wrist FOLDER --labels 0.1 0.25
    python benchmarks/own_margin.py FILE traces FOLDER --labels 0.1
    python benchmarks/own_margin.py FILE [--test]

The first three play recommended runs on the network on features, as settling.py and poisoned_labels.py play them, and
keep in FILE what the ways to predict say of each device's samples: what the fleet has chosen, what the device made
alone, and mixtures of both. What is in FILE is not played again. The last prints the tables of all that is there.

A rule decides by a device's validation samples, and by its training samples with models that were made of the
validation samples alone (the second look); some rules see how often both ways agree on windows without a label. It is
judged by the classes of these windows, which the benchmark knows and no device does: the share that is right, less that
of what the fleet has chosen, as means over the devices and seeds of a fleet, and how many devices lose more than two
points, in the mean over seeds, against the better of network and forest on their own labels ("trees"), as the fleet's
validation samples choose it. Below the rules, each fleet: never falling back, one look, and the product's rule. With
all labels no window is left to judge by. `--test` prints the same of test samples instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import numpy.typing as npt

from benchmarks import settling
from benchmarks.holders import Holder
from benchmarks.poisoned_labels import ATTACKS, OF_SAMPLES, bad_ones, changed_by, poisoned
from benchmarks.settling_runs import Job, play
from edge_sdk.algebra.ensemble import log_probabilities
from edge_sdk.contract.environment.samples import Labelled
from edge_sdk.methods.settling import method, own_line
from edge_sdk.methods.settling.equations import ensemble
from edge_sdk.nodes.configuration import window_runs

BAD, NOBODY, COST = 3, "nobody", 0.02
FLEET, NETWORK, TREES, HEDGE, AVERAGE = "fleet", "network", "trees", "hedge", "average"
TAUGHT = tuple(f"own {weight:g}" for weight in own_line.OWN_WEIGHTS)
OWN = (*TAUGHT, TREES)
FIRST, SECOND, LOOSE, TEST = "validation", "second", "loose", "test"
SURE, FAR = own_line.SURE, own_line.FAR_AHEAD

Floats = npt.NDArray[np.floating]
Part = dict[str, dict[str, list[float]]]
"""Of samples: way to predict -> loss (n,) and right (n,)."""
Device = dict[str, Any]
"""Part by name, and "agree": the share of unlabelled windows that fleet and own models call by one name."""
Devices = dict[str, Device]
Rule = Callable[[Device], str]
"""What the parts FIRST and SECOND say -> the way that the device takes."""


# Recording ------------------------------------------------------------------------------------------------------
def recorded(job: Job, attack: str, bad: frozenset[str]) -> Devices:
    """A run in which nobody falls back, and what all ways to predict say of honest devices' samples."""
    found, holders = Devices(), {h.name: h for h in job.fleet}

    def record(env: Any, s: Any, weight: float, make: own_line.Make) -> Mapping[str, Any]:
        models = make(env)
        if env.validation is not None and env.held_out is not None and env.me not in bad:
            found[env.me] = of_device(env, s, weight, make, holders[env.me])
        return models

    with mock.patch.object(method, "behind_own_line", record):
        play(job, changed_by(attack, job.run, bad))
    return found


def of_device(env: Any, s: Any, weight: float, make: own_line.Make, holder: Holder) -> Device:
    """What is kept of one device."""
    loose, parts = holder.unlabelled, {FIRST: env.validation, TEST: env.held_out}
    if loose is not None and len(loose.y):
        parts[LOOSE] = Labelled(loose.y, env.own.logits, env.own.unlabelled)
    said = ways(env, s, weight, make, parts)
    if env.swapped is not None:
        other = env.swapped(env.untaught or env)
        parts[SECOND] = other.validation
        said |= ways(other, s, weight, make, {SECOND: other.validation})
    found: Device = {name: {way: outcome(p, parts[name].labels) for way, p in said[name].items()} for name in said}
    if LOOSE in said:
        found["agree"] = float((said[LOOSE][FLEET].argmax(1) == said[LOOSE][OWN[0]].argmax(1)).mean())
    return found


def ways(
    env: Any, s: Any, weight: float, make: own_line.Make, parts: Mapping[str, Labelled]
) -> dict[str, dict[str, Floats]]:
    """Part -> way to predict -> log-probabilities (samples, classes)."""
    models, known = make(env), ensemble(env, s, weight).classes
    own = own_line.own_ways(env, s, models)
    pooled = {FLEET: (models, weight), **dict(zip(TAUGHT, own, strict=False)), TREES: own[-1]}
    pooled[HEDGE] = {**models, own_line.FOREST: own[0][0][own_line.FOREST]}, 0.75

    def of(judged: Labelled) -> dict[str, Floats]:
        found = {way: own_line.log_predicted(judged, some, w, known) for way, (some, w) in pooled.items()}
        found[AVERAGE] = np.log(np.exp(found[FLEET]) / 2 + np.exp(found[OWN[0]]) / 2 + 1e-12)
        found[NETWORK] = log_probabilities(judged.logits(models["local"]), known)
        return found

    return {name: of(judged) for name, judged in parts.items()}


def outcome(log_p: Floats, labels: Any) -> dict[str, list[float]]:
    """Bounded losses, and which samples are right."""
    loss = -np.log(np.maximum(np.exp(log_p[np.arange(len(labels)), labels]), own_line.FLOOR))
    return {"loss": loss.round(4).tolist(), "right": (log_p.argmax(1) == labels).astype(int).tolist()}


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


# Rules ----------------------------------------------------------------------------------------------------------
def ahead(device: Device, part: str, some: Sequence[str] = OWN) -> Floats:
    """By how much less some ways lose than the fleet's choice does, in sums over a part; 0: there is no such part."""
    said = device.get(part, {})
    return np.array([np.sum(said[FLEET]["loss"]) - np.sum(said[w]["loss"]) if said else 0.0 for w in some])


def taken(sums: Floats, margin: float, some: Sequence[str] = OWN) -> str:
    best = own_line.best_alone(-sums, margin) if some == OWN else int(sums.argmax())
    return some[best] if sums[best] > margin else FLEET


def one_look(margin: float, some: Sequence[str] = OWN) -> Rule:
    return lambda device: taken(ahead(device, FIRST, some), margin, some)


def both_looks(margin: float, alike: bool = False, some: Sequence[str] = OWN) -> Rule:
    """`alike`: each sample counts; else those of the second look count as no more than those of the first."""

    def rule(device: Device) -> str:
        n, m = (len(device.get(part, {}).get(FLEET, {}).get("loss", ())) for part in (FIRST, SECOND))
        share = 1.0 if alike or not m else min(1.0, n / m)
        return taken(ahead(device, FIRST, some) + share * ahead(device, SECOND, some), margin, some)

    return rule


def both_unless_far(margin: float, far: float = FAR) -> Rule:
    """A second look where the first one does not say no by more than `far`."""
    second = both_looks(margin)
    return lambda device: second(device) if ahead(device, FIRST).max() >= -far else FLEET


def second_if_unsure(margin: float, far: float = FAR, some: Sequence[str] = OWN) -> Rule:
    """The product's, with 4: a second look where the first says neither yes nor, by more than `far`, no."""
    second = both_looks(margin, some=some)

    def rule(device: Device) -> str:
        first = one_look(SURE, some)(device)
        return second(device) if first == FLEET and ahead(device, FIRST, some).max() >= -far else first

    return rule


def hedged(way: str, low: float = -3.0) -> Rule:
    """Both together where neither is ahead by enough."""

    def rule(device: Device) -> str:
        first = one_look(SURE)(device)
        return way if first == FLEET and ahead(device, FIRST).max() > low else first

    return rule


def where_they_differ(share: float) -> Rule:
    """A margin of -2 in place of 2 where both agree on less than a share of the windows without a label."""
    return lambda device: one_look(-SURE if device.get("agree", 1.0) < share else SURE)(device)


RULES: Mapping[str, Rule] = {
    "never": lambda device: FLEET,
    **{f"one look, {m:g}": one_look(m) for m in (-2.0, 0.0, 2.0, 4.0, 6.0)},
    "second only, 2": lambda device: taken(ahead(device, SECOND), SURE),
    "both, each sample, 2": both_looks(2.0, alike=True),
    **{f"both, {m:g}": both_looks(m) for m in (0.0, 2.0, 4.0)},
    **{f"both unless far, {m:g}": both_unless_far(m) for m in (0.0, 1.0, 2.0, 3.0, 4.0)},
    **{f"second if unsure, {m:g}": second_if_unsure(m) for m in (0.0, 1.0, 2.0, 4.0, 6.0)},
    "without trees, 4": second_if_unsure(4.0, some=TAUGHT),
    "trees if best, 4": second_if_unsure(4.0, some=(TREES, *TAUGHT)),
    "with network, 4": second_if_unsure(4.0, some=(*OWN, NETWORK)),
    **{f"both unless {far:g} ahead, 2": both_unless_far(2.0, far) for far in (2.0, 3.0, 8.0)},
    "personal, own forest": hedged(HEDGE),
    "average of both": hedged(AVERAGE),
    "agreement below 0.8": where_they_differ(0.8),
}


# Judging --------------------------------------------------------------------------------------------------------
def right(device: Device, part: str, way: str) -> float:
    return float(np.mean(device[part][way]["right"]))


def alone(devices: Devices) -> str:
    """The better of network and forest on own labels, by the validation samples of all."""
    counts = {way: sum(sum(d[FIRST][way]["right"]) for d in devices.values()) for way in (TREES, NETWORK)}
    return max(counts, key=lambda way: counts[way])


def cell(runs: Sequence[Devices], part: str, rule: Rule) -> tuple[float, int, float]:
    """Mean gain of a rule; how many devices lose more than COST against being alone; the worst one's difference."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for devices in runs:
        best = alone(devices)
        for name, device in devices.items():
            if part in device:
                reached = right(device, part, rule(device))
                rows.setdefault(name, []).append(
                    (reached - right(device, part, FLEET), reached - right(device, part, best))
                )
    means = np.array([np.mean(of_seeds, 0) for of_seeds in rows.values()]).reshape(-1, 2)
    if not len(means):
        return 0.0, 0, 0.0
    return 100 * float(means[:, 0].mean()), int((means[:, 1] < -COST).sum()), 100 * float(means[:, 1].min())


def show(kept: Mapping[str, Sequence[Devices]], part: str) -> None:
    """Prints for each rule: the mean gain over honest and over attacked fleets, and devices that lose; then fleets."""
    print(f"\n{part}: gain in points (honest fleets, attacked), devices that lose more than two in each, the worst")
    for name, rule in RULES.items():
        cells = {title: cell(runs, part, rule) for title, runs in kept.items()}
        kinds = [[c for title, c in cells.items() if title.endswith(NOBODY) == honest] for honest in (True, False)]
        gains = [f"{np.mean([c[0] for c in some]):+6.2f}" for some in kinds if some]
        lost = [f"{sum(c[1] for c in some):3}" for some in kinds if some]
        worst = min(c[2] for c in cells.values())
        print(f"{name:24} {' '.join(gains)}   {' '.join(lost)}   {worst:+6.1f}")
    product = RULES[f"second if unsure, {2 * SURE:g}"]
    for title, runs in kept.items():
        some = [cell(runs, part, rule) for rule in (RULES["never"], one_look(SURE), product)]
        print(f"{title[:52]:54}" + "   ".join(f"{gain:+6.2f}, {lost:2}, {worst:+6.1f}" for gain, lost, worst in some))


def parse() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("file", type=Path)
    words.add_argument("data", choices=("wrist", "traces", "watch"), nargs="?")
    words.add_argument("folder", type=Path, nargs="?")
    words.add_argument("--attacks", nargs="*", choices=ATTACKS, default=[NOBODY], help="watch only")
    words.add_argument("--labels", type=float, nargs="*", default=[1.0])
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--test", action="store_true")
    options = words.parse_args()
    fixed = {"recommended": True, "newcomers": False, "rounds": None, "set": [], "settle": [], "augment": []}
    fixed |= {"network": window_runs.NETWORKS[0], "method": window_runs.METHOD, "seconds": 2.0}
    return argparse.Namespace(**vars(options), **fixed)


def main() -> None:
    options = parse()
    if options.data:
        return play_all(options)
    show(read(options.file), TEST if options.test else LOOSE)


if __name__ == "__main__":
    main()
