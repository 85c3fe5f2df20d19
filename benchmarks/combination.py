"""What each of the five steps adds where all are in one training: a factorial, on recorded wrist traces, in memory.

    python benchmarks/combination.py $AUSCULT_DATA/wrist [--labels 0.1] [--seeds 1] [--rounds 30] [--json FILE]

Five switches: FedSLR's nuclear prox, a private pretrained model (AugFL), outputs of companions that pull on the shared
model (FedAL), a discriminator between these outputs, first-B consensus between three hospitals (FedBCD). Half of the 32
combinations are run, those in which the product of the five signs is +1: no main effect is then mixed up with another,
or with what two switches do together. An effect is the mean over the runs with a switch less the mean over those
without; its interval is of what the five effects leave unexplained.

Eight volunteers, a share of their labels; of one more all windows are the private model's, and those of the three
volunteers with one class are the public inputs. Two devices are companions, with a depthwise-separable network.
First-B makes fewer phases in as many closes, so it has LONGER times as many, with the step size decaying so much more
slowly: "gradients" counts what a device of the shared model computes, which is the same in all rows to a few percent.
Messages take 0.1 to 1 s, so that hospitals are not ready at once. "outputs exchanged" counts those of companions and
shared model in all transfer stages: a hospital that misses a close of first-B sits them out. The weights of the prox,
the private model, the outputs and the discriminator have three trials each, of half the rounds, judged on validation
windows of the personalised models. Beside the combinations: none of the five, FedAvg with fine-tuning, and each
device alone, of the same devices, with as many gradients or more and three trials of the step each. "to 50 %" counts
megabytes until the personalised models, or FedAvg's fine-tuned ones, are that good on validation windows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from aggregator.kernels import kernels_for
from aggregator.private_model.table import give_regulariser, regulariser_of
from benchmarks import fleet as fleets
from benchmarks.combination_people import COMPANIONS, People, World
from benchmarks.fleet import Fleet, rank_of
from benchmarks.protocol import TUNING, Gradients, Point, Quiet, Results, cost_to, grid, markdown, mean_sd, tune
from edge_sdk.algebra.ensemble import log_probabilities
from edge_sdk.contract.loopback import ROOT, NetworkFaults
from edge_sdk.methods import METHODS
from edge_sdk.methods.settling.settings import Candidate, Settling
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.kernels import outputs
from edge_sdk.wire.codec.codec import Codec

SWITCHES = ("prox", "private model", "outputs", "discriminator", "consensus")
SHARED = {"eta_l": 0.05, "decay": 0.98, "eta_g": 10.0, "mu": 0.0003, "local_epochs": 2, "personal_epochs": 1}
OUTPUTS = {"tau": 5, "public_batch": 64, "batch": 32, "eta_l": 0.002, "eta_d": 0.001}
WEIGHTS = {
    "prox": (0.002, 0.005, 0.01),
    "private model": (0.0001, 0.0003, 0.001),
    "outputs": (0.0003, 0.001, 0.003),
    "discriminator": (0.03, 0.1, 0.3),
}
CLOUD_STEP = 3.0
LONGER = 1.5
"""Closes with first-B to those without, at as many gradients."""
NONE: frozenset[str] = frozenset()
BASELINES = {"FedAvg, fine-tuned": grid(eta_l=(0.02, 0.05, 0.1)), "alone": grid(rate=(0.0001, 0.0003, 0.001))}
LOCAL_STEPS = (100, 200, 400)
TARGET, STEP = 0.5, 3.0
"""Validation accuracy until which megabytes are counted; megabytes between two points of a curve."""

On = frozenset[str]


def half() -> list[On]:
    """16 of the 32 combinations: those with an odd number of switches on, so that all five on is one of them."""
    every = (frozenset(s for s, on in zip(SWITCHES, signs, strict=True) if on) for signs in product((0, 1), repeat=5))
    return [on for on in every if len(on) % 2 == 1]


def settings_of(on: On, weights: Mapping[str, float]) -> tuple[str, dict[str, Any]]:
    """Method and settings of a combination. Without consensus all hospitals' devices train one problem."""
    shared: dict[str, Any] = {**SHARED, "lam": weights["prox"] if "prox" in on else 0.0}
    shared["global_penalty"] = "nuclear" if "prox" in on else "none"
    if "consensus" in on:
        shared |= {"cloud": "first-b", "ready": 2, "cloud_step": CLOUD_STEP}
        shared["decay"] = SHARED["decay"] ** (1 / LONGER)
    al = weights["discriminator"] if "discriminator" in on else 0.0
    into = weights["outputs"] if "outputs" in on else 0.0
    name = "fedslr-b+fedal" if "consensus" in on else "fedslr+fedal"
    return name, {"shared": shared, "outputs": {**OUTPUTS, "al": al}, "into": into}


