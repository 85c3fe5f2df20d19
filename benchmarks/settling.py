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

Accuracies are means over devices. Intervals: 95 %, from 10,000 bootstrap draws of devices, after the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks.alone import reach_alone, right_of
from benchmarks.both_alone import Own, mixed_alone
from benchmarks.holders import Holder, Part, one_recording, patient, people, watch
from benchmarks.outcomes import Outcome, show
from benchmarks.self_labelled import by_itself
from edge_sdk.algebra.ensemble import combined, log_probabilities, smoothed
from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.contract.method import UP, Method, NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.data.traces import load_folder
from edge_sdk.methods.settling.method import Choice
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration import window_runs
from edge_sdk.nodes.configuration.assembly import augmentation_of, make_env, method_of, settings_of
from edge_sdk.nodes.configuration.settings import assigned, from_mapping
from edge_sdk.nodes.kernels import plain
from edge_sdk.nodes.kernels.family import DeviceParts
from edge_sdk.nodes.kernels.own_windows import features_of
from edge_sdk.replay import network_choice
from edge_sdk.replay.bundles import compile_network
from edge_sdk.wire.codec.codec import Codec

HOSPITALS, CHOOSE = 3, "choose"
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


# A run ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Job:
    """One run: what is to be run, on whom; `larger`: networks that are tried beside its model, by name."""

    run: Run
    model: Model
    fleet: Sequence[Holder]
    newcomers: Sequence[Holder] = ()
    larger: Mapping[str, Model] = field(default_factory=dict)


class Counting(Loopback):
    """Keeps no record of messages but their size."""

    sizes = 0
    codec: Codec | None = None

    def commit(self, name: str, done: Any, now: float) -> None:
        super().commit(name, done, now)
        if self.codec is not None:
            self.sizes += sum(self.size(m) for _, _, m in self.transcript.crossed)
        for record in (
            self.transcript.crossed,
            self.transcript.states,
            self.transcript.closed,
            self.transcript.asked,
            self.transcript.ran,
        ):
            record.clear()

    def size(self, message: Any) -> int:
        assert self.codec is not None
        return len(self.codec.encode(message))


def env_of(job: Job, holder: Holder) -> NodeEnv:
    loose = holder.unlabelled
    parts = DeviceParts(
        run=job.run,
        settings=settings_of(job.run),
        whose=holder.name,
        model=job.model,
        x=holder.train.x,
        y=holder.train.y,
        held_out=(holder.test.x, holder.test.y),
        validation=(holder.validation.x, holder.validation.y),
        unlabelled=None if loose is None else (loose.x, loose.recording),
        augment=augmentation_of(job.run),
    )
    return make_env(job.run, job.model.layout, job.model.theta0, **plain.for_device(parts))


def run(job: Job) -> Outcome:
    """Plays the run, judges everybody's models on the test part, and finds out what devices reach alone."""
    began = time.monotonic()
    network, job = with_chosen_network(job)
    out, envs = play(job)
    out.network = network
    right = right_of(out.validation, out.windows)
    rows, out.alone = reach_alone(job.fleet, job.newcomers, job.run, job.model, out.accuracy, right)
    for name, found in rows.items():
        out.accuracy[name] |= found
    for more in (self_labelled(job, envs), mixed(job, envs, out.models)):
        for name, found in more.items():
            out.accuracy[name] |= found
    out.models = {}
    out.seconds = time.monotonic() - began
    return out


def with_chosen_network(job: Job) -> tuple[str, Job]:
    """The name of the network that a replay would choose, and the job with it: by short runs, on validation samples."""
    models = {window_runs.NETWORKS[0]: job.model, **job.larger}
    settle = {**job.run.settle, **network_choice.SETTLE}
    trials, scores = {}, {}
    for name, model in models.items() if job.larger else ():
        trials[name] = replace(job, run=replace(job.run, bundle=model.sha256), model=model, newcomers=())
        short = replace(trials[name].run, rounds=network_choice.ROUNDS, settle=settle)
        out, _ = play(replace(trials[name], run=short))
        scores[name] = {device: found["personal"] for device, found in out.validation.items()}
    if not scores:
        return "", job
    name = network_choice.best_of(scores)
    return name, replace(trials[name], newcomers=job.newcomers)


