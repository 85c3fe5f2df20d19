"""`auscult replay`: recorded traces, or a data set, through real devices, hospitals, a broker and the aggregator.

What runs is what would run in the field: `auscult device`, `auscult hospital` and `auscult aggregator` with settings
files (kept in DIR/config), over a real broker. The steps are in modules of their own, in this order: cohorts (who
holds which data), plan.py (the run), bundles.py (the model), node_files.py (files and processes), watch.py (while it
runs), result.py (what came out).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.task import Task
from edge_sdk.nodes.configuration.assembly import family_of, method_of, with_bundle
from edge_sdk.nodes.configuration.tasks import check_task
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.network_choice import with_chosen_network
from edge_sdk.replay.nodes.broker import EmbeddedBroker
from edge_sdk.replay.nodes.emulated import EmulatedFleet
from edge_sdk.replay.nodes.forking import can_fork
from edge_sdk.replay.nodes.node_files import NodeFiles, copy_bundles, prepare_files, start_newcomers, start_nodes
from edge_sdk.replay.nodes.processes import NodeProcesses
from edge_sdk.replay.nodes.sent_before import keep_sent
from edge_sdk.replay.nodes.watch import Line, LocalOnlyNotes, Say, follow_run, wait_for_end
from edge_sdk.replay.planning.bundles import choose_bundles
from edge_sdk.replay.planning.plan import Replay, asked_options, is_split, plan_run
from edge_sdk.replay.planning.recommended import recommended
from edge_sdk.replay.planning.resume import note_job, read_finished
from edge_sdk.replay.result import collect_result, describe_scores, with_scores


@dataclass(frozen=True, kw_only=True)
class ReadyReplay:
    """A replay of which all is known, and nothing has started: the job, its run and its nodes' files.

    Attributes:
        job: with all that was recommended or chosen for its data.
        files: settings of the nodes.
    """

    job: Replay
    cohort: Cohort
    run: Run
    task: Task
    files: NodeFiles


def replay(
    job: Replay, progress: Callable[[Line], None], say: Say, stopping: threading.Event | None = None
) -> dict[str, Any]:
    """Runs it all.

    Args:
        progress: called with each line of the aggregator's metrics, as it comes.
        say: called with a sentence about what is going on.
        stopping: set by somebody else, it ends the replay with a ProcessError.

    Returns:
        What `--json` prints; also in DIR/result.json.

    Raises:
        UsageError: something named cannot be used. ProcessError: a process has failed.
    """
    if job.resume and (finished := read_finished(job.out)):
        say(f"{job.out}: this replay is over")
        return finished
    if job.resume:
        keep_sent(job.out)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        forks = can_fork() and not job.boards  # the memory of a board's process is all its own
        processes = NodeProcesses(job.out / "logs", stopping or threading.Event(), forks=forks)
        nodes = stack.enter_context(processes)
        nodes.prepare()
        ready = prepare(job, say, stopping)
        job, run, cohort, task = ready.job, ready.run, ready.cohort, ready.task
        url = job.broker
        if url == "embedded":
            url = stack.enter_context(EmbeddedBroker()).url
            say(f"embedded broker at {url}")
        fleet = stack.enter_context(EmulatedFleet(job.boards, cohort.devices, job.link, url, job.seed))
        for note in fleet.notes():
            say(note)
        nodes.also = fleet.check
        alone = LocalOnlyNotes(job.out / "devices", cohort.devices)
        alone.forget()
        start_nodes(job, run, cohort, ready.files, url, nodes, fleet)
        say(f"{len(nodes.running)} processes are starting; the first round ends when all devices have answered")
        lines = follow_run(job.out, nodes, lambda line: progress(with_scores(line, run, task)), say)
        if job.newcomers:
            joins = "newcomer joins" if len(job.newcomers) == 1 else "newcomers join"
            say(f"the run is over; {len(job.newcomers)} {joins}: {', '.join(job.newcomers)}")
            start_newcomers(job, nodes, fleet)
        if job.local_only and not is_split(job):
            say("the last round is over; each device finds out what it would have reached alone (--no-local-only: not)")
        wait_for_end(nodes, alone, say)
    lines = [with_scores(line, run, task) for line in lines]
    found = collect_result(job, run, cohort, ready.files, lines, url, time.monotonic() - began, say)
    return found | fleet.report(job.out)


def prepare(job: Replay, say: Say, stopping: threading.Event | None = None) -> ReadyReplay:
    """The replay that is ready to start: data are read, the run is planned and checked, a network is chosen.

    Raises:
        UsageError: something named cannot be used.
    """
    say(f"reading {job.data}")
    cohort = form_cohort(str(job.data), job.hospitals, job.seed, asked_options(job), is_split(job))
    asked, (job, notes) = job, recommended(job, cohort)
    for note in (cohort.summary, *cohort.notes, *notes):
        say(note)
    run = plan_run(job, cohort)  # before any network is tried: what is wrong with the settings is said at once
    if not asked.bundle:
        job = with_chosen_network(job, cohort, say, stopping)
    several = bool(family_of(run).own_bundles)
    bundles = choose_bundles(str(job.data), job.bundle, cohort, job.seed, say, several)
    job.out.mkdir(parents=True, exist_ok=True)
    copies = copy_bundles(bundles, job.out)
    run = with_bundle(run, bundle := read_bundle(copies[0]))
    check_task(run, bundle, method_of(run).kernels)
    task = bundle.task
    if words := describe_scores(run, task):
        say(words)
    note_job(job, run, copies)
    files = prepare_files(job, run, cohort, copies)
    return ReadyReplay(job=job, cohort=cohort, run=run, task=task, files=files)
