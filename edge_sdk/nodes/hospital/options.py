"""What a hospital is made with beside its name and its files: its devices, its rules, its way to the aggregator.

The keys of a hospital's settings file have the names of these attributes, but for those of `Upstream`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge_sdk.contract.children.limits import Limits
from edge_sdk.live.loop.node_settings import NOTHING
from edge_sdk.live.presence.labels import COHORT
from edge_sdk.nodes.configuration.mask_tables import HospitalKeys
from edge_sdk.nodes.hospital.bundles import Kind
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.wire.options import Wire


@dataclass(frozen=True)
class Upstream:
    """An aggregator that is reached by another broker than the hospital's own, or with other certificates.

    Attributes:
        name: of the aggregator.
        broker: URL of the broker that it uses; None: that of the devices.
        wire: certificates (and leave for plain text) for that broker; None: those of the hospital.

    >>> Upstream("cloud", broker="mqtts://cloud.example").wire
    """

    name: str
    broker: str | None = None
    wire: Wire | None = None


@dataclass(frozen=True)
class DeviceList:
    """The devices of a hospital, and what is known of them.

    Attributes:
        devices: names of all of them, here or not.
        companions: those that take part with outputs only, in a run of the companions family.
        kinds: name -> devices that have another bundle than the hospital's, and which one.
        wait_for: devices that must be here before the hospital reports itself ready; None: all but those that say that
            they cannot take part, where they may join later.
        enrolled: devices that a service has enrolled count beside these, and come and go during a run.
        limits: what devices may claim, and when they are suspended.

    >>> DeviceList(["watch-7", "watch-8"], wait_for=1).enrolled
    False
    """

    devices: Sequence[str]
    companions: Sequence[str] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    wait_for: int | None = None
    enrolled: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class HospitalPolicy:
    """Rules of a hospital: which runs reach its devices, how many at once, and what it tells of them.

    Attributes:
        trusted_key: PEM file with the public key of the operator: it takes no run that is not signed with that; None:
            it takes what the aggregator offers.
        allow: which runs reach its devices.
        masks: its keys for sums over hospitals; None: it takes part in no such run.
        evaluations: rollouts and evaluations that may go on here beside a training; its devices have the same setting.
        trainings: that may go on here side by side, none of whose devices is in another one.
        reports: what it tells a console of its devices: "nothing", "counts" or "names".
        label_cohort: devices that have had new labels before it tells a console of the sum, see
            `edge_sdk.live.presence.labels`.

    >>> HospitalPolicy(trainings=2).reports
    'nothing'
    """

    trusted_key: str | Path | None = None
    allow: Allow = field(default_factory=Allow)
    masks: HospitalKeys | None = None
    evaluations: int = 0
    trainings: int = 1
    reports: str = NOTHING
    label_cohort: int = COHORT


DEFAULT_POLICY = HospitalPolicy()
