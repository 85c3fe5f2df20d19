"""What to replay, and what is known of it before anything starts: the run, the data's options, the method's kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.contract.search import overlaid
from edge_sdk.errors import UsageError
from edge_sdk.hardware.bad_link import LinkFaults
from edge_sdk.hardware.boards.emulation import Emulation
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.plugged import PluggedTask
from edge_sdk.model.tasks.task import STEP_VALUES, STEPS, Reconstruction, SeveralLabels, StepClasses, StepValues
from edge_sdk.nodes.configuration.assembly import augmentation_of, describe_excess, family_of, method_of, settings_of
from edge_sdk.nodes.configuration.presets import METHOD, PRESETS, RECOMMENDED, ROUNDS, preset_of
from edge_sdk.nodes.configuration.private_table import Private, takes_private
from edge_sdk.nodes.kernels.outputs import check_count
from edge_sdk.nodes.secrets.mask_assignment import check_hospitals
from edge_sdk.replay import datasets
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.cohorts.ready import is_ready
from edge_sdk.wire.options import Wire

LINK = tuple(f.name for f in fields(LinkFaults))
PUBLIC, PUBLIC_WINDOWS = 1000, 256
"""Number of public inputs for a method that needs some and was told none. Of a data set: as many as FedAL's paper has,
but at most a fifth of the samples. Of traces: so many windows."""

NEIGHBOURS = 40
"""Devices whose strongest neighbour is computed, at most."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What to replay, as the command line says it.

    Attributes:
        data: a folder of traces or of samples that are ready, or NAME[:PATH] of a data set.
        out: directory for everything that is written; new or empty, unless the replay is to go on.
        resume: go on with the replay that was begun in `out`.
        boards: that the devices are, in turns; none: this machine.
        link: faults of the devices' link, fields of `edge_sdk.hardware.bad_link.LinkFaults`; empty: it has none.
        hospitals: how many; no more than there are devices.
        method: a key of METHODS.
        broker: "embedded", or the URL of one.
        insecure: plain text may leave this machine, to that broker.
        options: of the data: fields of `cohorts.traces.Cutting`, or of `cohorts.datasets.Dealing`.
        evaluate_every: rounds between evaluations on all devices; 0: only at the end.
        local_only: devices also train alone, after the run.
        neighbours: devices whose strongest neighbour is computed, at most; drawn where there are more. 0: none.
        bundle: none: the default for these data. Several, where models may differ: dealt out to devices in turns.
        preset: where settings come from that are not stated here: "recommended", "paper", or "stated" (the method's
            defaults); see `edge_sdk.nodes.configuration.presets`.
        recommend: what is stated nowhere is filled in from the data: network, phases, changes of windows.
        stated: names of the method's settings, "method" and "rounds", where these are stated for this replay.
        settings: of the method.
        settle: settings of the settling phase; empty: there is none.
        augment: how devices change windows while they train; empty: not at all.
        robust: rules in place of plain sums; empty: sums are plain.
        uploads: how vectors travel as integers; empty: as floats.
        privacy: noise that devices add to uploads; empty: none.
        newcomers: devices that take no part in training, and join when the run is over.
        private: what the aggregator keeps to itself; its samples go to no device.
        confusion: the result has the confusion matrix of each device and model.
        command: the command line, for the report; "": it was not started from one.
    """

    data: str | Path
    out: Path
    hospitals: int = 3
    method: str = METHOD
    rounds: int = ROUNDS
    seed: int = 0
    broker: str = "embedded"
    insecure: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    evaluate_every: int = 0
    local_only: bool = True
    neighbours: int = NEIGHBOURS
    bundle: tuple[Path, ...] = ()
    preset: str = RECOMMENDED
    recommend: bool = False
    stated: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    settle: Mapping[str, Any] = field(default_factory=dict)
    augment: Mapping[str, Any] = field(default_factory=dict)
    robust: Mapping[str, Any] = field(default_factory=dict)
    uploads: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)
    newcomers: tuple[str, ...] = ()
    private: Private | None = None
    confusion: bool = False
    command: str = ""
    resume: bool = False
    boards: tuple[Emulation, ...] = ()
    link: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise UsageError(f"preset = {self.preset!r}, expected one of: {', '.join(PRESETS)}")
        if strange := next((key for key in self.link if key not in LINK), None):
            raise UsageError(f"--link {strange}: there are {', '.join(LINK)}")
        if self.neighbours < 0:
            raise UsageError(f"--neighbours {self.neighbours}: devices, or 0 (or --no-neighbours) for none")
        if self.hospitals < 1:
            raise UsageError(f"--hospitals {self.hospitals}: at least 1")
        if not self.resume and self.out.exists() and any(self.out.iterdir()):
            raise UsageError(f"--out {self.out}: is not empty; name another directory, remove it, or --resume")

    @property
    def all_settings(self) -> Mapping[str, Any]:
        """Settings of the method that are stated or in the preset; all others are its defaults."""
        return overlaid(preset_of(self.method, self.preset), self.settings)

    def as_run(self, classes: tuple[str, ...]) -> Run:
        """The run, of these classes, before its bundle and its public inputs are known."""
        return Run(
            id=f"replay-{self.method.replace('+', '-')}-{self.seed}",
            method=self.method,
            settings=self.all_settings,
            rounds=self.rounds,
            seed=self.seed,
            classes=classes,
            evaluate_every=self.evaluate_every,
            settle=self.settle,
            augment=self.augment,
            robust=self.robust,
            uploads=self.uploads,
            privacy=self.privacy,
        )


def plan_run(job: Replay, cohort: Cohort) -> Run:
    """Makes the run that the aggregator will be given, and checks all that can be checked without a process.

    Raises:
        UsageError: the broker's address, a setting of the method or --private cannot be used, or there are too few
            public inputs for the method.
    """
    if job.broker != "embedded":
        Wire(insecure=job.insecure).check(job.broker)
    run = job.as_run(cohort.classes)
    settings = settings_of(run)
    check_augmentation(run, cohort)
    if family_of(run).public:
        check_count(run, settings, 0 if cohort.public is None else len(cohort.public))
    check_newcomers(job, cohort, run)
    sizes = {hospital: len(devices) for hospital, devices in members_of(job, cohort).items()}
    check_hospitals(run, sizes)
    if why := describe_excess(settings, sizes):
        raise UsageError(why)
    if job.private is not None and cohort.task is not None:
        raise UsageError("--private with --target or --labels: a pretrained model tells classes apart")
    if job.private is not None and not takes_private(method_of(run).env):
        raise UsageError(f"--private: the aggregator of {job.method} has no use for a pretrained model")
    return run


def check_augmentation(run: Run, cohort: Cohort) -> None:
    """Raises UsageError if samples of this kind cannot be augmented so."""
    how = augmentation_of(run)
    if how.changes and "x" not in cohort.shapes:
        raise UsageError(f"--augment: a sample has {', '.join(cohort.shapes)}; only one array is augmented, of floats")
    how.check(cohort.shapes.get("x", ()))


def check_newcomers(job: Replay, cohort: Cohort, run: Run) -> None:
    """Raises UsageError if a newcomer is no device, a hospital would train with nobody, or the method has no model for
    newcomers."""
    if job.newcomers and method_of(run).kernels != "plain":
        raise UsageError(f"--newcomers: method {job.method} has no global model that a newcomer could begin with")
    if strange := [name for name in job.newcomers if name not in cohort.devices]:
        raise UsageError(f"--newcomers {strange[0]}: is no device; there are: {', '.join(sorted(cohort.devices))}")
    for hospital, devices in members_of(job, cohort).items():
        if not devices:
            raise UsageError(f"--newcomers: all devices of {hospital} are; name fewer, or fewer --hospitals")


def members_of(job: Replay, cohort: Cohort) -> dict[str, tuple[str, ...]]:
    """Hospital -> its devices that take part in training."""
    return {h: tuple(d for d in devices if d not in job.newcomers) for h, devices in cohort.tree.items()}


def is_split(job: Replay) -> bool:
    """Does the method train a split model? No device can do that alone, so there is no local-only baseline then."""
    return family_of(Run(id="replay", method=job.method)).divided


def data_options(job: Replay) -> Mapping[str, Any]:
    """The options of the data, with public inputs where the method needs some, and without the aggregator's samples."""
    options = add_public(job)
    if job.private is None or not job.private.reserved:
        return options
    return {**options, "reserved": job.private.reserved}


