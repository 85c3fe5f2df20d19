"""Several seeds of one replay at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.hardware.probe import read_machine
from edge_sdk.replay.job import replay
from edge_sdk.replay.nodes.side_by_side import play_side_by_side
from edge_sdk.replay.nodes.watch import Line, Say
from edge_sdk.replay.over_seeds import summarise_seeds
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.planning.resume import NOTE

Result = Mapping[str, Any]


def replay_seeds(
    job: Replay, count: int, progress: Callable[[int, Line], None], say: Say, done: Callable[[Replay, Result], None]
) -> dict[str, Any]:
    """Replays with the seeds seed, seed + 1, ..., as many at a time as this machine has cores.

    Args:
        job: of the first seed; each seed has a directory of its own in its `out`.
        count: how many seeds.
        progress: called with the seed and a line of metrics of its run.
        say: called with a sentence about what is going on.
        done: called when a seed is over, with its job and its result.

    Returns:
        As `summarise_seeds`, with all results under "runs".

    Raises:
        UsageError: something named cannot be used. ProcessError: a process has failed; the other seeds are ended.
    """
    if count < 1:
        raise UsageError(f"--seeds {count}: at least 1")
    seeds, stopping = range(job.seed, job.seed + count), threading.Event()

    def run(seed: int) -> dict[str, Any]:
        out = job.out / f"seed-{seed}"
        own = replace(job, seed=seed, out=out, resume=job.resume and (out / NOTE).is_file())
        found = replay(own, lambda line: progress(seed, line), lambda text: say(f"seed {seed}: {text}"), stopping)
        done(own, found)
        return found

    jobs = {seed: partial(run, seed) for seed in seeds}
    results = list(play_side_by_side(jobs, min(count, read_machine().cores), stopping).values())
    return {**summarise_seeds(results), "runs": results}