# A run ----------------------------------------------------------------------------------------------------------
def envs_of(world: World, people: People, method: Any, settings: Any, rounds: int, seed: int, private: float) -> Any:
    fleet, model = people.fleet, world.model
    common: dict[str, Any] = {"seed": seed, "rounds": rounds, "settings": settings, "classes": model.classes}
    plain = {"layout": model.layout, "theta0": model.theta0}
    counts = {h: n for h, d in fleet.tree.items() if (n := sum(name in COMPANIONS for name in d))}
    pull = regulariser_of(replace(world.private, weight=private), model.bundle, seed, "cpu") if private else None
    given = {**kernels_for(method.env, "cpu"), **give_regulariser(method.env, pull)}
    given |= {"counts": counts, "public": outputs.inputs(model, people.public)}
    envs = {ROOT: method.env(**common, **plain, sizes={h: len(d) for h, d in fleet.tree.items()}, **given)}
    for h, devices in fleet.tree.items():
        here = tuple(d for d in devices if d in COMPANIONS)
        envs[h] = method.env(**common, **plain, sizes=dict.fromkeys(devices, 1), companions=here)
    for holder in fleet.holders:
        own = plain | fleet.fields[holder.name]
        if holder.name in COMPANIONS:
            x, y, other = holder.train.x, holder.train.y, world.other
            own = {"layout": other.layout, "theta0": other.theta0, "grad_fn": other.grad_fn(x, y), "samples": len(y)}
            own |= {"apart": True, **outputs.device_kernels(other, x, y, people.public)}
        envs[holder.name] = method.env(**common, me=holder.name, **own)
    return envs


def play(world: World, on: On, weights: Mapping[str, float], rounds: int, seed: int) -> Any:
    """Accuracies on test windows, mean over devices; and that of the personalised models on validation windows."""
    people = world.people(seed)
    name, given = settings_of(on, weights)
    method = METHODS[name]
    settings = from_mapping(method.settings, given, name)
    private = weights["private model"] if "private model" in on else 0.0
    rounds = round(LONGER * rounds) if "consensus" in on else rounds
    envs, fleet, counter = envs_of(world, people, method, settings, rounds, seed, private), people.fleet, Gradients()
    ours = [h.name for h in fleet.holders if h.name not in COMPANIONS]
    envs |= {d: counter.through(envs[d]) for d in ours}
    net = Quiet(
        method,
        fleet.tree,
        envs,
        method.policies(settings, envs[ROOT].sizes, 1e9, 1e8, 0),
        seed,
        NetworkFaults(repeat=0.0),
    )
    net.codec = Codec(method.messages, layout=world.model.layout)
    curve: list[Point] = []

    def seen(state: Any, now: float) -> None:
        if seed != TUNING and net.bytes >= STEP * 1e6 * (len(curve) + 1):
            shown = method.show(net.nodes[ROOT].env, state)
            counter.paused = True
            models = {d: method.models(envs[d], net.nodes[d].record.state, shown)["personal"] for d in ours}
            counter.paused = False
            right = [fleets.accuracy(fleet, h, models[h.name], h.validation) for h in fleet.holders if h.name in ours]
            value = float(np.mean([r for r in right if r is not None]))
            curve.append(Point(len(curve) + 1, net.bytes / 1e6, value))

    net.seen = seen
    net.run()
    gradients, shown = counter.count / len(ours), method.show(net.nodes[ROOT].env, net.nodes[ROOT].record.state)
    found: dict[str, list[float]] = {}
    for h in fleet.holders:
        models = method.models(envs[h.name], net.nodes[h.name].record.state, shown)
        judged = world.other if h.name in COMPANIONS else world.model
        for kind, theta in models.items():
            for part in ("validation", "test"):
                p = getattr(h, part)
                if len(p.y):
                    own = np.unique(np.concatenate([h.train.y, h.validation.y]))
                    scores = log_probabilities(judged.predict(theta, p.x), own)
                    found.setdefault(f"{part} {kind}", []).append(float((scores.argmax(1) == p.y).mean()))
    w = next(m["global"] for d in fleet.holders if "global" in (m := method.models(
        envs[d.name], net.nodes[d.name].record.state, shown)))  # fmt: skip
    means = {kind: float(np.mean(values)) for kind, values in found.items()}
    told = [m for who, m in net.transcript.told if who == ROOT and isinstance(m, Progress)]
    means["exchanged"] = sum(m.sums.get("exchanged", 0.0) for m in told)
    means |= {"reached": cost_to(curve, TARGET)}
    return means | {"rank": rank_of(fleet, w), "megabytes": net.bytes / 1e6, "gradients": gradients}


