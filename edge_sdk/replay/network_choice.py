"""Network of a replay that names none: each one for windows is tried in a short run, judged on validation samples.

A trial is the run itself with `ROUNDS` rounds and with settling, without labels of devices' own and without forests:
in memory and without torch, in a process for each network, all at the same time. The first network is the smallest. A
larger one, which costs several times as much, is taken if it is better by a point, and by more than one standard error
of the differences between devices (L. Breiman et al., "Classification and Regression Trees", 1984, section 3.4.3). As
soon as the first one is known to be so good that none can be better by a point, the other trials are ended.
What was found is kept in DIR/network.json, so that a replay that goes on has the same network.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.nodes.configuration.window_runs import NETWORKS
from edge_sdk.nodes.daemon.counter_files import write_json
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.nodes.processes import ProcessError
from edge_sdk.replay.nodes.side_by_side import play_side_by_side
from edge_sdk.replay.planning.bundles import compile_network, find_compiler, size_options
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.tuning.process import TrialProcess

Say = Callable[[str], None]
NOTE = "network.json"
ROUNDS = 10
SETTLE: Mapping[str, Any] = {"trees": 0, "label_times": 0}
"""Settings of settling in a trial, over those of the run."""
LEAST = 0.01
"""Accuracy that a larger network must gain."""
MOST_DEVICES = 40
"""Devices above which nothing is tried: a trial has all of them."""


def with_chosen_network(job: Replay, cohort: Cohort, say: Say, stopping: threading.Event | None = None) -> Replay:
    """The job with the network that does best on its data.

    Args:
        job: with what is recommended for windows; where it has a network of its own, that stays.
        stopping: once it is set, trials are given up.

    Raises:
        AuscultError: a trial has failed. ProcessError: `stopping` was set. The other trials are ended, too, as they are
            by Ctrl-C: no process is left behind.
    """
    if job.bundle != (Path(NETWORKS[0]),):
        return job
    if (note := job.out / NOTE).is_file():
        return replace(job, bundle=(Path(read_note(note)),))
    if len(cohort.devices) > MOST_DEVICES:
        say(f"network: {NETWORKS[0]}; others are tried with {MOST_DEVICES} devices or fewer")
        return job
    if job.privacy:
        say(f"network: {NETWORKS[0]}; others are not tried: what trials tell of devices is in no epsilon")
        return job
    if find_compiler() is None:
        return job  # the sentence about that comes with the bundle
    scores = try_networks(job, cohort, say, stopping or threading.Event())
    found = best_of(scores)
    told = ", ".join(f"{name} {100 * np.mean(list(each.values())):.1f}" for name, each in scores.items())
    say(f"network: {found}; short runs reach, in percent of the validation samples: {told}")
    chosen = replace(job, bundle=(Path(found),))  # before there is a file: `out` is new or empty, as a job checks
    job.out.mkdir(parents=True, exist_ok=True)
    write_json(note, {"network": found, "scores": {name: dict(each) for name, each in scores.items()}})
    return chosen


def read_note(path: Path) -> str:
    """The network that was chosen when a replay was begun. Raises UsageError for a file that names none."""
    try:
        found = json.loads(path.read_text())["network"]
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if found not in NETWORKS:
        raise UsageError(f"{path}: expected a network, one of {', '.join(NETWORKS)}; begin the replay anew")
    return str(found)


def try_networks(job: Replay, cohort: Cohort, say: Say, stopping: threading.Event) -> dict[str, Mapping[str, float]]:
    """Network -> device -> accuracy on its validation samples. Raises as `with_chosen_network`."""
    say(f"trying networks for these windows: {', '.join(NETWORKS)}")
    sizes = size_options(cohort.shapes["x"], cohort)
    short, trials = replace(job, rounds=ROUNDS, settle={**job.settle, **SETTLE}, resume=False), dict[str, Replay]()
    for name in NETWORKS:
        go_on(stopping)
        trials[name] = replace(short, bundle=(compile_network(name, sizes, job.seed, say),))
    return play_trials(trials, stopping)


def play_trials(trials: Mapping[str, Replay], stopping: threading.Event) -> dict[str, Mapping[str, float]]:
    """Plays the trial of each network, all at the same time, until all are over or the first one has failed.

    Whatever ends them, Ctrl-C too, their processes and threads are gone when this returns.
    """
    over = threading.Event()  # one of their own: who failed here has not asked others to stop
    enough, first = threading.Event(), next(iter(trials))

    def play_first() -> Mapping[str, float]:
        found = play_trial(first, trials[first], over)
        if is_unbeatable(found):
            enough.set()
            over.set()
        return found

    def play_other(name: str) -> Mapping[str, float] | None:
        try:
            return play_trial(name, trials[name], over)
        except AuscultError:
            if enough.is_set():
                return None
            raise

    jobs: dict[str, Callable[[], Mapping[str, float] | None]] = {first: play_first}
    jobs |= {name: partial(play_other, name) for name in trials if name != first}
    found = play_side_by_side(jobs, len(trials), over, lambda: go_on(stopping))
    return {name: scores for name, scores in found.items() if scores is not None}


def is_unbeatable(scores: Mapping[str, float]) -> bool:
    """True if no network can be better by `LEAST` than one of these scores, on which all samples are right."""
    return bool(scores) and 1 - float(np.mean([*scores.values()])) < LEAST


def go_on(stopping: threading.Event) -> None:
    """Raises ProcessError if the trials are to stop."""
    if stopping.is_set():
        raise ProcessError("stopped while networks were tried")


def play_trial(name: str, job: Replay, over: threading.Event) -> Mapping[str, float]:
    """Device -> accuracy of the trial of one network. Once `over` is set, it is ended."""
    trial = f"network {name}, trial of {job.rounds} rounds"
    try:
        with TrialProcess(job, lambda text: None, over, numpy=True) as worker:
            found = worker.play(job.settings)
    except AuscultError as error:
        raise (UsageError if isinstance(error, UsageError) else AuscultError)(f"{trial}: {error}") from error
    if found is None or "error" in found:
        why = "it was ended" if found is None else found["error"]
        raise AuscultError(f"{trial}: {why}")
    devices: Mapping[str, float] = found["devices"]
    return devices


def best_of(scores: Mapping[str, Mapping[str, float]]) -> str:
    """The first network, or the one that is better than it by most: by `LEAST`, and by more than one standard error.

    Args:
        scores: network -> device -> accuracy, 0 to 1; the first network is the one that others must beat.
    """
    first, *others = scores
    gains = {name: gain_of(scores[name], scores[first]) for name in others}
    better = [name for name, (gain, error) in gains.items() if gain >= LEAST and gain > error]
    return max(better, key=lambda name: gains[name][0], default=first)


def gain_of(found: Mapping[str, float], base: Mapping[str, float]) -> tuple[float, float]:
    """Mean of the differences between devices that have both, and its standard error; of one device: infinite."""
    gains: Sequence[float] = [found[name] - base[name] for name in base if name in found]
    if len(gains) < 2:
        return 0.0, np.inf
    return float(np.mean(gains)), float(np.std(gains, ddof=1) / np.sqrt(len(gains)))
