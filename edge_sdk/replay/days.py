"""`auscult replay --days N`: days and nights of a fleet on emulated boards, in virtual time and in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from edge_sdk.contract import node as nodes
from edge_sdk.contract.node import Node
from edge_sdk.contract.run import Run
from edge_sdk.data.availability import find_availability
from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.emulation import Emulation
from edge_sdk.methods.shared.evaluation.reports import Progress, Report, errors_to_words, mean_accuracies
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.assembly import family_of, make_assembly, make_env, method_of, with_bundle
from edge_sdk.nodes.configuration.deadlines import parse_deadline
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.configuration.tasks import check_task
from edge_sdk.nodes.daemon.counter_files import write_json
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.device_service import DeviceService
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.nodes.hospital.options import HospitalPolicy
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.budget import TrainingBudget
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.metrics.statistics import MACRO_F1
from edge_sdk.replay.nodes.node_files import OPEN_SCORES, NodeFiles, copy_bundles, device_table, prepare_files
from edge_sdk.replay.planning.bundles import choose_bundles
from edge_sdk.replay.planning.plan import Replay, asked_options, is_split, plan_run
from edge_sdk.replay.planning.toml_files import write_toml
from edge_sdk.replay.result import describe_scores, with_scores
from edge_sdk.replay.virtual import DAY, VirtualDevice, VirtualFleet, VirtualLink

NOBODY = "mqtt://127.0.0.1:1"  # no node is connected
STEPS = 7
ERRORS = "errors"
NOT_REPRODUCED = (
    "Not reproduced: the network and the processes (nobody dies, no byte is lost), a battery that training empties "
    "(its charge is as it was recorded), other programs, heat that training makes, a board's caches and memory, the "
    "radio's joules, and what judging models takes. Training is real; its time is this machine's, times one ratio."
)


@dataclass(frozen=True, kw_only=True)
class Days:
    """What to play.

    Attributes:
        job: the replay, with its boards and link.
        days: at most so many.
        budget: of every device.
        deadline: of the hospitals: seconds, "auto" or "none".
        step_seconds: of a training step on this machine; None: measured.
    """

    job: Replay
    days: float
    budget: TrainingBudget = field(default_factory=lambda: TrainingBudget(calm=0.0))
    deadline: float | str = "none"
    step_seconds: float | None = None

    def __post_init__(self) -> None:
        if not self.days > 0:
            raise UsageError(f"--days {self.days}: more than 0")
        if strange := next((key for key in self.job.link if key not in ("rate", "latency")), None):
            raise UsageError(f"--link {strange}: in virtual time a link has rate and latency")
        if self.job.newcomers:
            raise UsageError("--newcomers: nobody joins a run in virtual time")


def play_days(what: Days, say: Callable[[str], None]) -> dict[str, Any]:
    """Plays it all.

    Returns:
        "days", "rounds" (a row for each), "task", the last scores: "accuracy" of classes, "macro_f1" of sets of labels
        and steps, "errors" of values and windows, "boards" (rows), and what it does not reproduce; also in
        DIR/result.json.
    """
    job, began = what.job, time.monotonic()
    cohort = form_cohort(str(job.data), job.hospitals, job.seed, asked_options(job), is_split(job))
    say(cohort.summary)
    run = with_deadline(plan_run(job, cohort), what.deadline)
    if family_of(run).own_bundles or is_split(job):
        raise UsageError(f"--days: method {job.method} is not for devices with one whole model each")
    copies = copy_bundles_into(job, cohort, say)
    run = with_bundle(run, bundle := read_bundle(copies[0]))
    check_task(run, bundle, method_of(run).kernels)
    say(describe_scores(run, bundle.task))
    files = prepare_files(job, run, cohort, copies)
    history = History(lambda line: with_scores(line, run, bundle.task), say)
    fleet, boards = make_fleet(what, run, cohort, files, history)
    seconds = fleet.run(what.days)
    result = collect(bundle.task.kind, fleet, history.rows, boards, seconds) | {
        "wall_seconds": round(time.monotonic() - began, 1)
    }
    write_json(job.out / "result.json", result)
    return result


def with_deadline(run: Run, deadline: float | str) -> Run:
    found = parse_deadline(deadline, "--deadline")
    return replace(run, deadline=found.seconds, measured=found.measured)


def copy_bundles_into(job: Replay, cohort: Cohort, say: Callable[[str], None]) -> tuple[Path, ...]:
    bundles = choose_bundles(str(job.data), job.bundle, cohort, job.seed, say, False)
    job.out.mkdir(parents=True, exist_ok=True)
    return copy_bundles(bundles, job.out)


# Nodes ----------------------------------------------------------------------------------------------------------
def make_fleet(
    what: Days, run: Run, cohort: Cohort, files: NodeFiles, history: History
) -> tuple[VirtualFleet, dict[str, Emulation | None]]:
    """The fleet, and the board of each device. `history`: is told what the aggregator says."""
    job, names = what.job, cohort.devices
    boards = {d: job.boards[i % len(job.boards)] if job.boards else None for i, d in enumerate(names)}
    made: dict[str, Any] = {}  # assemblies
    step = what.step_seconds
    devices: dict[str, VirtualDevice] = {}
    for hospital, members in cohort.tree.items():
        for name in members:
            own = make_device(job, name, hospital, files)
            steps = count_steps(own)
            made[name] = own.part.assemble(run)
            step = step or measure_step(made[name], run)
            devices[name] = virtual_device(what, own, boards[name], step, steps)
    for hospital, members in cohort.tree.items():
        made[hospital] = make_hospital(job, hospital, members, files).assemble(run)
    some = next(iter(made.values())).env
    sizes = {h: len(members) for h, members in cohort.tree.items()}
    made["cloud"] = make_assembly(run, "aggregator", make_env(run, some.layout, some.theta0, sizes=sizes))
    parents = {d: h for h, members in cohort.tree.items() for d in members} | dict.fromkeys(cohort.tree, "cloud")
    fleet = VirtualFleet(
        [make_node(name, assembly, parents.get(name)) for name, assembly in made.items()],
        lambda sender, message: len(made[sender].messages.encode(message)),
        devices,
        VirtualLink(**dict(job.link)),
        history,
    )
    return fleet, boards


def make_node(name: str, assembly: Any, parent: str | None) -> Node:
    return nodes.new(name, assembly.role, assembly.env, parent, assembly.policy, 0.0)


def make_device(job: Replay, name: str, hospital: str, files: NodeFiles) -> Device:
    """A device with its samples, which is never connected."""
    table = device_table(job, name, hospital, files) | {"broker": NOBODY, "local_only": False}
    return DeviceService(read_toml(write_toml(job.out / "config" / f"{name}.toml", table), DeviceFile)).device


def make_hospital(job: Replay, name: str, devices: Sequence[str], files: NodeFiles) -> Hospital:
    given: dict[str, Any] = {"aggregator": "cloud", "broker": NOBODY, "directory": job.out / name}
    given["policy"] = HospitalPolicy(allow=Allow(**OPEN_SCORES))
    return Hospital(name, bundle=files.bundles[name], devices=devices, **given)


def count_steps(device: Device) -> Callable[[], int]:
    """Counts a device's training steps from now on: before each, it asks whether it must give way."""
    steps, asked = [0], device.part.must_give_way

    def ask() -> bool:
        steps[0] += 1
        return asked()

    device.part.must_give_way = ask  # type: ignore[method-assign]
    return lambda: steps[0]


