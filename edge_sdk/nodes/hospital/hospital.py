"""A hospital: it stands between its devices and the aggregator, draws who takes part, and adds up what they send.

Where a model is divided between devices and hospital, it also learns: `train_on(patients)`, with a split bundle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.data.patients import Patients
from edge_sdk.delivery.roles.counters import RestOfCounters
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.lane import RunLane
from edge_sdk.live.loop.node_settings import NOTHING
from edge_sdk.live.loop.runtime import LaneSettings, Reporting, Runtime, Transport, TreePlace
from edge_sdk.live.presence.labels import LabelSum
from edge_sdk.methods.shared.evaluation.reports import Complaint
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.split_model import SplitModel, own_shape
from edge_sdk.nodes.configuration.around import is_rollout
from edge_sdk.nodes.configuration.assembly import fixes_members
from edge_sdk.nodes.hospital.bundles import make_shelf
from edge_sdk.nodes.hospital.device_assignment import DeviceDivision
from edge_sdk.nodes.hospital.lanes import VERSION, HospitalLane
from edge_sdk.nodes.hospital.options import DEFAULT_POLICY, DeviceList, HospitalPolicy, Upstream
from edge_sdk.nodes.hospital.suspensions import count_suspensions
from edge_sdk.nodes.hospital.training import HospitalTraining
from edge_sdk.nodes.kernels import split
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.lanes import list_lanes, list_trainings, rollouts_trust
from edge_sdk.wire.options import DEFAULTS, Wire

if TYPE_CHECKING:
    from edge_sdk.live.loop.runtime import Assembly


class Hospital:
    """One hospital node, next to its broker.

    Args:
        name: unique among the hospitals of an aggregator.
        aggregator: name of the aggregator; an `Upstream`, where it has a broker of its own.
        broker: URL of the broker that its devices use.
        bundle: file with the compiled model: it says which shapes the devices' messages have.
        directory: where it keeps its state.
        devices: names of all its devices, here or not; a `DeviceList`, where more is to be said of them.
        wire: certificates, MQTT version, durability; see `edge_sdk.wire.options.Wire`.
        policy: which runs reach its devices, how many at once, and what it tells; see `HospitalPolicy`.

    Attributes:
        on_event: called with what runs tell this hospital, on the network's thread; None: nobody wants to hear it. Set
            it before `run`.

    >>> from edge_sdk.replay.planning.bundles import find_shipped_bundle
    >>> bundle = find_shipped_bundle("wrist.bundle")
    >>> given = dict(broker="mqtt://127.0.0.1", bundle=bundle, directory="north", devices=["watch-7"])
    >>> hospital = Hospital("north", aggregator="cloud", **given)
    >>> hospital.name
    'north'
    """

    def __init__(
        self,
        name: str,
        *,
        aggregator: str | Upstream,
        broker: str,
        bundle: str | Path,
        directory: str | Path,
        devices: Sequence[str] | DeviceList,
        wire: Wire = DEFAULTS,
        policy: HospitalPolicy = DEFAULT_POLICY,
    ):
        above = Upstream(aggregator) if isinstance(aggregator, str) else aggregator
        listed = devices if isinstance(devices, DeviceList) else DeviceList(devices)
        self.name = checked_name(name, "hospital name")
        self.on_event: Callable[[Any], None] | None = None
        self.devices = tuple(checked_name(d, "device name") for d in listed.devices)
        self.companions, self.masks = tuple(listed.companions), policy.masks
        self.limits = listed.limits
        self.limits.check_children(self.devices)
        self.log = logging.getLogger(f"auscult.{name}")
        self.shelf = make_shelf(bundle, listed.kinds, Path(directory))
        self.model = SplitModel(self.shelf.own) if self.shelf.own.is_split else None
        self.patients: Patients | None = None
        self.make_trainings(Path(directory), policy)
        self.runtime = Runtime(
            name,
            self.trainings[0].work,
            place=TreePlace(
                parent=checked_name(above.name, "aggregator"),
                children=self.devices,
                wait_for=listed.wait_for,
                flexible=listed.enrolled or self.divides,
            ),
            transport=Transport(broker=broker, upstream=above.broker, wire=wire, upstream_wire=above.wire),
            lanes=self.make_lanes(),
            worker=self.model is not None,  # it computes
            reporting=Reporting(reports=policy.reports, figures=count_suspensions),
            log=self.log,
        )
        self.connect_parts(policy)

    def make_trainings(self, directory: Path, policy: HospitalPolicy) -> None:
        """Make what this hospital does in each of its lanes. Raises UsageError: there cannot be so many."""
        key, allow, evaluations = policy.trusted_key, policy.allow, policy.evaluations
        numbers = list_trainings(policy.trainings, evaluations)
        self.divides = len(numbers) > 1 or bool(self.shelf.kinds)
        if self.divides and self.model is not None:
            raise UsageError(f"hospital {self.name}: trains a split model, so trainings = 1, and all devices have that")
        self.rollouts = rollouts_trust(key, directory, evaluations)
        self.trainings = [HospitalTraining(n, self, directory, key, allow, self.divides) for n in numbers]
        self.lanes = [HospitalLane(n, self, directory, key, allow) for n in list_lanes(evaluations)]

    def make_lanes(self) -> LaneSettings:
        """What it does beside its main lane."""
        return LaneSettings(
            beside={lane.number: lane.work for lane in self.lanes},
            trainings={each.number: each.work for each in self.trainings[1:]},
            choose=self.list_devices if self.divides else None,
        )

    def connect_parts(self, policy: HospitalPolicy) -> None:
        """Give gates and reports what only the runtime has."""
        lanes, main, directory = self.runtime.of_lanes, self.trainings[0], self.runtime.directory
        for each in self.works:
            each.gate.counters = lanes.find(each.number).counters
        main.gate.counters = RestOfCounters(
            self.runtime.counters, [lane.counters for lane in lanes.all if lane.number > 0]
        )
        if policy.reports != NOTHING:
            labels = LabelSum(directory, policy.label_cohort)
            for lane in lanes.leading:
                lane.neighbours.labels = labels
            if self.runtime.reporter is not None:
                self.runtime.reporter.count_bundles = self.count_bundles if self.divides else None

    def train_on(self, patients: Patients) -> None:
        """Set what it holds of its devices' patients. Call it before `run`, for a run that trains a split model.

        Raises:
            UsageError: the bundle is of a whole model, a device is none of this hospital's, or a shape does not fit.
        """
        if self.model is None:
            raise UsageError(f"hospital {self.name}: data, but no split model to train on them; only that needs any")
        patients.check_devices(self.devices)
        shape, wanted = patients.train.x.shape[1:], own_shape(self.model, split.HOSPITAL)
        if shape != wanted:
            raise UsageError(f"hospital {self.name}: samples of shape {shape}, its part of the bundle wants {wanted}")
        self.patients = patients

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Serve until `stop`, or until `until()` says so."""
        self.runtime.run(until)

    def change_limits(self, limits: Limits) -> None:
        """Let other limits hold from now on, as after a restart. May be called from any thread.

        Raises:
            UsageError: they name a device that there is not.
        """
        limits.check_children(self.devices)
        self.limits = limits
        self.runtime.change(limits=limits)

    def change_devices(self, devices: Sequence[str]) -> None:
        """Let other devices take part, also in the run that goes on. May be called from any thread.

        Raises:
            UsageError: a name cannot be used.
        """
        self.devices = tuple(checked_name(d, "device name") for d in devices)
        self.runtime.change(children=self.devices)

    def may_change_devices(self) -> bool:
        """The runs that go on, if there are any, can do with other devices than those with which they began."""
        under_way = [lane.membership for lane, over in self.list_lanes() if lane.session is not None and not over]
        fixed = [m for m in under_way if m.run is not None and (m.counted_above or fixes_members(m.run))]
        return not under_way or (self.runtime.flexible and not fixed)

    def list_lanes(self) -> list[tuple[RunLane, bool]]:
        """The lanes, each with: its run is over."""
        return [(self.runtime.of_lanes.find(e.number), e.over.is_set()) for e in self.works]

    @property
    def is_idle(self) -> bool:
        """No run is under way."""
        return all(lane.session is None or over for lane, over in self.list_lanes())

    def change_allow(self, allow: Allow) -> None:
        """Let other rules decide about runs from now on, also about the present one. May be called from any thread."""
        for each in self.works:
            each.gate.allow = allow
            each.permission.change_owner(each.gate)
        self.runtime.wake()

    def stop(self) -> None:
        """Ends `run`, from any thread. What is under way is kept and goes on at the next start."""
        self.runtime.stop()

    # -- what its trainings want

    @property
    def works(self) -> list[HospitalTraining | HospitalLane]:
        """What it does in each of its lanes."""
        return [*self.trainings, *self.lanes]

    @property
    def finished(self) -> threading.Event:
        """Set when the run in the main lane is over."""
        return self.trainings[0].over

    @property
    def bundle(self) -> Bundle:
        """The bundle of the run in the main lane; before, that of the settings."""
        return self.trainings[0].bundle

    def list_devices(self, run: Run) -> tuple[str, ...]:
        """The devices that a run is for."""
        return self.shelf.list_devices(run, self.devices)

    def count_bundles(self) -> dict[str, int]:
        """sha256 of a bundle -> how many devices have it by the settings."""
        return self.shelf.count_devices(self.devices)

    def choose_devices(self, training: HospitalTraining, run: Run) -> tuple[str, ...]:
        """The devices that a run can have. UsageError: it is for none, or for one of another training."""
        wanted = self.list_devices(run)
        if self.divides:
            DeviceDivision(self.trainings, self.runtime.of_lanes).check(training, run, wanted)
            return wanted
        if run.devices and len(wanted) < len(self.devices):
            raise UsageError(
                f"it is for {len(wanted)} of the {len(self.devices)} devices of hospital {self.name}, all of which are "
                "in one training: with trainings = 2 in its settings they could be in several"
            )
        return self.devices

    def claim_devices(self, training: HospitalTraining, run: Run, wanted: tuple[str, ...]) -> None:
        """Let a run have the devices that were chosen for it."""
        if self.divides:
            DeviceDivision(self.trainings, self.runtime.of_lanes).claim(training, run, wanted)

    def end_training(self, training: HospitalTraining) -> None:
        """A training is over: others, refused because of its devices, are tried again. Who comes late has its models,
        and no version that was rolled out before."""
        if training.run is not None and not is_rollout(training.run) and training.run.bundle == self.shelf.own.sha256:
            for work in self.works:
                (work.folder / VERSION).unlink(missing_ok=True)
        for each in self.trainings:
            if each is not training:
                self.runtime.of_lanes.find(each.number).membership.reconsider = True
        self.runtime.wake()

    def complain(self, message: Complaint) -> None:
        """Count and log what a role says of a device."""
        self.runtime.counters.count(f"{message.to_metrics()['kind']}.{message.sender}")
        self.log.warning("%s: %s", self.name, message.to_sentence())

    def assemble(self, run: Run) -> Assembly:
        """This hospital's part in a run of the main lane; see `HospitalTraining.assemble`."""
        return self.trainings[0].assemble(run)

    def receive_event(self, number: int, message: Any) -> None:
        """What a run of the main lane tells; see `HospitalTraining.receive_event`."""
        self.trainings[0].receive_event(number, message)
