"""A device's part in the runs of its hospital: its samples behind functions of theta, and what runs make for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk.contract.children.device_facts import Reason
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.runtime import LaneSettings, LaneWork, Runtime, Transport, TreePlace
from edge_sdk.live.membership.permission import Permission, Willingness
from edge_sdk.live.presence.directory import disown, own_directory
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.inputs import Array
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.around import is_rollout
from edge_sdk.nodes.device.live_device import LiveDevice
from edge_sdk.nodes.device.options import DevicePolicy, LocalTraining
from edge_sdk.nodes.models import kept_models
from edge_sdk.nodes.models.working_model import WorkingModel, load_working, note_working, remove_old_runs
from edge_sdk.nodes.policy.admission import Gate
from edge_sdk.nodes.policy.budget import TrainingBudget
from edge_sdk.nodes.policy.lanes import hears_of_rollout, list_lanes, rollouts_trust
from edge_sdk.nodes.policy.trust import Trust
from edge_sdk.wire.options import Wire

if TYPE_CHECKING:
    from edge_sdk.contract.method import NodeEnv
    from edge_sdk.live.loop.runtime import Assembly
    from edge_sdk.methods.shared.evaluation.evaluation import Finished, Models
    from edge_sdk.nodes.device.lanes import DeviceLane
    from edge_sdk.nodes.device.pace import TrainingPace
    from edge_sdk.nodes.device.run_env import Source
    from edge_sdk.nodes.models.last_line import LastLine
    from edge_sdk.nodes.models.versions import Versions


class Participant:
    """What a device is in runs; `Device` puts an application's interface around it, and says what the arguments are.

    Attributes:
        on_event: called with what the run tells this device; None: nobody wants to hear it.
        train, held_out, validation: samples that the application has ready; None: it has none, or observes them.
        unlabelled: reads those without a label; None: it has none ready.
        live: what it observes.
        current: the run that it takes part in. kept: what that has made here so far.
        working: the model that predicts. rollout: the one that it takes part in.
        finished: set when the run is over, and when it is refused for good. Another run clears it.
        missing: samples for want of which the run is refused for now.
    """

    def __init__(
        self,
        name: str,
        *,
        hospital: str,
        broker: str,
        bundle: str | Path,
        directory: Path,
        wire: Wire,
        policy: DevicePolicy,
        training: LocalTraining,
    ):
        budget, key, threads = policy.read_budget(), policy.trusted_key, training.threads
        self.on_event: Callable[[Any], None] | None = None
        self.threads, self.warm_start, self.masks = threads, training.warm_start, policy.masks
        self.name, self.trainer = checked_name(name, "device name"), training.trainer
        self.model = open_model(bundle, threads)
        self.own_model = self.model  # the application's, also while a run is for a bundle that a rollout has brought
        self.train: Samples | None = None
        self.held_out: Samples | None = None
        self.validation: Samples | None = None
        self.unlabelled: Source | None = None
        self.directory, self.trust = directory, Trust(key, directory)
        self.public, self.digest, self.kept = training.read_public(), b"", kept_models.KeptModels()
        self.current: Run | None = None
        self.working = load_working(directory, f"device {name}", self.model, threads)
        self.log = logging.getLogger(f"auscult.{name}")
        self.live = LiveDevice(name, self.model.bundle, directory / "samples", training.recording, self.log)
        self.finished, self.missing = threading.Event(), 0
        self.rollouts = rollouts_trust(key, directory, policy.evaluations)
        self.gate = Gate(policy.allow, directory, self.finished)
        self.pace = None if budget is None else self.make_pace(budget, threads)
        self.lanes = self.make_lanes(policy) if policy.evaluations else []
        self.runtime = self.make_runtime(checked_name(hospital, "hospital"), broker, wire)
        for gate, lane in zip((self.gate, *(lane.gate for lane in self.lanes)), self.runtime.lanes, strict=True):
            gate.counters = lane.counters
        self.rollout: Run | None = None

    @cached_property
    def versions(self) -> Versions:
        """What rollouts bring."""
        from edge_sdk.nodes.models.versions import Versions  # with the first run, as the next

        own = self.name, self.directory, self.own_model, self.threads
        return Versions(*own, lambda: self.working, self.use_version, self.log)

    @cached_property
    def last_line(self) -> LastLine:
        """What keeps the models before a bad run predicting."""
        from edge_sdk.nodes.models.last_line import LastLine

        return LastLine(self.name, self.directory, self.own_model, self.threads, self.tell, self.log)

    def make_lanes(self, policy: DevicePolicy) -> list[DeviceLane]:
        """The lanes for evaluations beside the training."""
        from edge_sdk.nodes.device.lanes import DeviceLane  # which few devices have

        given = policy.trusted_key, policy.allow
        return [DeviceLane(n, self, *given, self.make_willingness()) for n in list_lanes(policy.evaluations)]

    def make_runtime(self, hospital: str, broker: str, wire: Wire) -> Runtime:
        """The node that has this one's role, below its hospital; evaluations have lanes of their own beside it."""
        work = LaneWork(
            directory=self.directory,
            assemble=self.assemble,
            told=self.receive_event,
            told_refusal=self.receive_refusal,
            check_run=self.check_run,
            look_on=self.look_on,
            willingness=self.make_willingness(),
            permission=Permission(self.gate.owner),
        )
        return Runtime(
            self.name,
            work,
            place=TreePlace(parent=hospital),
            transport=Transport(broker=broker, wire=wire),
            lanes=LaneSettings(beside={lane.number: lane.work for lane in self.lanes}),
            log=self.log,
        )

    def tell(self, message: Any) -> None:
        """Hand an event to the application, if it wants to hear of any."""
        if self.on_event is not None:
            self.on_event(message)

    def check_start(self) -> None:
        """Raises AuscultError if it could not run now: its directory or its store cannot be used."""
        disown(own_directory(self.directory))
        if self.train is None and self.trainer is None and self.model.bundle.signal is not None:
            self.live.open()

    # -- its budget

    def make_pace(self, budget: TrainingBudget, threads: int) -> TrainingPace:
        """What holds this device's training to a budget."""
        from edge_sdk.nodes.device.pace import TrainingPace  # with all that looks at a board

        def cancelled() -> bool:
            return self.runtime.cancelled() or (self.train is None and self.live.all_erased())

        own, log = (budget, self.name, self.directory), self.log
        return TrainingPace(*own, threads=threads, cancelled=cancelled, wake=lambda: self.runtime.wake(), log=log)

    def make_willingness(self) -> Willingness:
        return Willingness() if self.pace is None else Willingness(self.ask_pace, self.pace.idle_look)

    def ask_pace(self) -> Reason | None:
        return None if self.pace is None else self.pace.unwilling()

    # -- taking part in a run

    def assemble(self, run: Run) -> Assembly:
        """This device's part in a run: role, env and codecs. UsageError: its settings do not allow the run."""
        from edge_sdk.nodes.configuration.assembly import check_bundle, make_assembly  # what only a run needs, as below
        from edge_sdk.nodes.device.progress_log import ProgressLog
        from edge_sdk.nodes.device.run_env import counting
        from edge_sdk.nodes.models.versions import choose_bundle
        from edge_sdk.nodes.policy import score_filter

        self.runtime.permission.check(run)
        if not (self.lanes and hears_of_rollout(self.lanes[0].folder, self.working.run)):
            self.versions.leave_unconfirmed(run.id)
        self.rollout = run if is_rollout(run) else None
        if self.rollout is not None:
            return self.assemble_rollout(run)
        if run.devices and self.name not in run.devices:
            raise UsageError(f"device {self.name}: it is for other devices: it names {len(run.devices)}")
        self.model = choose_bundle(self.own_model, self.working, run)
        check_bundle(run, self.model.bundle, "device")
        assembly = make_assembly(run, "device", self.env(run))
        self.current, self.kept = run, kept_models.load(self.kept_path(run))
        if self.kept.models and not self.versions.predicts(self.working.run):
            self.use_models(run)  # unless a rollout has brought a version since
        (self.finished.set if self.kept.finished else self.finished.clear)()
        for old in remove_old_runs(self.directory, run.id):
            self.log.info("%s: the files of run %s are removed: it is long over", self.name, old)
        role = score_filter.limited(self.gate.ledger.guard(run, assembly.role), lambda: self.gate.allow)
        role = counting(role, assembly.env.gradients, self.runtime.counters.count)
        assembly = replace(assembly, role=ProgressLog(self.name, run.id, self.log).watch(role))
        if self.pace is None or self.trainer is not None:  # code of the application has no steps whose progress we keep
            return assembly
        return self.pace.keep_calls(assembly, self.digest)

    def assemble_rollout(self, run: Run) -> Assembly:
        """This device's part in a rollout. Nothing is trained, and what runs have made stays."""
        from edge_sdk.nodes.device.lanes import assemble_version, choose_present_judges
        from edge_sdk.nodes.models.versions import check_whole

        check_whole(self.model)
        self.current = None
        self.finished.clear()
        samples = None if self.trainer is not None else choose_present_judges(self, run)
        return assemble_version(run, self.versions, lambda: samples)

    def look_on(self, run: Run) -> Assembly | None:
        from edge_sdk.nodes.configuration.onlooker import assemble_onlooker  # few devices are one

        self.current, self.kept = run, kept_models.load(self.kept_path(run))
        return None if self.kept.finished else assemble_onlooker(run, self.model.layout, self.model.theta0)

    def check_run(self, run: Run) -> None:
        """Raises UsageError if a run is not to be trusted."""
        (self.rollouts if is_rollout(run) else self.trust).check_run(run)

    def choose_judges(self, run: Run) -> Samples | None:
        """Own samples on which models are compared, those to choose on or else held-out ones; None: there are none."""
        if self.trainer is not None or (self.train is None and self.model.bundle.signal is None):
            return None
        from edge_sdk.nodes.models.versions import choose_judges

        held_out, chosen = self.choose_samples(run)[1:]
        samples = choose_judges(chosen, held_out)
        return None if samples is None else self.select_listed(samples, run, "held-out")

    def use_version(self, working: WorkingModel) -> None:
        self.working = working

    def env(self, run: Run, cancellable: bool = True) -> NodeEnv:
        """The env of this device: its samples behind functions of theta. `cancellable`: training stops between two
        steps when a newer question has come."""
        from edge_sdk.nodes.device.run_env import env_of

        return env_of(self, run, cancellable)

    def choose_samples(self, run: Run) -> tuple[Samples, Samples | None, Samples | None]:
        """Samples to learn from, to be judged by and to choose on: those of `train_on`, or else what was observed and
        labelled, of which some are set apart to choose on where the run makes choices."""
        if self.train is not None:
            return self.train, self.held_out, self.validation
        frozen = self.live.open().freeze(run.id, self.model.task, run.classes)
        apart = run.settle or self.model.task.calibrates
        train, chosen = frozen.apart if apart else (frozen.train, None)
        return train, frozen.held_out, chosen

    def must_give_way(self) -> bool:
        """Is training to stop before its next step?

        Raises:
            UsageError: the owner has erased all that it trains on.
        """
        if self.train is None and self.live.all_erased():
            raise UsageError(f"device {self.name}: all samples of this run have been erased")
        return self.runtime.cancelled() if self.pace is None else self.pace()

    def select_listed(self, samples: Samples, run: Run, part: str) -> Samples:
        from edge_sdk.nodes.kernels.labels import select_listed

        return select_listed(samples, run, f"{self.name}: {part}", self.log, self.model.task)

    def codes(self, samples: Samples, run: Run) -> Array:
        return self.model.task.targets(samples.labels, run.classes, f"device {self.name}", samples.x)

    # -- what the run tells

    def receive_event(self, number: int, message: Any) -> None:
        """Keep what the role tells the application, and pass it on.

        The runtime calls this after its commit, and again if the process dies before it notes it: no event is missed.
        """
        from edge_sdk.methods.shared.evaluation.beside import SAID
        from edge_sdk.methods.shared.evaluation.evaluation import Finished, Models, Scores
        from edge_sdk.nodes.device.descriptions import describe_scores

        if isinstance(message, Scores):
            self.kept = replace(self.kept, scores=message.sums)
            judged = self.model.task.describe(message.sums) or describe_scores(message.sums)
            self.log.info("%s: judged the models of round %d: %s", self.name, message.round, judged)
        if isinstance(message, SAID):
            self.log.warning("%s: round %d: %s", self.name, message.round, message.what)
        if isinstance(message, (Models, Finished)):
            self.keep(message)
        if self.rollout is not None:
            self.versions.receive_event(self.rollout, message)
        self.tell(message)
        if isinstance(message, Finished):
            self.live.end_run()
            self.log.info("%s: the run is over", self.name)
            if self.pace is not None:
                self.pace.progress.forget()
            self.finished.set()

    def receive_refusal(self, why: str, missing: int = 0) -> None:
        """Tell the application that the run goes on without this device: until it has more samples, if some miss."""
        from edge_sdk.nodes.device.descriptions import RunRefused

        self.missing = missing
        (self.finished.clear if missing else self.finished.set)()
        try:
            self.tell(RunRefused(why))
        except Exception:  # the application's own affair, as with events
            self.log.exception("%s: the application failed on a refused run", self.name)

    def keep(self, message: Models | Finished) -> None:
        """Save the run's models, and let new ones predict from now on."""
        from edge_sdk.methods.shared.evaluation.evaluation import Finished, Models

        over = isinstance(message, Finished)
        if isinstance(message, Models):
            self.kept = replace(self.kept, models=message.models, ensemble=message.ensemble)
        if self.current is None:
            self.kept = replace(self.kept, finished=over)
            return
        self.kept = replace(self.kept, finished=over, classes=self.current.classes, bundle=self.model.sha256)
        kept_models.save(self.kept_path(self.current), self.kept)
        if isinstance(message, Models):
            self.use_models(self.current)

    def use_models(self, run: Run) -> None:
        """Predict by the run's models from now on, and after a restart, unless those before it are better here."""
        working = WorkingModel(f"device {self.name}", self.model, run.classes, self.kept, run.id)
        if self.kept.classes:  # else a file of before, whose models are known to predict only while the run is
            working = self.last_line.choose(self.working, working, self.choose_judges(run))
            note_working(self.directory, working)
        self.working = working
        known = () if self.kept.ensemble is None else self.kept.ensemble.classes
        if known and working.run == run.id and (never := [c for i, c in enumerate(run.classes) if i not in known]):
            words = "%s: the personal model of run %s never says %s: nothing to train on has that label"
            self.log.info(words, self.name, run.id, ", ".join(never))

    def kept_path(self, run: Run) -> Path:
        return self.directory / f"{run.id}.npz"


def open_model(bundle: str | Path, threads: int) -> Model:
    """The model of a bundle."""
    file = read_bundle(bundle)
    if not file.is_split:
        return Model(file, threads)
    from edge_sdk.model.split_model import SplitModel  # which few devices have

    return SplitModel(file, threads)
