"""Whole runs of benchmarks/settling.py: played over the network in memory, and judged once on the test part."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.alone import reach_alone, right_of
from benchmarks.both_alone import Own, mixed_alone
from benchmarks.holders import Holder, Part
from benchmarks.outcomes import Outcome
from benchmarks.self_labelled import by_itself
from edge_sdk.algebra.ensemble import combined, log_probabilities, smoothed
from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.contract.method import UP, Method, NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.methods.settling.method import Choice
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration import window_runs
from edge_sdk.nodes.configuration.assembly import augmentation_of, make_env, method_of, settings_of
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.kernels import plain
from edge_sdk.nodes.kernels.family import DeviceParts
from edge_sdk.nodes.kernels.own_windows import features_of
from edge_sdk.replay import network_choice
from edge_sdk.wire.codec.codec import Codec

HOSPITALS = 3


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


def play(
    job: Job, changed: Callable[[Method], Method] = lambda method: method
) -> tuple[Outcome, Mapping[str, NodeEnv]]:
    """The run, everybody's models judged on the test part; and the envs of its nodes. `changed`: of its method."""
    method, out = changed(method_of(job.run)), Outcome()
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