def virtual_device(
    what: Days, device: Device, board: Emulation | None, seconds: float, steps: Callable[[], int]
) -> VirtualDevice:
    """A device in virtual time. `seconds`: of a step on this machine; `steps`: how many it has made."""
    share = 1.0 if board is None else board.share
    watts = what.budget.watts or (None if board is None else board.profile.estimate_watts(1))
    where = find_availability(Path(what.job.data), device.name)
    return VirtualDevice(device.name, where, what.budget, steps, seconds / share, watts)


def measure_step(assembly: Any, run: Run) -> float:
    """Seconds of a training step on this machine: the median of a few."""
    env, batch = assembly.env, int(run.settings.get("batch", 20)) or None
    assert env.grad_fn is not None  # of a plain method
    chosen, found = None if batch is None else np.arange(min(batch, env.samples)), []
    for _ in range(STEPS):
        began = time.perf_counter()
        env.grad_fn(env.theta0, chosen)
        found.append(time.perf_counter() - began)
    return median(found)


class History:
    """What the aggregator has told: a row for each round and evaluation, which is also said.

    Args:
        score: adds the scores of the run's task to a line of metrics.
    """

    def __init__(self, score: Callable[[Mapping[str, Any]], Mapping[str, Any]], say: Callable[[str], None]) -> None:
        self.rows, self.score, self.say = list[dict[str, Any]](), score, say

    def __call__(self, now: float, node: str, message: Any) -> None:
        if node != "cloud" or not isinstance(message, (Progress, Report)):
            return
        line = self.score(message.to_metrics())
        scores = {key: line[key] for key in (MACRO_F1, ERRORS) if key in line}
        row = {"at": now, "kind": line["kind"], "round": message.round, **(scores or mean_accuracies(line["sums"]))}
        row["devices"] = getattr(message, "devices", line["sums"].get("devices", 0))
        self.rows.append(row)
        self.say(f"{describe_time(now)}  {message.to_sentence()}{errors_to_words(line)}")