def play(job: Job) -> tuple[Outcome, Mapping[str, NodeEnv]]:
    """The run, everybody's models judged on the test part; and the envs of its nodes."""
    method, out = method_of(job.run), Outcome()
    names = [h.name for h in job.fleet]
    tree = {f"h{k}": tuple(names[k::HOSPITALS]) for k in range(min(HOSPITALS, len(names)))}
    common = (job.run, job.model.layout, job.model.theta0)
    envs = {ROOT: make_env(*common, sizes={h: len(d) for h, d in tree.items()})}
    envs |= {h: make_env(*common, sizes=dict.fromkeys(d, 1)) for h, d in tree.items()}
    envs |= {h.name: env_of(job, h) for h in job.fleet}
    policies = method.policies(envs[ROOT].settings, envs[ROOT].sizes, 1e9, 1e8, 0)
    net = Counting(method, tree, envs, policies, faults=NetworkFaults(repeat=0.0))
    net.codec = Codec(method.messages, layout=job.model.layout)
    trace = net.run()
    told = {name: m for name, m in trace.told if isinstance(m, Models)}
    out.choice = next(vars(m) for _, m in trace.told if isinstance(m, Choice))
    out.labels = [m.to_sentence() for _, m in trace.told if isinstance(m, LabelChoice)]
    shown = method.show(net.nodes[ROOT].env, net.nodes[ROOT].record.state)
    for holder in job.fleet:
        out.accuracy[holder.name] = judged(job.model, told[holder.name], holder.test)
        out.validation[holder.name] = judged(job.model, told[holder.name], holder.validation)
        out.windows[holder.name] = len(holder.validation.y)
        out.models[holder.name] = told[holder.name].models
    for holder in job.newcomers:
        models = newcomer(job, method, holder, shown)
        out.accuracy[holder.name + "*"] = judged(job.model, models, holder.test)
        out.models[holder.name + "*"] = models.models
    out.density = float(np.mean([np.mean(m.models["personal"] != m.models["global"]) for m in told.values()]))
    out.bytes = net.sizes
    return out, envs


def self_labelled(job: Job, envs: Mapping[str, NodeEnv]) -> dict[str, dict[str, float]]:
    """The row of forests that label their own windows, without any federation."""
    settling = from_mapping(Settling, job.run.settle, "run.settle")
    devices = {h.name: replace(envs[h.name], me=h.name) for h in job.fleet}
    devices |= {f"{h.name}*": replace(env_of(job, h), me=h.name) for h in job.newcomers}
    tests = {h.name: (h.test.x, h.test.y) for h in job.fleet}
    tests |= {f"{h.name}*": (h.test.x, h.test.y) for h in job.newcomers}
    return by_itself(settling, devices, [h.name for h in job.fleet], tests, len(job.run.classes))


def mixed(job: Job, envs: Mapping[str, NodeEnv], models: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The row of each device's own network and own forest mixed, without any federation."""
    settling = from_mapping(Settling, job.run.settle, "run.settle")
    every = [(h.name, h, envs[h.name]) for h in job.fleet] + [(f"{h.name}*", h, env_of(job, h)) for h in job.newcomers]
    devices = {
        name: Own(
            replace(env, me=h.name), models[name]["local"], (h.validation.x, h.validation.y), (h.test.x, h.test.y)
        )
        for name, h, env in every
    }
    return mixed_alone(settling, job.model, devices, [h.name for h in job.fleet])


def pair(part: Part) -> tuple[Any, Any]:
    return part.x, part.y


def newcomer(job: Job, method: Method, holder: Holder, shown: Any) -> Models:
    """What a device makes of the last words of a run that it took no part in."""
    env = replace(env_of(job, holder), me=holder.name)
    state, _ = method.device.start(env)
    _, sends = method.device.receive(env, state, UP, Finished(job.run.rounds, shown))
    return next(s.message for s in sends if isinstance(s.message, Models))


def judged(model: Model, m: Models, test: Part) -> dict[str, float]:
    """Accuracies of a device's models, one by one and together, and smoothed over five windows."""
    assert m.ensemble is not None
    logits = {name: model.predict(theta, test.x) for name, theta in m.models.items()}
    p = {name: log_probabilities(z, m.ensemble.classes) for name, z in logits.items()}
    found = {"global": logits["global"], "masked": p["global"], "alone": p["local"], "single": p["personal"]}
    local = lambda: logits["local"]  # noqa: E731
    found["personal"] = combined(m.ensemble, logits["personal"], local, lambda: features_of(test.x))
    smooth = {f"{k} smoothed": smoothed(found[k], 5, test.recording) for k in ("alone", "personal")}
    return {name: float((scores.argmax(1) == test.y).mean()) for name, scores in (found | smooth).items()}


# The command ---------------------------------------------------------------------------------------------------
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
    words.add_argument("--method", help="(fedslr; with --recommended: fedavg)")
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
