"""The settings files of hospitals and of the aggregator, and what each service does with its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.contract.children.limits import Limits, check_devices
from edge_sdk.contract.run import checked_name
from edge_sdk.data.samples import Stored
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.node_settings import LEVELS, NOTHING
from edge_sdk.live.presence.labels import COHORT
from edge_sdk.nodes.configuration.deadlines import AUTO, deadline_above, parse_deadline
from edge_sdk.nodes.configuration.mask_tables import HospitalKeys
from edge_sdk.nodes.configuration.presets import RECOMMENDED
from edge_sdk.nodes.configuration.private_table import Private
from edge_sdk.nodes.daemon.device_file import existing
from edge_sdk.nodes.hospital.bundles import Kind
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.lanes import check_evaluations, list_trainings
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys
from edge_sdk.wire.options import Wire


@dataclass(frozen=True, kw_only=True)
class HospitalFile:
    """`auscult hospital FILE`.

    Attributes:
        name, aggregator: names of the hospital and of the aggregator.
        broker: the broker of its devices.
        upstream: the broker of the aggregator; None: `broker`.
        bundle, directory: as a device's.
        devices: names of all its devices, here or not; none needed with `enrolled`.
        wait_for: devices that must be here before the hospital reports itself ready; None: all but those that say that
            they cannot take part, where they may join later.
        data: what it holds of its devices' patients, for a split model; see `edge_sdk.data.patients.patients_of`.
        companions: those of its devices that have another bundle than the run's, and take part with outputs only.
        last_words: seconds after the end of a run for which `--once` waits for devices that have not acknowledged the
            last words, such as newcomers that are only now started.
        limits: what its devices may claim, and when they are suspended.
        reports: what it tells a console at the aggregator of its devices: "nothing", "counts" or "names".
        trusted_key: PEM file of the operator's public key; with it, only what is signed is taken.
        allow: which runs reach its devices.
        enrolled: devices that the aggregator's service has enrolled for it count beside `devices`.
        masks: its keys for sums over hospitals; None: it takes part in no such run.
        label_cohort: devices that have had new labels before a console is told of the sum of all.
        evaluations: rollouts and evaluations that go on here beside a training; devices have the same setting.
        trainings: that go on here side by side, none of whose devices is in another one.
        kinds: name -> devices that have another bundle than the others, and which one.
        wire: how it talks.
        upstream_wire: certificates (and leave for plain text) for the aggregator's broker; None: those of `wire`.
    """

    name: str
    aggregator: str
    broker: str
    bundle: Path
    directory: Path
    devices: tuple[str, ...] = ()
    enrolled: bool = False
    upstream: str | None = None
    wait_for: int | None = None
    data: Stored | None = None
    companions: tuple[str, ...] = ()
    last_words: float = 60.0
    label_cohort: int = COHORT
    evaluations: int = 0
    trainings: int = 1
    kinds: dict[str, Kind] = field(default_factory=dict)
    reports: str = NOTHING
    limits: Limits = field(default_factory=Limits)
    trusted_key: Path | None = None
    allow: Allow = field(default_factory=Allow)
    masks: HospitalKeys | None = None
    wire: Wire = field(default_factory=Wire)
    upstream_wire: Wire | None = None

    def __post_init__(self) -> None:
        checked_name(self.name, "name")
        checked_name(self.aggregator, "aggregator")
        check_evaluations(self.evaluations)
        list_trainings(self.trainings, self.evaluations)
        for name, kind in self.kinds.items():
            existing(kind.bundle, f"kinds.{name}.bundle")
            if (strange := sorted({*kind.devices} - {*self.devices})) and not self.enrolled:
                raise UsageError(f"kinds.{name}: {strange[0]} is none of the devices")
        self.wire.check(self.broker)
        (self.upstream_wire or self.wire).check(self.upstream or self.broker)
        existing(self.bundle, "bundle")
        if self.data is not None:
            existing(self.data.samples, "data.samples")
        if self.trusted_key is not None:
            existing(self.trusted_key, "trusted_key")
        if self.masks is not None:
            existing(self.masks.key, "masks.key")
            existing(self.masks.hospitals, "masks.hospitals")
        if not (self.devices or self.enrolled):
            raise UsageError("devices is missing: a list of texts, unless enrolled = true")
        if self.devices:
            check_devices("devices", len(self.devices))
        if self.enrolled and self.reports == NOTHING:
            raise UsageError('enrolled = true: the service has to hear of this hospital; say reports = "names"')
        if not self.enrolled:
            check_count(self.wait_for, len(self.devices), "wait_for", "devices")
        if self.label_cohort < 1:
            raise UsageError(f"label_cohort = {self.label_cohort}, at least 1 device")
        if self.reports not in LEVELS:
            raise UsageError(f"reports = {self.reports!r}, expected {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
        if not self.last_words > 0:
            raise UsageError(f"last_words = {self.last_words}, it is in seconds and above 0")
        for device in self.devices:
            checked_name(device, "devices")
        self.limits.check_children(self.devices)
        if strangers := sorted({*self.companions} - {*self.devices}):
            raise UsageError(f"companions: {strangers[0]} is none of the devices")
        if len(set(self.devices)) < len(self.devices):
            twice = next(d for d in self.devices if self.devices.count(d) > 1)
            raise UsageError(f"devices: {twice} is named twice")


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """The [run] table of an aggregator's file; see `edge_sdk.contract.run.Run`.

    Attributes:
        id: name of the run; each node keeps the state of each run apart.
        method, rounds: None: as the settings file says, or presets.METHOD and presets.ROUNDS.
        seed: of everything random.
        classes: label names in the order of the model's outputs.
        evaluate_every: rounds between evaluations on all devices; 0: only at the end.
        deadline: seconds after which a hospital goes on without the devices that have not answered, "auto" or "none".
        quorum: devices of a hospital without which its round does not end; where fewer were asked, all of these.
        settings: of the method; what `--set` takes in a replay.
        settle: the settling phase after the last round (`edge_sdk.methods.settling.settings.Settling`).
        augment: changes of windows while devices train; none: those that the bundle names.
        robust: rules in place of plain sums, against bad devices.
        uploads: vectors as small integers, and secret sums.
        privacy: noise that devices add to their uploads, and the epsilon that it keeps to.
        devices: names of those that it is for, at hospitals with `trainings` above 1; none: all.
    """

    id: str
    method: str | None = None
    rounds: int | None = None
    seed: int = 0
    classes: tuple[str, ...]
    evaluate_every: int = 0
    deadline: float | str = AUTO
    quorum: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    settle: dict[str, Any] = field(default_factory=dict)
    augment: dict[str, Any] = field(default_factory=dict)
    robust: dict[str, Any] = field(default_factory=dict)
    uploads: dict[str, Any] = field(default_factory=dict)
    privacy: dict[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_deadline(self.deadline, "deadline")


@dataclass(frozen=True, kw_only=True)
class AggregatorFile:
    """`auscult aggregator FILE`.

    Attributes:
        name, broker, bundle, directory: as a hospital's.
        run: the training job, which everybody below receives.
        wait_for: hospitals that must be ready before the run starts; None: all.
        wire: how it talks.
        hospitals: name -> number of its devices.
        settings: where settings come from that [run] does not state: "recommended" (for its method), "paper",
            "stated", or a settings file; see `edge_sdk.nodes.configuration.presets`.
        companions: name -> how many of these have another bundle than the run's, and take part with outputs only.
        deadline: seconds a round may take, or a word (see `nodes.deadlines`); its hospitals' own is `run.deadline`.
        quorum: hospitals without which a round does not end.
        device: of the torch kernels: "auto", "cpu" or "cuda".
        svt: singular value thresholding by "full" decompositions, or "fast", where that is shown to be as exact.
        public: file of public inputs, which all devices must have; for a method that compares outputs.
        private: a pretrained model and what it is for; never sent.
        masks: its keys for runs with secret sums; None: it has none.
        limits: what its hospitals may claim, and when they are suspended.
        model: a trained model that a rollout brings to devices, NPZ; None: the bundle's initial one.
        signing_key: PEM file of the operator's private key, with which the run is signed; None: it is not.
        enrolled: hospitals say themselves how many devices they have, which may change while the run goes on.
        client: its client id at the broker, where other runs of the same aggregator go on: it hears its own hospitals
            only, and reads this file again when it is written; "": its name, and no other goes on.
        lane: 0; of a rollout or an evaluation beside a training at the same hospitals, the number of their lane.
        threads: of torch on a CPU. One is fastest for small models, and beside other work; large ones gain from more.
    """

    name: str
    broker: str
    bundle: Path
    directory: Path
    hospitals: dict[str, int]
    companions: dict[str, int] = field(default_factory=dict)
    run: RunTable
    settings: str = RECOMMENDED
    deadline: float | str = AUTO
    quorum: int = 1
    wait_for: int | None = None
    device: str = "auto"
    svt: str = "full"
    threads: int = 1
    public: Path | None = None
    private: Private | None = None
    model: Path | None = None
    signing_key: Path | None = None
    masks: AggregatorKeys | None = None
    limits: Limits = field(default_factory=Limits)
    enrolled: bool = False
    client: str = ""
    lane: int = 0
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self) -> None:
        checked_name(self.name, "name")
        self.wire.check(self.broker)
        if self.masks is not None:
            existing(self.masks.key, "masks.key")
            existing(self.masks.devices, "masks.devices")
            if self.masks.enrolled is not None:
                existing(self.masks.enrolled, "masks.enrolled")
        existing(self.bundle, "bundle")
        if self.public is not None:
            existing(self.public, "public")
        if self.model is not None:
            existing(self.model, "model")
        if self.signing_key is not None:
            existing(self.signing_key, "signing_key")
        if self.threads < 1:
            raise UsageError(f"threads = {self.threads}, at least 1")
        self.limits.check_children(self.hospitals)
        check_count(self.wait_for, len(self.hospitals), "wait_for", "hospitals")
        check_count(self.quorum, len(self.hospitals), "quorum", "hospitals")
        deadline_above(self.deadline, parse_deadline(self.run.deadline, "run.deadline"))
        if self.device not in ("auto", "cpu", "cuda"):
            raise UsageError(f"device = {self.device!r}, expected auto, cpu or cuda")
        check_evaluations(self.lane, "lane")
        if self.svt not in ("full", "fast"):
            raise UsageError(f"svt = {self.svt!r}, expected full or fast")


def check_count(value: int | None, most: int, key: str, of: str) -> None:
    if value is not None and not 1 <= value <= most:
        raise UsageError(f"{key} = {value}: expected 1 to {most}, the number of {of}")