def describe_time(seconds: float) -> str:
    """A virtual time for people, e.g. "day 3 02:15"."""
    return f"day {int(seconds // DAY) + 1:>2} {int(seconds % DAY // 3600):02d}:{int(seconds % 3600 // 60):02d}"


# The result -----------------------------------------------------------------------------------------------------
def collect(
    task: str,
    fleet: VirtualFleet,
    history: Sequence[Mapping[str, Any]],
    boards: Mapping[str, Emulation | None],
    seconds: float,
) -> dict[str, Any]:
    final: Mapping[str, Any] = next((row for row in reversed(history) if row["kind"] == "evaluation"), {})
    kinds: dict[str, list[VirtualDevice]] = {}
    for name, board in boards.items():
        kinds.setdefault("this machine" if board is None else board.profile.key, []).append(fleet.devices[name])
    rows = [board_row(key, some, seconds) for key, some in kinds.items()]
    accuracy = {k: v for k, v in final.items() if k in ("global", "personal")}
    scores = {key: final[key] for key in (MACRO_F1, ERRORS) if key in final}
    return {
        "days": round(seconds / DAY, 3),
        "finished": bool(final),
        "rounds": list(history),
        "task": task,
        **(scores or {"accuracy": accuracy}),
        "boards": {"rows": rows, "not_reproduced": NOT_REPRODUCED},
    }


def board_row(key: str, some: Sequence[VirtualDevice], seconds: float) -> dict[str, Any]:
    """Means over the devices with one kind of board."""

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    known = all(device.watts is not None for device in some)
    heat = [m.celsius for device in some for m in device.availability.moments if m.celsius is not None]
    return {
        "board": key,
        "devices": len(some),
        "step_seconds": some[0].step_seconds,
        "willing": mean([device.willing_seconds for device in some]) / max(seconds, 1.0),
        "hours": mean([device.working for device in some]) / 3600,
        "nights": mean([len(device.days) for device in some]),
        "joules": mean([device.joules for device in some]) if known else None,
        "answers": mean([device.answers for device in some]),
        "late": mean([device.refused for device in some]),
        "given_up": mean([device.given_up for device in some]),
        "kilobytes": mean([device.bytes for device in some]) / 1000,
        "celsius": max(heat, default=None),
    }


def days_lines(result: Mapping[str, Any]) -> str:
    """The rows as a table of text, and what they do not tell."""
    head = (
        "board",
        "devices",
        "s a step",
        "willing",
        "hours",
        "nights",
        "J",
        "answers",
        "late",
        "given up",
        "kB",
        "max C",
    )
    cells = [head]
    for row in result["boards"]["rows"]:
        joules = "unknown" if row["joules"] is None else f"{row['joules']:.0f}"
        heat = "unknown" if row["celsius"] is None else f"{row['celsius']:.0f}"
        cells.append(
            (
                row["board"],
                str(row["devices"]),
                f"{row['step_seconds']:.3f}",
                f"{row['willing']:.0%}",
                f"{row['hours']:.2f}",
                f"{row['nights']:.1f}",
                joules,
                f"{row['answers']:.1f}",
                f"{row['late']:.1f}",
                f"{row['given_up']:.1f}",
                f"{row['kilobytes']:.0f}",
                heat,
            )
        )
    lines = ["".join(f"{c:<22}" if i == 0 else f"{c:>10}" for i, c in enumerate(row)) for row in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], result["boards"]["not_reproduced"]])
