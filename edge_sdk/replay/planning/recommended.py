"""What a replay does that is told nothing but its data: the network, phases and changes of windows that do best.

What that is for windows of sensors: edge_sdk/nodes/configuration/window_runs.py. What is stated stays as it is stated,
key by key: `--settle label_times=0` switches labelling off, `--settle trees=0` the forest, `--bundle FILE` takes
another network, `--plain` switches all of it off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_sdk.contract.search import overlaid
from edge_sdk.nodes.configuration.assembly import method_of
from edge_sdk.nodes.configuration.presets import RECOMMENDED, preset_of
from edge_sdk.nodes.configuration.window_runs import (
    LEAST_CLASSES,
    METHOD,
    NETWORKS,
    NOISY_METHOD,
    NOISY_ROUNDS,
    ROUNDS,
    WINDOW,
    changes_of,
    settle_of,
    steps_of,
    training_of,
)
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.planning.plan import Replay


def recommended(job: Replay, cohort: Cohort) -> tuple[Replay, list[str]]:
    """The job with what is recommended for these data where it states nothing, and sentences about that.

    Args:
        job: with `recommend`; another one stays as it is.
    """
    if not job.recommend:
        return job, []
    if why := reason_against(job, cohort):
        job, steps = with_steps_for_values(job, cohort)
        return job, [f"settings: as stated{steps}; self-training and a device's own forest are left out: {why}"]
    if not {*job.stated} - {"rounds"}:
        method = NOISY_METHOD if job.privacy else METHOD
        job = replace(job, method=method, settings=preset_of(method, RECOMMENDED))
    shape = cohort.shapes["x"]
    own = job.bundle in ((), *((Path(name),) for name in NETWORKS))
    settle = overlaid({**settle_of(bool(job.privacy)), "statistics": own}, job.settle)
    job = job if "rounds" in job.stated else replace(job, rounds=NOISY_ROUNDS if job.privacy else ROUNDS)
    found = replace(
        job,
        bundle=job.bundle or (Path(NETWORKS[0]),),
        settings=settings_of(job) if own else job.settings,
        settle=settle,
        augment=overlaid(changes_of(shape) if own else {}, job.augment),
    )
    return found, [*sentences(found, own)]


def reason_against(job: Replay, cohort: Cohort) -> str:
    """Why this run settles only if it is told to, as a sentence; "": nothing is against it."""
    if cohort.task is not None:
        return f"task {cohort.task.kind}: they label samples with classes"
    if method_of(job.as_run(cohort.classes)).kernels != "plain":
        return f"devices of method {job.method} share no whole model"
    if set(cohort.shapes) != {"x"} or len(cohort.shapes["x"]) != WINDOW:
        return "these samples are no windows of sensors"
    if len(cohort.classes) < LEAST_CLASSES:
        return "there is one class only"
    if job.private is not None:
        return "the aggregator compares models with a private one, which knows no statistics of the fleet"
    if job.options.get("validation") == 0 or not cohort.chooses:
        return "no validation samples are split off, and the fleet chooses on them"
    return ""


def with_steps_for_values(job: Replay, cohort: Cohort) -> tuple[Replay, str]:
    """The job with the step size that is recommended for values, and what is to be said of it, after "as stated"."""
    found = {key: value for key, value in steps_of(job.method, cohort.task).items() if key not in job.stated}
    said = "".join(f", with {key} = {value:g} for values" for key, value in found.items())
    return replace(job, settings={**job.settings, **found}), said


def settings_of(job: Replay) -> Mapping[str, Any]:
    """The method's settings for the network on features, where none of them is stated."""
    return {**job.settings, **{k: v for k, v in training_of(job.method, job.rounds).items() if k not in job.stated}}


def sentences(job: Replay, own: bool) -> list[str]:
    """What was chosen, and why."""
    network = "network on features, standardised by the fleet" if own else f"network {job.bundle[0].name}"
    turns = job.settle.get("label_times", 0)
    labels = f"devices label their own windows, {turns} times" if turns else "no device labels its own windows"
    method = "fedslr without low rank" if job.method == "fedslr" and not job.settings.get("lam") else job.method
    forest = "each has a forest of its own beside the shared model" if job.settle.get("trees") else "no forests"
    return [
        f"settings: recommended for windows of sensors: method {method}; {network}; {labels}; {forest}; "
        "the fleet chooses on validation samples what helps (--plain: none of this)"
    ]
