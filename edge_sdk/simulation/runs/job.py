"""`auscult simulate`: a whole run on this process, or on those that torchrun has started, to its result."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from edge_sdk.atomic import write_text
from edge_sdk.contract.environment.gradients import PURPOSES
from edge_sdk.hardware.probe import peak_memory_mb
from edge_sdk.methods.shared.evaluation.reports import Complaint, Event, Report
from edge_sdk.nodes.configuration.assembly import make_assembly, method_of
from edge_sdk.replay.nodes.node_files import CLOUD
from edge_sdk.replay.planning.resume import note_job, read_finished
from edge_sdk.replay.result import with_scores
from edge_sdk.simulation.clients.behaviour import ClientHabits
from edge_sdk.simulation.clients.crowd import Crowd
from edge_sdk.simulation.network.build import NetworkPlan, make_network
from edge_sdk.simulation.network.checkpoint_pace import SavingPace
from edge_sdk.simulation.network.checkpoints import Checkpoints, places_of
from edge_sdk.simulation.processes.memory import keep_freed_memory, searching_rarely
from edge_sdk.simulation.processes.ranks import Ranks
from edge_sdk.simulation.runs.alone import find_neighbours
from edge_sdk.simulation.runs.judged import Judges
from edge_sdk.simulation.runs.node_envs import Envs, Kernels
from edge_sdk.simulation.runs.plan import Prepared, Say, Simulation, describe, judges_of, origin, prepare
from edge_sdk.simulation.runs.result import (
    Spent,
    count_numbers,
    describe_model,
    make_result,
    write_model,
)
from edge_sdk.simulation.training.epochs import all_trained, describe_training

Line = Mapping[str, Any]
METRICS = "metrics.jsonl"
MODELS = "models"
"""Folder of the models of clients, where they are kept."""


def simulate(
    job: Simulation, ranks: Ranks, kernels: Kernels, progress: Callable[[Line], None], say: Say
) -> dict[str, Any]:
    """Runs it all, on every rank.

    Args:
        kernels: of the aggregator.
        progress: called with each line of the aggregator's metrics, as it comes.
        say: called with a sentence about what is going on.

    Returns:
        What `--json` prints, on every rank.

    Raises:
        UsageError: something named cannot be used. AuscultError: the run stands still, or ranks differ.
    """
    if job.replay.resume and ranks.number == 0 and (finished := read_finished(job.replay.out)):
        say(f"{job.replay.out}: this simulation is over")
        return finished
    own = for_rank(job, ranks)
    prepared = prepare(own, say, ranks)
    own = prepared.job
    if ranks.number == 0:
        note_job(own.replay, prepared.run, own_bundles(own.replay.out), {**describe(job), **origin(prepared)})
    course = Course(own, prepared, ranks, Envs(prepared, kernels, job.calls), progress)
    course.begin(say)
    course.play()
    result = course.finish(say)
    say(describe_training(result["simulation"]["training"]))
    return result


def for_rank(job: Simulation, ranks: Ranks) -> Simulation:
    """The job with a directory of this rank's own: ranks share no file, so they may be on several machines."""
    if ranks.number == 0:
        return job
    out = job.replay.out / f"rank-{ranks.number}"
    return replace(job, replay=replace(job.replay, out=out, resume=True))


def own_bundles(out: Path) -> tuple[Path, ...]:
    """The copies of the bundles, in their order."""
    return tuple(sorted(out.glob("model*.bundle")))


