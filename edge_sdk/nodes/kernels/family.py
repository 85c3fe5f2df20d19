"""What a family of kernels is, and what each node hands to it.

A method names its family (`Method.kernels`). Devices, hospitals, the aggregator and a replay call the family and never
ask which method it is, so a new method of a family that exists is one module in `methods/`.

A new family is a module here that ends in a `Family`, and its line in `nodes/configuration/kernel_families.py`. Its
three `for_*` functions return fields of the env that its methods declare, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from edge_sdk.contract.environment.gradients import GradientCounter
from edge_sdk.contract.run import Run
from edge_sdk.data.augment import Augment
from edge_sdk.data.patients import Patients
from edge_sdk.data.public_inputs import Public
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel

Array = npt.NDArray[Any]
Cancel = Callable[[], bool]
Fields = dict[str, Any]
"""Name of a field of the method's env -> its value on this node."""


@dataclass(frozen=True, kw_only=True)
class DeviceParts:
    """What a device has for a run.

    Attributes:
        settings: the method's, checked.
        whose: the node in messages for people, e.g. "device watch-7".
        x, y: training samples (N, ...) and labels (N,), as the model wants them.
        held_out: the same of the samples that models are judged by; None: there are none.
        validation: the same of the samples that choices are made on; None: none were split off.
        unlabelled: training samples (M, ...) that nobody has labelled, and int (M,) which stretch of time each lies in,
            in order of time; None: there are none.
        augment: how the run changes windows while devices train.
        public: the public inputs; None: there are none.
        cancel: says when training is to give way; None: never.
        gradients: counts those that are computed.
    """

    run: Run
    settings: Any
    whose: str
    model: Model
    x: Array
    y: Array
    held_out: tuple[Array, Array] | None = None
    validation: tuple[Array, Array] | None = None
    unlabelled: tuple[Array, Array] | None = None
    augment: Augment = field(default_factory=Augment)
    public: Public | None = None
    cancel: Cancel | None = None
    gradients: GradientCounter = field(default_factory=GradientCounter)


@dataclass(frozen=True, kw_only=True)
class HospitalParts:
    """What a hospital has for a run.

    Attributes:
        whose: the node in messages for people, e.g. "hospital north".
        model: the split model of its bundle; None: the bundle is of a whole model, which it never runs.
        companions: those of its devices that take part with outputs only.
        patients: what it holds of its devices' patients; None: nothing.
    """

    run: Run
    whose: str
    model: SplitModel | None
    companions: tuple[str, ...] = ()
    patients: Patients | None = None


@dataclass(frozen=True, kw_only=True)
class AggregatorParts:
    """What the aggregator has for a run.

    Attributes:
        hospitals: name -> number of its devices.
        companions: name -> how many of these take part with outputs only.
        public: file of the public inputs; None: there are none.
        model: file of the model that a rollout brings; None: the bundle's initial one.
    """

    run: Run
    bundle: Bundle
    hospitals: Mapping[str, int]
    companions: Mapping[str, int]
    public: Path | None = None
    model: Path | None = None


def give_nothing(parts: Any) -> Fields:
    return {}


@dataclass(frozen=True, kw_only=True)
class Family:
    """One way in which nodes serve methods.

    Attributes:
        check: (run, settings, bundle) -> None; raises UsageError if these do not go together.
        for_device, for_hospital, for_aggregator: parts -> fields of the env; raise UsageError if a part is missing.
        own_bundles: tiers on which a node may have another bundle than the one that the run names.
        public: devices compare their outputs on public inputs; the settings say in `public_batch` how many at once.
        companions: hospital and aggregator are told which devices, or how many, take part with outputs only.
        augments: devices train on gradients of their own loss alone, so their windows may be changed at random.
        divided: each sample's features are divided between hospital and device, so no device can train alone.
    """

    check: Callable[[Run, Any, Bundle], None]
    for_device: Callable[[DeviceParts], Fields]
    for_hospital: Callable[[HospitalParts], Fields] = give_nothing
    for_aggregator: Callable[[AggregatorParts], Fields] = give_nothing
    own_bundles: frozenset[str] = frozenset()
    public: bool = False
    companions: bool = False
    divided: bool = False
    augments: bool = False
