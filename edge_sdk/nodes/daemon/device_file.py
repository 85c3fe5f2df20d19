"""The settings file of a device, and what its service does with it. Those of other nodes are in settings_files.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from edge_sdk.contract.children.device_facts import TOLD, check_told
from edge_sdk.contract.run import checked_name
from edge_sdk.data.cut import Cut
from edge_sdk.data.samples import Normalise, Stored
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.budget import TrainingBudget
from edge_sdk.nodes.policy.lanes import check_evaluations
from edge_sdk.wire.options import Wire

LEDGER = "ledger.json"
"""File in a service's directory that says how things stand there."""


@dataclass(frozen=True, kw_only=True)
class DeviceFile:
    """`auscult device FILE`.

    Attributes:
        name, hospital: names of the device and of its hospital: letters, digits, `_`, `-`, `.`.
        broker: `mqtts://host[:port]`, or `mqtt://` on this machine; `wss://host/mqtt` where only the web gets through.
        bundle: the compiled model; the one that the run names.
        directory: all that outlives the process: personal component, messages on their way.
        data: its samples: a trace that is cut into windows, or samples that are ready.
        threads: of onnxruntime.
        wire: how it talks.
        local_only: after the run, also train on the own samples alone, to tell what taking part has brought.
        public: file of public inputs, for a method that compares outputs; the run names it by its content.
        budget: when it may train; None: whenever its hospital asks.
        trusted_key: PEM file of the operator's public key; with it, only what is signed is taken.
        allow: which runs it takes part in.
        warm_start: a new run begins with the personal model that an earlier one has made here, if it has one that fits.
        masks: its keys for runs with secret sums; None: it takes part in no such run.
        evaluations: rollouts and evaluations that it takes part in beside a training.
        tells: facts of this machine that its hospital is told: "version", "board", "battery".
    """

    name: str
    hospital: str
    broker: str
    bundle: Path
    directory: Path
    data: Cut | Stored
    threads: int = 1
    local_only: bool = False
    public: Path | None = None
    budget: TrainingBudget | None = None
    trusted_key: Path | None = None
    allow: Allow = field(default_factory=Allow)
    warm_start: bool = True
    masks: DeviceKeys | None = None
    evaluations: int = 0
    tells: tuple[str, ...] = TOLD
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self) -> None:
        checked_name(self.name, "name")
        checked_name(self.hospital, "hospital")
        check_evaluations(self.evaluations)
        check_told(self.tells)
        self.wire.check(self.broker)
        if self.threads < 1:
            raise UsageError(f"threads = {self.threads}, at least 1")
        if self.masks is not None:
            existing(self.masks.key, "masks.key")
            existing(self.masks.aggregator, "masks.aggregator")
            if self.masks.peers is not None:
                existing(self.masks.peers, "masks.peers")
        existing(self.bundle, "bundle")
        if self.public is not None:
            existing(self.public, "public")
        if self.trusted_key is not None:
            existing(self.trusted_key, "trusted_key")
        if isinstance(self.data, Stored):
            existing(self.data.samples, "data.samples")
        else:
            existing(self.data.trace, "data.trace")

    def describe_samples(self) -> str:
        """Words for how many samples it has, read and cut as its service does.

        Raises:
            UsageError: they cannot be read, or are not what the bundle takes.
        """
        from edge_sdk.data.data_table import samples_of  # for a check only
        from edge_sdk.model.split_model import load_model
        from edge_sdk.nodes.kernels.model_inputs import fit_samples

        samples, model = samples_of(self.data, find_normaliser(self.bundle)), load_model(self.bundle)
        parts = {"to train on": samples.train, "held out": samples.held_out, "to choose on": samples.validation}
        fitted = {what: fit_samples(model, part, "data") for what, part in parts.items() if part is not None}
        return ", ".join(f"{len(part)} samples {what}" for what, part in fitted.items())


def existing(path: Path, key: str) -> None:
    try:
        found = path.is_file()
    except OSError as error:  # a folder on the way may not be entered
        raise UsageError(f"{key} = {str(path)!r}: cannot be looked at: {error.strerror}") from error
    if not found:
        raise UsageError(f"{key} = {str(path)!r}: there is no such file")


@lru_cache(maxsize=64)
def find_normaliser(bundle: Path) -> Normalise | None:
    """What a bundle's model wants done to windows (N, channels, window) of traces, as to live ones; None: nothing."""
    signal = read_bundle(bundle).signal
    return None if signal is None or not signal.mean else signal.normalise
