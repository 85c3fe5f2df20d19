"""The aggregator: the global step of a method, as a service with metrics, checkpoints and a ledger.

What it writes in its directory:
    run.toml        the run as it was started
    metrics.jsonl   one JSON object a line: rounds, evaluations, the end; each once, whatever is killed when
    model.npz       the newest global model, one array for each parameter, by its name
    ledger.json     bytes from and to each hospital, and all counters, while it runs
    result.json     what it came to: the model's size and ranks, bytes, seconds, memory
    earlier/ID/     the last four of these, of the run ID that was in this directory before (see run_files.py)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.accountant import accountant_for
from aggregator.kernels import kernels_for, processor
from aggregator.metrics import Metrics
from aggregator.options import ALONE, HospitalList, PreparedRun, Process
from aggregator.phases import PhaseClock, round_seconds
from aggregator.private_model.table import Regulariser, give_regulariser, regulariser_of, warnings_of
from aggregator.run_files import MODEL_FILE, switch_files
from aggregator.shared import led
from aggregator.sizes import count_numbers, find_packed
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import Vector
from edge_sdk.atomic import make_private_directory, replace_file
from edge_sdk.contract.children.limits import Limits, check_devices
from edge_sdk.contract.children.patience import list_deadlines
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.node import Node
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.runtime import LaneSettings, LaneWork, Reporting, Runtime, Transport, TreePlace
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import (
    Complaint,
    Event,
    Report,
    errors_to_words,
    mean_accuracies,
    mean_errors,
    mean_loss,
    mean_macro_f1,
    share_name,
)
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.task_protocol import ModelTask
from edge_sdk.nodes.configuration.assembly import (
    check_bundle,
    family_of,
    fixes_hospitals,
    fixes_members,
    make_assembly,
    make_env,
    method_of,
)
from edge_sdk.nodes.configuration.deadlines import deadline_above, deadline_of
from edge_sdk.nodes.configuration.private_table import Private
from edge_sdk.nodes.hospital.suspensions import count_suspensions
from edge_sdk.nodes.kernels.family import AggregatorParts
from edge_sdk.nodes.secrets import mask_assignment
from edge_sdk.wire.options import DEFAULTS, Wire

if TYPE_CHECKING:
    from edge_sdk.live.loop.runtime import Assembly


class Aggregator:
    """One aggregator node.

    Args:
        name: what its hospitals call it.
        broker: URL of the broker that hospitals reach it by.
        bundle: file with the compiled model.
        directory: where it keeps its state and writes its results.
        run: the training job; a `PreparedRun`, where the aggregator brings keys or files into it.
        hospitals: name -> number of its devices; a `HospitalList`, where more is to be said of them, or of how long
            they are waited for.
        wire: certificates, MQTT version, durability; see `edge_sdk.wire.options.Wire`.
        process: GPU or not, and its place beside other runs of the same aggregator; see `Process`.

    Attributes:
        on_event: called with what the run tells, on the network's thread; None: nobody wants to hear it. Set it before
            `run`.
    """

    def __init__(
        self,
        name: str,
        *,
        broker: str,
        bundle: str | Path,
        directory: str | Path,
        run: Run | PreparedRun,
        hospitals: Mapping[str, int] | HospitalList,
        wire: Wire = DEFAULTS,
        process: Process = ALONE,
    ):
        prepared = run if isinstance(run, PreparedRun) else PreparedRun(run)
        listed = hospitals if isinstance(hospitals, HospitalList) else HospitalList(hospitals)
        self.name, self.job = checked_name(name, "aggregator name"), prepared.run
        self.on_event: Callable[[Any], None] | None = None
        self.bundle, self.process = read_bundle(bundle), process
        self.hospitals = checked_hospitals(listed.hospitals)
        self.deadline, self.quorum = deadline_above(listed.deadline, deadline_of(self.job)), listed.quorum
        self.limits = listed.limits
        self.limits.check_children(self.hospitals)
        self.directory = Path(directory)
        make_private_directory(self.directory)
        self.log = logging.getLogger(f"auscult.{name}")
        regulariser = self.find_regulariser(prepared.private)
        check_bundle(self.job, self.bundle, "aggregator")
        self.own = self.bring(prepared, listed.companions, regulariser)
        self.check_settings(regulariser)
        self.metrics = Metrics(self.directory / "metrics.jsonl", self.job.id)
        self.finished, self.files_are_own = threading.Event(), False
        self.latest: dict[str, float] = {}
        self.phases = PhaseClock()
        self.deadlines: dict[str, float] = {}
        self.runtime = self.make_runtime(broker, listed, wire)

    def find_regulariser(self, private: Private | None) -> Regulariser | None:
        """What a pretrained model adds to the objective; None: nothing. UsageError: its files cannot be used."""
        if private is None:
            return None
        return regulariser_of(private, self.bundle, self.job.seed, processor(self.process.device))

    def bring(
        self, given: PreparedRun, companions: Mapping[str, int], regulariser: Regulariser | None
    ) -> dict[str, Any]:
        """The fields of the method's env that only this aggregator has."""
        run = given.run
        parts = AggregatorParts(
            run=run,
            bundle=self.bundle,
            hospitals=self.hospitals,
            companions=companions,
            public=given.public,
            model=given.model,
        )
        own = {**give_regulariser(method_of(run).env, regulariser), **family_of(run).for_aggregator(parts)}
        return own | mask_assignment.for_aggregator(run, given.masks, self.hospitals)

    def check_settings(self, regulariser: Regulariser | None) -> None:
        """Say now what the method finds wrong with the settings (starting it is pure), and what to be careful with."""
        start = self.assemble(self.job)
        start.role.start(start.env)
        for warning in warnings_of(self.job, self.hospitals, regulariser, self.bundle.theta0):
            self.log.warning("%s: %s", self.name, warning)

    def make_runtime(self, broker: str, listed: HospitalList, wire: Wire) -> Runtime:
        """The node that has this one's role, above all its hospitals."""
        return Runtime(
            self.name,
            LaneWork(directory=self.directory, assemble=self.assemble, told=self.receive_event, run=self.job),
            place=TreePlace(
                children=tuple(self.hospitals),
                sizes=self.hospitals,
                wait_for=listed.wait_for,
                flexible=listed.enrolled and not fixes_members(self.job),
            ),
            transport=Transport(broker=broker, wire=wire),
            lanes=LaneSettings(client=self.process.client, lane=self.process.lane),
            reporting=Reporting(figures=self.count_figures),
            log=self.log,
        )

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Serve until `stop`, or until `until()` says so."""
        self.runtime.run(until)

    def stop(self) -> None:
        self.runtime.stop()

    def assemble(self, run: Run) -> Assembly:
        """This aggregator's part in a run: role, env and codecs."""
        check_bundle(run, self.bundle, "aggregator")
        kernels = led(kernels_for(method_of(run).env, self.process.device, self.process.svt), self.process.ranks)
        parts = {**kernels, **self.own}
        known = {"sizes": self.hospitals, "limits": self.limits, **accountant_for(run)}
        self.own_env: NodeEnv = make_env(run, self.bundle.layout, self.bundle.theta0, **known, **parts)
        return make_assembly(run, "aggregator", self.own_env, self.deadline, self.quorum)

    def receive_event(self, number: int, message: Any) -> None:
        """Write an event into the metrics, save the model where there is a new one, and pass the event on.

        The runtime calls this after its commit, and again if the process dies before it notes that it has; `Metrics`
        drops the repetition.
        """
        self.keep_earlier_files()
        if isinstance(message, Complaint):
            kind = message.to_metrics()["kind"]
            self.metrics.add(number, {**message.to_metrics(), "time": time.time()})
            self.runtime.counters.count(f"{kind}.{message.sender}")
            self.log.warning("%s: %s", self.name, message.to_sentence())
        elif isinstance(message, Event):
            more = {"time": time.time(), "bytes": self.runtime.counters.totals(), **self.describe_shown()}
            more |= {"phases": self.read_phases(), "task": self.bundle.task.kind}
            if isinstance(message, Report):
                task = self.bundle.task
                more |= task.fleet_scores(message.sums) | errors_in_units(task, message.sums, self.job)
            self.metrics.add(number, {**message.to_metrics(), **more, "deadlines": self.read_deadlines()})
            self.log.info("%s: %s%s", self.name, message.to_sentence(), errors_to_words(more))
            self.latest |= describe_figures({**message.to_metrics(), "task": self.bundle.task.kind})
        if isinstance(message, (Report, Finished)):
            self.save_model()
        if self.on_event is not None:
            self.on_event(message)
        if isinstance(message, Finished):
            self.deadlines = self.read_deadlines()
            self.finished.set()

    def keep_earlier_files(self) -> None:
        """Put the files of an earlier run in the directory aside, before the first of this run's is written."""
        if not self.files_are_own:
            switch_files(self.directory, self.job.id)
            self.files_are_own = True

    def count_figures(self, node: Node) -> dict[str, float]:
        """Further gauges: suspensions, and what the latest line of metrics says."""
        return count_suspensions(node) | self.latest

    def read_deadlines(self) -> dict[str, float]:
        """Kind of question -> the deadline that follows from the rounds so far, in seconds; "all" where it is set, and
        none where everybody is waited for."""
        assert self.runtime.node is not None  # told is called within a run
        below = self.runtime.node.record.below
        if below.policy.measured:
            return list_deadlines(below.times, below.policy.least)
        return {} if below.policy.deadline == inf else {"all": below.policy.deadline}

    def change_waiting(self, run: Run, deadline: float | str, quorum: int) -> None:
        """Wait in another way from now on. `run`: the same, but for its deadline and quorum.

        Raises:
            UsageError: the two deadlines do not go together.
        """
        self.deadline, self.quorum, self.job = deadline_above(deadline, deadline_of(run)), quorum, run
        self.runtime.change_waiting(run)

    def change_limits(self, limits: Limits) -> None:
        """Let other limits hold from now on, as after a restart.

        Raises:
            UsageError: they name a hospital that there is not.
        """
        limits.check_children(self.hospitals)
        self.limits = limits
        self.runtime.change(limits=limits)

    def change_hospitals(self, hospitals: Mapping[str, int]) -> None:
        """Let other hospitals take part from the next question on. From any thread.

        Raises:
            UsageError: a name cannot be used, or those of this run are those with which it began.
        """
        checked = checked_hospitals(hospitals)
        why = fixes_hospitals(self.job) if self.runtime.flexible else "each has the number of devices in the settings"
        if why:
            raise UsageError(f"hospitals changed: they wait for the next run: {why}")
        come, gone = sorted({*checked} - {*self.hospitals}), sorted({*self.hospitals} - {*checked})
        self.hospitals = checked
        self.runtime.change(children=tuple(checked))
        self.log.info("%s: hospitals have changed: new: %s; gone: %s", self.name, come, gone)

    def describe_shown(self) -> dict[str, Any]:
        """Size of the newest model as it travels: its numbers, None where none travels; and the ranks of its layers,
        where it travels in factors."""
        shown = self.show()
        packed = find_packed(shown)
        ranks = {} if packed is None else {"ranks": lowrank.ranks(self.bundle.layout, packed)}
        return {"sent_parameters": count_numbers(shown) or None, **ranks}

    def read_phases(self) -> dict[str, float]:
        """Kind of question -> seconds for which its slowest answer was waited for, since the line of metrics before."""
        assert self.runtime.node is not None  # told is called within a run
        return round_seconds(self.phases.read(self.runtime.node.record.below.times))

    def read_state(self) -> Any:
        """The role's state at this moment."""
        assert self.runtime.node is not None  # told is called within a run
        return self.runtime.node.record.state

    def show(self) -> Any:
        """The newest global model, as the method shows it."""
        return method_of(self.job).show(self.own_env, self.read_state())

    def global_model(self) -> Vector | None:
        """theta (n,) of what was shown last; None where every device has a model of its own."""
        return method_of(self.job).models(self.own_env, None, self.newest).get("global")

    def save_model(self) -> None:
        """Write the newest global model in place of the one before; nothing, where there is none."""
        layout, self.newest = self.bundle.layout, self.show()
        theta = self.global_model()
        if theta is None:
            return
        arrays: dict[str, Any] = {slot.name: layout.view(theta, slot) for slot in layout.slots}
        with replace_file(self.directory / MODEL_FILE) as file:
            np.savez(file, **arrays)


