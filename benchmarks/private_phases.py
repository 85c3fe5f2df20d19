"""Runs with noise, with and without phases: models of many generated persons, in memory.

    python benchmarks/private_phases.py [--devices 180] [--rounds 15] [--seeds 1] [--epsilons inf 8 2] [--labels 0.1]

Persons are those of `auscult traces synth` (accelerations of a wrist, generated, not recorded); of each class a share
of the windows has labels. Phases are those of a replay by itself: statistics of features, three turns of labelling,
settling with a forest. Without them a run is what one with noise was before: FedAvg on the network of features, or on
the convolutional one, and its global model. There are three hospitals, and all devices of one are a cohort. Epsilon is
that of the whole run at delta 1e-5, phases counted. Accuracies are means over devices on test windows, and over seeds;
"alone" is the network that a device trains by itself; the last line is a forest that labels its own device's windows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks.holders import Holder, people
from benchmarks.protocol import markdown
from benchmarks.self_labelled import BY_ITSELF, by_itself
from benchmarks.settling import compiled
from benchmarks.settling_runs import HOSPITALS, Counting, Job, env_of, judged
from edge_sdk.contract.loopback import ROOT, NetworkFaults
from edge_sdk.contract.run import Run
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.methods.settling.method import Choice
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.methods.shared.evaluation.spent import PrivateReport
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration import window_runs
from edge_sdk.nodes.configuration.assembly import make_env, method_of
from edge_sdk.nodes.configuration.settings import assigned, from_mapping
from edge_sdk.replay.traces.synth import write_traces

HEAD = ("epsilon", "network", "phases", "global", "personal", "alone")


def run_of(
    given: argparse.Namespace, model: Model, classes: Sequence[str], seed: int, epsilon: float, phases: bool
) -> Run:
    settings = {**window_runs.training_of("fedavg", given.rounds), "weighting": "uniform", **assigned(given.set)}
    settle = {**window_runs.settle_of(epsilon < inf), "statistics": True, **assigned(given.settle)}
    privacy = {"clip": given.clip, "epsilon": epsilon, "cohort": given.devices // HOSPITALS}
    return Run(
        id="phases", method="fedavg", settings=settings, rounds=given.rounds, seed=seed, bundle=model.sha256,
        classes=tuple(classes), settle=settle if phases else {}, privacy=privacy if epsilon < inf else {},
        augment=window_runs.changes_of((3, 64)),
    )  # fmt: skip


def play(run: Run, model: Model, fleet: Sequence[Holder]) -> tuple[dict[str, float], list[str]]:
    """Mean accuracy of each model on test windows, and what was chosen, in words."""
    job, method, names = Job(run, model, fleet), method_of(run), [h.name for h in fleet]
    tree = {f"h{k}": tuple(names[k::HOSPITALS]) for k in range(HOSPITALS)}
    common = (run, model.layout, model.theta0)
    envs = {ROOT: make_env(*common, sizes={h: len(d) for h, d in tree.items()})}
    envs |= {h: make_env(*common, sizes=dict.fromkeys(d, 1)) for h, d in tree.items()}
    envs |= {h.name: env_of(job, h) for h in fleet}
    policies = method.policies(envs[ROOT].settings, envs[ROOT].sizes, 1e9, 1e8, 0)
    trace = Counting(method, tree, envs, policies, faults=NetworkFaults(repeat=0.0)).run()
    told = {name: m for name, m in trace.told if isinstance(m, Models)}
    found = [
        judged(model, m, h.test) if (m := told[h.name]).ensemble else {"global": right(model, m.models["global"], h)}
        for h in fleet
    ]
    words = [m.to_sentence() for _, m in trace.told if isinstance(m, (Choice, LabelChoice, PrivateReport))]
    return {name: float(np.mean([f[name] for f in found])) for name in found[0]}, words


def forests_alone(given: argparse.Namespace, folder: Path) -> str:
    """Mean accuracy of a forest that labels its device's own windows, without any federation."""
    classes, found = load_folder(folder)[0].classes, list[float]()
    model = compiled("features", ["--input", "3,64", "--classes", str(len(classes))])
    for seed in range(given.seeds):
        fleet, run = people(folder, given.labels, seed), run_of(given, model, classes, seed, inf, True)
        job = Job(run, model, fleet)
        envs = {h.name: replace(env_of(job, h), me=h.name) for h in fleet}
        tests = {h.name: (h.test.x, h.test.y) for h in fleet}
        settling = from_mapping(Settling, run.settle, "run.settle")
        every = by_itself(settling, envs, [h.name for h in fleet], tests, len(classes))
        found.append(100 * float(np.mean([one[BY_ITSELF] for one in every.values()])))
    return f"{np.mean(found):.1f}"


def right(model: Model, theta: Any, holder: Holder) -> float:
    return float((model.predict(theta, holder.test.x).argmax(1) == holder.test.y).mean())


def row(given: argparse.Namespace, folder: Path, network: str, epsilon: float, phases: bool) -> list[str]:
    classes = load_folder(folder)[0].classes
    model = compiled(network, ["--input", "3,64", "--classes", str(len(classes))])
    every: list[dict[str, float]] = []
    for seed in range(given.seeds):
        run = run_of(given, model, classes, seed, epsilon, phases)
        found, words = play(run, model, people(folder, given.labels, seed))
        every.append(found)
        print(f"{network}, epsilon {epsilon:g}, seed {seed}:", *words, sep="\n    ", file=sys.stderr)
    told = [mean_of(every, name) for name in ("global", "personal", "alone")]
    found_row = ["none" if epsilon == inf else f"{epsilon:g}", network, "yes" if phases else "no", *told]
    print(markdown(HEAD, [found_row]), file=sys.stderr, flush=True)
    return found_row


def mean_of(every: Sequence[Mapping[str, float]], name: str) -> str:
    found = [100 * one[name] for one in every if name in one]
    return f"{np.mean(found):.1f}" if found else ""


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--devices", type=int, default=180)
    words.add_argument("--minutes", type=float, default=4.0)
    words.add_argument("--rounds", type=int, default=15)
    words.add_argument("--seeds", type=int, default=1)
    words.add_argument("--labels", type=float, default=0.1)
    words.add_argument("--clip", type=float, default=1.0)
    words.add_argument("--epsilons", type=float, nargs="+", default=(inf, 8.0, 2.0))
    words.add_argument("--rows", nargs="+", default=("wrist", "features", "phases"))
    for key in ("set", "settle"):
        words.add_argument(f"--{key}", action="append", default=[], metavar="KEY=VALUE")
    given, began, rows = words.parse_args(), time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        write_traces(Path(folder), given.devices, seed=7, minutes=given.minutes)
        alone = forests_alone(given, Path(folder))
        print(f"{BY_ITSELF}: {alone}", file=sys.stderr, flush=True)
        for epsilon in given.epsilons:
            for name in given.rows:
                network = "wrist" if name == "wrist" else "features"
                rows.append(row(given, Path(folder), network, epsilon, name == "phases"))
    print(markdown(HEAD, rows))
    print(f"{BY_ITSELF}: {alone}")
    print(f"{given.devices} devices, {given.rounds} rounds, {given.seeds} seeds: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