# Baselines ------------------------------------------------------------------------------------------------------
def baseline(world: World, name: str, trial: Mapping[str, Any], rounds: int, seed: int) -> Any:
    """Accuracies of the devices that are no companions; those of the personal models on validation windows, too."""
    every = world.people(seed).fleet
    fleet = Fleet(every.model, [h for h in every.holders if h.name not in COMPANIONS])
    return (alone if name == "alone" else averaged)(fleet, trial, rounds, seed)


def averaged(fleet: Fleet, trial: Mapping[str, Any], rounds: int, seed: int) -> Any:
    """FedAvg: as many epochs in a round as the combination has for w, and those for p at the end."""
    epochs = {"local_epochs": SHARED["local_epochs"], "fine_tune_epochs": rounds * SHARED["personal_epochs"]}
    settings = {"decay": SHARED["decay"], "weighting": "uniform", **epochs, **trial}
    p = fleets.play(fleet, "fedavg", settings, rounds, seed, every=0 if seed == TUNING else 1)
    found: dict[str, Any] = {"reached": cost_to(p.curve, TARGET), "megabytes": p.megabytes, "rank": p.rank}
    found |= {"gradients": p.gradients * (1 + 1 / SHARED["local_epochs"])}
    for kind, models in (("global", p.shared), ("personal", p.own)):
        found |= {f"{part} {kind}": fleets.mean_accuracy(fleet, models, part) for part in ("validation", "test")}
    return found


def alone(fleet: Fleet, trial: Mapping[str, Any], rounds: int, seed: int) -> Any:
    """Settling's local models: Adam, with the number of steps that validation chooses."""
    s = Settling(local_steps=LOCAL_STEPS, **trial)
    walks = fleets.walks_of(fleet, s, seed, None)
    right = {n: fleets.count_right(fleet, Candidate(0, n, 1.0), walks, walks) for n in LOCAL_STEPS}
    n = max(right, key=right.__getitem__)
    tested = fleets.tested(fleet, Candidate(0, n, 1.0), walks, walks)
    share = right[n] / sum(len(h.validation.y) for h in fleet.holders)
    return {"validation personal": share, "test personal": float(np.mean(list(tested.values()))), "gradients": n}


