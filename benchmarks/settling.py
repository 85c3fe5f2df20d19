"""Personal models after settling beside models trained alone, on recorded traces; and what newcomers reach.

    python benchmarks/settling.py wrist FOLDER [--labels 0.1 0.25 1.0] [--seeds 5]
    python benchmarks/settling.py traces FOLDER --recommended [--labels 0.1 1.0] [--seeds 5] [--newcomers]
    python benchmarks/settling.py watch [--seconds 2] [--seeds 5] [--newcomers]
        [--recommended]
        [--method fedslr] [--rounds N] [--set KEY=VALUE] [--settle KEY=VALUE] [--augment KEY=VALUE] [--json FILE]

The roles are those of the product, over the network in memory, with the kernels of the bundle. Windows are split in
three by whole recordings: training, validation, test. Every choice (steps, weight of the local model) is made by the
fleet on validation; the test part is judged once, with the final models. "Alone, network" is the local model that
settling has beside the personal one: the same optimiser, batches, augmentation and classes, and its steps chosen on
validation.
"Best alone" is the best of that, a linear model and trees on features, chosen on validation by the fleet (alone.py).

wrist: the volunteers with two classes or more. `--labels`: the share of each class's training and validation windows
that has labels, drawn anew with each seed. Newcomers: two folds, half of the smaller volunteers each, which the fleet
has not seen; they have one labelled recording of each class.
traces: any folder of traces, by the same rules as wrist; nothing is tuned on it. Newcomers: every fourth device, with
one labelled recording of each class.
watch: both wrists of ten physiotherapy patients, seven exercises (`auscult traces watch`). Labelled are so many seconds
of each exercise to train on and as many to choose by. The fleet is of the patients TUNED; those of NEW are newcomers.

Accuracies are means over devices. Intervals: 95 %, Student's t over devices, after the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.holders import one_recording, patient, people, watch
from benchmarks.outcomes import Outcome, show
from benchmarks.settling_runs import Job, run
from edge_sdk.contract.run import Run
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration import window_runs
from edge_sdk.nodes.configuration.settings import assigned
from edge_sdk.replay.planning.bundles import compile_network

CHOOSE = "choose"
TUNED, NEW = (1, 2, 4, 5, 7, 8, 10), (3, 6, 9)
FOLDS = (("f3", "m1", "m4", "m7"), ("f4", "m3", "m6", "m8"))
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "wrist": {"eta_l": 0.05, "decay": 0.99},
    "watch": {"eta_l": 0.05, "decay": 0.995, "batch": 0, "local_epochs": 5},
}
"""Settings of every method, chosen on validation samples with seed 0."""
FEDSLR: Mapping[str, Mapping[str, Any]] = {
    "wrist": {"eta_g": 10.0, "global_penalty": "none", "lam": 0.0, "personal_epochs": 0},
    "watch": {"eta_g": 100.0, "global_penalty": "nuclear", "lam": 0.001, "personal_epochs": 0},
}
SETTLE: Mapping[str, Mapping[str, Any]] = {
    "wrist": {},
    "watch": {"batch": 0, "steps": [0, 25, 50, 100, 200], "local_steps": [100, 200, 400]},
}
ROUNDS = {"wrist": 90, "watch": 75}
AUGMENT: Mapping[str, Mapping[str, float]] = {"wrist": {}, "watch": {"rotation": 0.25, "scale": 0.15, "noise": 0.1}}


def run_of(options: argparse.Namespace, model: Model, classes: Sequence[str], seed: int) -> Run:
    """The run of one seed; `--recommended`: what a replay takes by itself, else the settings of this file."""
    if options.recommended:
        on_features = options.network in (CHOOSE, *window_runs.NETWORKS)
        settings: Mapping[str, Any] = {**window_runs.TRAINING, **window_runs.BY_METHOD.get(options.method, {})}
        settle: Mapping[str, Any] = {**window_runs.SETTLE, "statistics": on_features}
        augment, rounds = window_runs.changes_of(model.input_shape), window_runs.ROUNDS
    else:
        own = FEDSLR[options.data] if options.method.startswith("fedslr") else {}
        settings, settle, augment = {**DEFAULTS[options.data], **own}, SETTLE[options.data], AUGMENT[options.data]
        rounds = ROUNDS[options.data]
    return Run(
        id="settling",
        method=options.method,
        settings={**settings, **assigned(options.set)},
        rounds=options.rounds or rounds,
        seed=seed,
        bundle=model.sha256,
        classes=tuple(classes),
        settle={"optimiser": "adam", **settle, **assigned(options.settle)},
        augment={**augment, **assigned(options.augment)},
    )


def compiled(network: str, size: Sequence[str]) -> Model:
    return Model(compile_network(network, size, 0, print))


def jobs(options: argparse.Namespace) -> dict[str, list[Job]]:
    """Title of a table -> its runs."""
    found: dict[str, list[Job]] = {}
    network, *others = window_runs.NETWORKS if options.network == CHOOSE else [options.network]
    if options.data == "watch":
        every, size = watch(options.seconds), ["--input", "6,64", "--classes", "7"]
        model, larger = compiled(network, size), {name: compiled(name, size) for name in others}
        fleet = [h for h in every if patient(h.name) in TUNED]
        new = [h for h in every if patient(h.name) in NEW] if options.newcomers else []
        names = [str(k) for k in range(7)]
        title = f"watch, {options.seconds:g} labelled seconds, {options.method}"
        return {title: [Job(run_of(options, model, names, s), model, fleet, new, larger) for s in range(options.seeds)]}
    if options.data == "traces":
        return jobs_of_traces(options, network, others)
    shipped = Path(__file__).parents[1] / "models" / "shipped" / f"{network}.bundle"
    size = ["--input", "3,64", "--classes", "14"]
    model = Model(shipped) if shipped.is_file() else compiled(network, size)
    larger = {name: compiled(name, size) for name in others}
    names = [str(k) for k in range(model.classes)]
    for labels in options.labels:
        for seed in range(options.seeds):
            every = people(options.folder, labels, seed)
            job = Job(run_of(options, model, names, seed), model, every, larger=larger)
            found.setdefault(f"wrist, {labels:.0%} of labels, {options.method}", []).append(job)
    for seed in range(options.seeds) if options.newcomers else ():
        for fold in FOLDS:
            every = people(options.folder, 1.0, seed)
            fleet = [h for h in every if h.name not in fold]
            new = [replace(h, train=one_recording(h.train, seed)) for h in every if h.name in fold]
            job = Job(run_of(options, model, names, seed), model, fleet, new, larger)
            found.setdefault(f"wrist, newcomers with one recording per class, {options.method}", []).append(job)
    return found


def jobs_of_traces(options: argparse.Namespace, network: str, others: Sequence[str]) -> dict[str, list[Job]]:
    """The runs of any folder of traces."""
    traces = load_folder(options.folder)
    size = ["--input", f"{len(traces[0].channels)},64", "--classes", str(len(traces[0].classes))]
    model, larger = compiled(network, size), {name: compiled(name, size) for name in others}
    found: dict[str, list[Job]] = {}
    for labels in options.labels:
        for seed in range(options.seeds):
            every = people(options.folder, labels, seed)
            joins = range(3, len(every), 4) if options.newcomers else ()
            fleet = [h for k, h in enumerate(every) if k not in joins]
            new = [replace(every[k], train=one_recording(every[k].train, seed)) for k in joins]
            job = Job(run_of(options, model, traces[0].classes, seed), model, fleet, new, larger)
            title = f"{options.folder.name}, {labels:.0%} of labels, {options.method}"
            found.setdefault(title, []).append(job)
    return found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("data", choices=("wrist", "traces", "watch"))
    words.add_argument("folder", type=Path, nargs="?")
    words.add_argument("--labels", type=float, nargs="*", default=[0.1, 0.25, 1.0])
    words.add_argument("--seconds", type=float, default=2.0)
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--method", help="(fedslr)")
    words.add_argument("--rounds", type=int)
    words.add_argument("--network", help="of the zoo, or choose: as a replay does (wrist; with --recommended: choose)")
    words.add_argument(
        "--recommended", action="store_true", help="what a replay does that is told nothing but its data"
    )
    words.add_argument("--newcomers", action="store_true")
    for key in ("set", "settle", "augment"):
        words.add_argument(f"--{key}", action="append", default=[], metavar="KEY=VALUE")
    words.add_argument("--json", type=Path, help="results are kept there; those that are there are not computed again")
    options = words.parse_args()
    if options.data == "traces" and not options.recommended:
        words.error("traces: with --recommended; other settings are chosen for one data set")
    options.network = options.network or (CHOOSE if options.recommended else "wrist")
    options.method = options.method or (window_runs.METHOD if options.recommended else "fedslr")
    there = options.json is not None and options.json.is_file()
    tables: dict[str, Any] = json.loads(options.json.read_text()) if there else {}
    for title, some in jobs(options).items():
        rows = tables.setdefault(title, [])
        for job in some[len(rows) :]:
            rows.append(vars(run(job)))
            if options.json:
                options.json.write_text(json.dumps(tables, indent=1))
        show(title, [Outcome(**row) for row in rows[: len(some)]])


if __name__ == "__main__":
    main()