@dataclass
class Course:
    """The course of one simulation on one rank."""

    job: Simulation
    prepared: Prepared
    ranks: Ranks
    envs: Envs
    progress: Callable[[Line], None]
    lines: list[Line] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    metrics: TextIO | None = None
    counted: bool = True  # all gradients since the beginning

    def begin(self, say: Say) -> None:
        """Makes the network, or puts it where the last checkpoint was."""
        keep_freed_memory()
        run, seed = self.prepared.run, self.job.replay.seed
        self.judges = Judges(self.envs, self.job.replay.out / MODELS if self.job.keep_models else None)
        tree = self.prepared.population.tree
        judges = judges_of(self.job, sum(map(len, tree.values())))
        crowd = Crowd(tree, ClientHabits(self.job.behaviour, seed), seed, judges, self.prepared.draws)
        root = self.envs(CLOUD)
        policies = {
            tier: make_assembly(run, tier, env).policy
            for tier, env in (("aggregator", root), ("hospital", self.envs(next(iter(tree)))), ("device", root))
        }
        self.method = method_of(run)
        for warning in self.method.warnings(root.settings, root.sizes):
            say(f"warning: {warning}")
        self.plan = NetworkPlan(
            method=self.method,
            env_of=self.envs,
            policies=policies,
            layout=root.layout,
            crowd=crowd,
            ranks=self.ranks,
            directory=self.job.replay.out / "clients",
            root=CLOUD,
            kept=self.prepared.population.kept,
            run_clients=None if self.envs.lockstep is None else self.envs.lockstep.run,
        )
        self.checkpoints = Checkpoints(self.job.replay.out, self.plan)
        saved = self.checkpoints.load(self.job.replay.resume)
        if saved is None:
            shutil.rmtree(self.plan.directory, ignore_errors=True)
            self.network = make_network(self.plan, self.receive)
        else:
            self.network = make_network(self.plan, self.receive, places_of(saved))
            self.checkpoints.restore(self.network, saved)
            self.restore_lines(saved.lines)
            self.restore_extra(json.loads(saved.extra.tobytes()))
            say(f"going on after {self.network.worked} answers of clients, at {self.network.now:.0f} s of the clock")
        self.network.exchange.workings = self.judges.note
        if saved is None:
            self.write_lines()
            self.network.start()
        self.before, self.started = self.network.worked, time.monotonic()
        self.pace = SavingPace(self.job.save_every)

    def play(self) -> None:
        """Plays the run to its end, with checkpoints on the way."""
        exchange, pace = self.network.exchange, self.pace
        with self.metrics or nullcontext(), searching_rarely():
            going_on = True
            while going_on:
                if self.network.waiting:  # what is wanted is told with the next questions to clients
                    exchange.wants_save = pace.is_due()
                    with pace.working():
                        going_on = self.network.step()
                    continue
                if exchange.saves and self.network.next_answer is None:  # their vectors have gone into the sums
                    exchange.saves = False
                    with pace.saving():
                        extra = self.judges.written, self.envs.gradients
                        self.checkpoints.save(self.network, len(self.lines), extra)
                going_on = self.network.step()

    def receive(self, name: str, message: Any, now: float) -> None:
        """Notes what the aggregator's role tells its application."""
        if name != CLOUD or not isinstance(message, Event):
            return
        line: dict[str, Any] = {**message.to_metrics(), "time": time.time(), "clock": now}
        line["bytes_so_far"] = self.network.traffic.total
        if not isinstance(message, Complaint):
            line["sent_parameters"] = self.count_sent()
        if isinstance(message, Report):
            line |= self.prepared.task.fleet_scores(message.sums)
        line = dict(with_scores(line, self.prepared.run, self.prepared.task))
        self.lines.append(line)
        if self.metrics is not None:
            self.metrics.write(json.dumps(line) + "\n")
            self.metrics.flush()
        self.progress(line)

    def count_sent(self) -> int | None:
        """The number of numbers in the newest model as it travels; None where none travels."""
        root = self.network.nodes[CLOUD]
        if root.record.state is None:
            return None
        return count_numbers(self.method.show(root.env, root.record.state)) or None

    def restore_lines(self, count: int) -> None:
        """Takes the lines of metrics that were written before the checkpoint; later ones will come again."""
        if self.ranks.number == 0:
            written = (self.job.replay.out / METRICS).read_text(encoding="utf-8").splitlines()[:count]
            self.lines = [json.loads(text) for text in written]
        found = self.ranks.gather(json.dumps(self.lines).encode())
        self.lines = json.loads(found[0])
        self.write_lines()

    def restore_extra(self, extra: Any) -> None:
        """Takes what clients had left behind and computed. A checkpoint of a version that did not count has only the
        former, as a mapping: then nobody knows."""
        if isinstance(extra, dict):
            self.judges.written, self.counted = extra, False
        else:
            self.judges.written = extra[0]
            self.envs.gradients.update(extra[1])

    def write_lines(self) -> None:
        if self.ranks.number == 0:
            text = "".join(json.dumps(line) + "\n" for line in self.lines)
            write_text(self.job.replay.out / METRICS, text)
            self.metrics = (self.job.replay.out / METRICS).open("a", encoding="utf-8")

    def all_gradients(self) -> Mapping[str, int] | None:
        """Purpose -> gradients that the clients of all ranks have computed; None: some were not counted."""
        own = self.envs.gradients if self.counted else None
        every = [json.loads(data) for data in self.ranks.gather(json.dumps(own).encode())]
        return None if None in every else {purpose: sum(one.get(purpose, 0) for one in every) for purpose in PURPOSES}

    def finish(self, say: Say) -> dict[str, Any]:
        """The result, of what all ranks have; rank 0 writes the model."""
        every = [json.loads(data) for data in self.ranks.gather(json.dumps(self.judges.written).encode())]
        written = {name: found for one in every for name, found in one.items()}
        records = sum(int(data) for data in self.ranks.gather(str(len(self.network.clients.states)).encode()))
        spent = Spent(
            seconds=time.monotonic() - self.began,
            playing=time.monotonic() - self.started,
            answers=self.network.worked - self.before,
            clock=self.network.now,
            records=records,
            ranks=self.ranks.count,
            memory=peak_memory_mb(),
            bytes=dict(self.network.traffic.bytes),
            trained=all_trained(self.ranks, self.envs.trained),
            gradients=self.all_gradients(),
        )
        root = self.network.nodes[CLOUD]
        shown = self.method.show(root.env, root.record.state)
        theta = self.method.models(root.env, None, shown).get("global")
        if theta is not None and self.ranks.number == 0:
            write_model(self.job.replay.out / "model.npz", root.env.layout, theta)
        model = describe_model(root.env.layout, shown, theta)
        seen = b""  # rank 0 computes it for all
        if self.ranks.number == 0:
            seen = json.dumps(find_neighbours(self.job, self.envs, written, say)).encode()
        neighbours = json.loads(self.ranks.tell(seen))
        return make_result(self.job, self.prepared, self.lines, written, spent, model, neighbours)