def beside(world: World, rounds: int, seeds: int, kept: Results) -> dict[str, list[Any]]:
    """Name -> what each seed has reached."""
    found = {}
    for name, trials in BASELINES.items():

        def judge(trial: Mapping[str, Any], name: str = name) -> float:
            return float(baseline(world, name, trial, rounds // 2, TUNING)["validation personal"])

        best, scores = kept.get(f"{name}: trials", lambda trials=trials, judge=judge: tune(trials, judge))
        print(f"{name}: {best}, trials {[round(100 * s, 1) for s in scores]}", file=sys.stderr)
        found[name] = [kept.get(f"{name}: {s}", lambda n=name, b=best, s=s: baseline(world, n, b, rounds, s))
                       for s in range(seeds)]  # fmt: skip
    return found


# The tables -----------------------------------------------------------------------------------------------------
KINDS = {
    "test global": "global",
    "test personal": "personalised",
    "test companion": "companions",
    "rank": "rank",
    "exchanged": "outputs exchanged",
    "megabytes": "MB",
    "reached": f"to {TARGET:.0%}",
    "gradients": "gradients",
}
HEAD = ("", *KINDS.values())


def named(on: On) -> str:
    return " + ".join(s for s in SWITCHES if s in on) or "none"


def effect(found: Mapping[On, Sequence[Any]], switch: str, kind: str) -> str:
    """Mean with less mean without, and its 95 % interval: what the main effects leave unexplained is drawn anew."""
    if any(s[kind] is None for seeds in found.values() for s in seeds):
        return "-"
    factor = 100 if kind.startswith("test") else 1
    runs = [(on, factor * s[kind]) for on, seeds in found.items() for s in seeds]
    y = np.array([value for _, value in runs])
    signs = np.array([[1.0, *(1.0 if s in on else -1.0 for s in SWITCHES)] for on, _ in runs])
    fitted = signs @ (signs.T @ y / len(y))
    spread = (y - fitted) * np.sqrt(len(y) / (len(y) - signs.shape[1]))
    drawn = spread[np.random.default_rng(14).integers(len(y), size=(10_000, len(y)))]
    column = 2 * signs[:, 1 + SWITCHES.index(switch)] / len(y)
    low, high = np.quantile(column @ y + drawn @ column, (0.025, 0.975))
    return f"{column @ y:+.1f} [{low:+.1f}, {high:+.1f}]"


def row(name: str, seeds: Sequence[Any]) -> list[str]:
    return [name, *(mean_sd([s.get(k) for s in seeds], 1, 100 if k.startswith("test") else 1) for k in KINDS)]


def tuned(world: World, rounds: int, kept: Results) -> dict[str, float]:
    """Three trials for each weight, with that step and the prox on, and the outputs beside the discriminator."""
    chosen = {name: values[1] for name, values in WEIGHTS.items()}
    for name, values in WEIGHTS.items():
        on = frozenset({"prox", name} | ({"outputs"} if name == "discriminator" else set()))

        def judge(trial: Mapping[str, Any], on: On = on, known: Mapping[str, float] = chosen) -> float:
            return float(play(world, on, {**known, **trial}, rounds // 2, TUNING)["validation personal"])

        trials: list[dict[str, Any]] = [{name: v} for v in values]
        best, scores = kept.get(f"{name}: trials", lambda trials=trials, judge=judge: tune(trials, judge))
        chosen = {**chosen, **best}
        print(f"{best}, trials {[round(100 * s, 1) for s in scores]}", file=sys.stderr)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder of traces")
    parser.add_argument("--labels", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="results are kept there, and not computed again")
    options = parser.parse_args()
    kept = Results(options.json)
    with tempfile.TemporaryDirectory() as base:
        world = World(options.folder, options.labels, Path(base))
        weights = tuned(world, options.rounds, kept)
        found = {
            on: [kept.get(f"{named(on)}: {s}", lambda on=on, s=s: play(world, on, weights, options.rounds, s))
                 for s in range(options.seeds)]
            for on in (*half(), NONE)
        }  # fmt: skip
        others = beside(world, options.rounds, options.seeds, kept)
    several = {on: seeds for on, seeds in found.items() if on}
    print(markdown(HEAD, [[f"effect of {s}", *(effect(several, s, kind) for kind in KINDS)] for s in SWITCHES]))
    rows = [row(name, seeds) for name, seeds in ({named(on): s for on, s in found.items()} | others).items()]
    print(f"\n{weights}\n\n{markdown(HEAD, rows)}")


if __name__ == "__main__":
    main()