def checked_hospitals(hospitals: Mapping[str, int]) -> dict[str, int]:
    """The hospitals, once each has a name that may be used and at least one device."""
    if not hospitals:
        raise UsageError("hospitals: none named; expected at least one, as name = number of its devices")
    for name, devices in hospitals.items():
        checked_name(name, "hospital name")
        check_devices(f"hospitals.{name}", devices)
    return dict(hospitals)


def errors_in_units(task: ModelTask, sums: Mapping[str, float], run: Run) -> dict[str, Any]:
    """Mean absolute errors of models that predict values, with their units; nothing of other tasks.

    Returns:
        "errors": model -> value -> its error, and "units": of each value.
    """
    means = mean_errors(sums)
    if not means:
        return {}
    from edge_sdk.model.tasks.task import Values

    return {"errors": task.mean_errors(means, run.classes), "units": [*task.units]} if isinstance(task, Values) else {}


def describe_figures(line: Mapping[str, Any]) -> dict[str, float]:
    """Gauges of a line of metrics: rounds, devices, loss, epsilon; of each model its accuracy, or its exact match
    or steps right and macro-F1."""
    found = {"rounds_done": float(line["round"])} if "round" in line else {}
    if line["kind"] == "round":
        found["round_devices"] = float(line["devices"])
    if (loss := mean_loss(line)) is not None:
        found["loss"] = loss
    if "epsilon" in line:
        found["epsilon"] = float(line["epsilon"])
    sums, named = line.get("sums", {}), share_name(line).replace(" ", "_")
    found |= {f"{named}.{name}": share for name, share in mean_accuracies(sums).items()}
    return found | {f"macro_f1.{name}": f1 for name, f1 in mean_macro_f1(sums).items()}
