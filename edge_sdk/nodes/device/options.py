"""What a device is made with beside its name and its files: what its owner permits, and how it trains.

`Wire` is about the network, `DevicePolicy` about the owner's rules, `LocalTraining` about the application. The keys of
a device's settings file have the names of these attributes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edge_sdk.contract.children.device_facts import TOLD, check_told
from edge_sdk.data.recording import Recording
from edge_sdk.errors import UsageError, say_reason
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.budget import BudgetFile, TrainingBudget
from edge_sdk.nodes.policy.lanes import check_evaluations

if TYPE_CHECKING:
    from edge_sdk.data.public_inputs import Public
    from edge_sdk.nodes.device.custom_training import TrainingCode


@dataclass(frozen=True, kw_only=True)
class DevicePolicy:
    """Rules of a device's owner: when it trains, in which runs it takes part, and what it tells.

    Attributes:
        budget: when it may train, see `edge_sdk.nodes.policy.budget`; or a file with a table [budget]; None: whenever
            its hospital asks.
        trusted_key: PEM file with the public key of its operator: it takes no run and no model that is not signed with
            that; None: it takes what its hospital offers.
        allow: which runs it takes part in, see `edge_sdk.nodes.policy.allow`.
        masks: its keys for runs with secret sums, see `edge_sdk.nodes.secrets.mask_keys`; None: it takes part in no
            such run.
        evaluations: rollouts and evaluations that it takes part in beside a training, as its hospital has it.
        tells: facts of this machine that its hospital is told, and whoever that reports to: "version" of Auscult,
            "board" and charge of its "battery".

    >>> from edge_sdk import TrainingBudget
    >>> DevicePolicy(budget=TrainingBudget(hours=("22:00-06:30",)), tells=()).evaluations
    0
    """

    budget: TrainingBudget | str | Path | None = None
    trusted_key: str | Path | None = None
    allow: Allow = field(default_factory=Allow)
    masks: DeviceKeys | None = None
    evaluations: int = 0
    tells: Collection[str] = TOLD

    def __post_init__(self) -> None:
        check_evaluations(self.evaluations)
        check_told(self.tells)
        if not isinstance(self.budget, TrainingBudget | str | Path | None):
            raise UsageError(
                f"budget = {self.budget!r:.60}: expected a TrainingBudget(...), a file with a table [budget], or None"
            )

    def read_budget(self) -> TrainingBudget | None:
        """The budget, read if it is a file. Raises UsageError: the file cannot be used."""
        return read_toml(self.budget, BudgetFile).budget if isinstance(self.budget, str | Path) else self.budget


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """Settings of what a device trains with: its samples, its code, its processor.

    Attributes:
        threads: number of threads of onnxruntime.
        public: file of the public inputs that the run names, if it names any; see `edge_sdk.data.public_inputs`.
        recording: the sensor's rate, and the bounds and key of what `observe` keeps on the disk.
        trainer: training code of the application in place of the bundle's gradients, see
            `edge_sdk.nodes.device.custom_training`; None: there is none. The bundle still says what the parameters
            are, and predicts.
        warm_start: a new run begins with the personal model that an earlier one has made here, where the method has one
            and parameters and classes are the same; False: as on a device that was never in a run. See
            `edge_sdk.nodes.models.warm_start`.

    >>> from edge_sdk import Recording
    >>> LocalTraining(recording=Recording(sensor_hz=100.0), threads=2).warm_start
    True
    """

    threads: int = 1
    public: str | Path | None = None
    recording: Recording = field(default_factory=Recording)
    trainer: TrainingCode | None = None
    warm_start: bool = True

    def __post_init__(self) -> None:
        check_key(self.recording.key)

    def read_public(self) -> Public | None:
        """The public inputs; None: there are none. Raises UsageError: the file cannot be used."""
        if self.public is None:
            return None
        from edge_sdk.data.public_inputs import read_public  # for methods that compare outputs

        return read_public(self.public)


def check_key(key: bytes | str | Path | None) -> None:
    """Raises UsageError for a key that windows cannot be encrypted with: before anything is observed, not at that. A
    file that is not there is made later."""
    if key is None:
        return
    from edge_sdk.data.store.cipher import KEY_BYTES  # with the store, which not every device has

    where = ""
    data: bytes | str | Path | None = key
    if isinstance(key, str | Path):
        try:
            where, data = f"{key}: ", Path(key).read_bytes() if Path(key).exists() else None
        except OSError as error:
            raise UsageError(f"key: {key}: cannot be read: {say_reason(error)}") from error
    if isinstance(data, bytes) and len(data) != KEY_BYTES:
        raise UsageError(f"key: {where}{len(data)} bytes, expected {KEY_BYTES} random ones")


DEFAULT_POLICY = DevicePolicy()
DEFAULT_TRAINING = LocalTraining()
"""The bundle's gradients and rate, and the default bounds."""