def asked_options(job: Replay) -> Mapping[str, Any]:
    """The options of the data, with what a bundle is for, labels, windows or a plug-in's task, if nothing is asked."""
    options, of_bundle = data_options(job), options_of_bundles(job.bundle)
    if "task" in of_bundle:
        return {**of_bundle, **options}
    return options if any(options.get(key) for key in ("target", "task", "labels")) else {**options, **of_bundle}


def options_of_bundles(paths: Iterable[Path]) -> dict[str, Any]:
    """Options of data that the first of some bundle files says; none: it is for classes or values."""
    first = next((path for path in paths if path.is_file()), None)
    task = None if first is None else read_bundle(first).task
    if isinstance(task, PluggedTask):
        return {"task": task.option}
    if isinstance(task, Reconstruction):
        return {("task" if key == "kind" else key): value for key, value in task.entry().items()}
    if isinstance(task, StepClasses):
        return {"task": STEPS, "labels": ",".join(task.names), "steps": task.steps}
    if isinstance(task, StepValues):
        named = {"target": ",".join(task.names)} if task.names else {}
        return {"task": STEP_VALUES, "steps": task.steps, **named}
    return {"labels": ",".join(task.names)} if isinstance(task, SeveralLabels) else {}


def add_public(job: Replay) -> Mapping[str, Any]:
    """The options of the data; a method that compares outputs gets public inputs without being asked for them."""
    if not family_of(Run(id="replay", method=job.method)).public or "public" in job.options:
        return job.options
    if Path(job.data).is_dir():
        return {**job.options, "public": 1 if is_ready(Path(job.data)) else PUBLIC_WINDOWS}
    return {**job.options, "public": min(PUBLIC, len(datasets.load(str(job.data))) // 5)}
