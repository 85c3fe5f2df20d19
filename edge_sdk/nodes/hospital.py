"""A hospital: it stands between its devices and the aggregator, draws who takes part, and adds up what they send.

Where a model is divided between devices and hospital, it also learns: `train_on(patients)`, with a split bundle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_bytes
from edge_sdk.contract.limits import Limits
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.data.patients import Patients
from edge_sdk.errors import UsageError
from edge_sdk.live.fleet_report import NOTHING
from edge_sdk.live.labels import COHORT, LabelSum
from edge_sdk.live.lane import RunLane
from edge_sdk.live.permission import Permission
from edge_sdk.live.runtime import Assembly, Runtime
from edge_sdk.methods.rollout.messages import VersionTaken
from edge_sdk.methods.shared.evaluation import Finished
from edge_sdk.methods.shared.reports import Complaint
from edge_sdk.model.bundle import Bundle, parse, read_bundle
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes import leaving_scores, mask_giving
from edge_sdk.nodes.allow import Allow
from edge_sdk.nodes.assembly import check_bundle, family_of, fixes_members, is_rollout, make_assembly, make_env
from edge_sdk.nodes.gate import Gate
from edge_sdk.nodes.hospital_lanes import HospitalLane, assemble_rollout
from edge_sdk.nodes.kernels import split
from edge_sdk.nodes.kernels.family import HospitalParts
from edge_sdk.nodes.lane_parts import list_lanes, rollouts_trust
from edge_sdk.nodes.masks import HospitalKeys
from edge_sdk.nodes.suspensions import count_suspensions
from edge_sdk.nodes.trust import Trust
from edge_sdk.nodes.working_model import bundle_path
from edge_sdk.wire.options import DEFAULTS, Wire


class Hospital:
    """One hospital node, next to its broker.

    Args:
        name: unique among the hospitals of an aggregator.
        aggregator: name of the aggregator.
        broker: URL of the broker that its devices use.
        upstream: URL of the broker that the aggregator uses; None: the same.
        bundle: file with the compiled model: it says which shapes the devices' messages have.
        directory: where it keeps its state.
        devices: names of all its devices, here or not.
        companions: those of its devices that take part with outputs only, in a run of the companions family.
        wait_for: devices that must be here before it reports itself ready; None: all.
        wire: certificates, MQTT version, durability; see `edge_sdk.wire.options.Wire`.
        upstream_wire: certificates for the aggregator's broker; None: those of `wire`.
        limits: what its devices may claim, and when they are suspended; None: as `Limits` has it.
        reports: what it tells a console of its devices: "nothing", "counts" or "names".
        trusted_key: PEM file with the public key of the operator: it takes no run that is not signed with that; None:
            it takes what the aggregator offers.
        allow: which runs reach its devices; None: all.
        enrolled: devices that a service has enrolled for it count beside `devices`, and come and go during a run.
        masks: its keys for sums over hospitals; None: it takes part in no such run.
        label_cohort: devices that have had new labels before it tells a console of the sum, see `live/labels.py`.
        evaluations: rollouts and evaluations that may go on here beside a training; its devices have the same setting.
    """

    def __init__(
        self,
        name: str,
        *,
        aggregator: str,
        broker: str,
        bundle: str | Path,
        directory: str | Path,
        devices: Sequence[str],
        companions: Sequence[str] = (),
        upstream: str | None = None,
        wait_for: int | None = None,
        wire: Wire = DEFAULTS,
        upstream_wire: Wire | None = None,
        limits: Limits | None = None,
        reports: str = NOTHING,
        trusted_key: str | Path | None = None,
        allow: Allow | None = None,
        enrolled: bool = False,
        masks: HospitalKeys | None = None,
        label_cohort: int = COHORT,
        evaluations: int = 0,
        on_event: Callable[[Any], None] | None = None,
        log: logging.Logger | None = None,
    ):
        self.name, self.on_event = checked_name(name, "hospital name"), on_event
        self.devices = tuple(checked_name(d, "device name") for d in devices)
        self.companions, self.masks = tuple(companions), masks
        self.limits = limits or Limits()
        self.limits.check_children(self.devices)
        self.trust = Trust(trusted_key, Path(directory))
        self.bundle = self.own_bundle = read_bundle(bundle)
        self.model = SplitModel(self.bundle) if split.is_split(self.bundle) else None
        self.patients: Patients | None = None
        self.finished, self.current = threading.Event(), ""
        self.log = log or logging.getLogger(f"auscult.{name}")
        self.gate = Gate(allow or Allow(), Path(directory), self.finished)
        self.rollouts = rollouts_trust(trusted_key, Path(directory), evaluations)
        rules = (trusted_key, allow or Allow())
        self.lanes = [HospitalLane(n, self, Path(directory), *rules) for n in list_lanes(evaluations)]
        if upstream_wire is not None:
            upstream_wire.check(upstream or broker)
        self.runtime = Runtime(
            name,
            parent=checked_name(aggregator, "aggregator"),
            children=self.devices,
            directory=Path(directory),
            broker=broker,
            upstream=upstream,
            assemble=self.assemble,
            told=self.receive_event,
            check_run=self.check_run,
            wait_for=wait_for,
            worker=self.model is not None,  # it computes
            figures=count_suspensions,
            log=self.log,
            reports=reports,
            permission=Permission(self.gate.owner),
            flexible=enrolled,
            beside={lane.number: lane.work for lane in self.lanes},
            upstream_tls=(upstream_wire or wire).tls,
            **wire.options(broker, None if upstream_wire else upstream),
        )
        for gate, lane in zip((self.gate, *(lane.gate for lane in self.lanes)), self.runtime.lanes, strict=True):
            gate.counters = lane.counters
        if reports != NOTHING:
            self.runtime.neighbours.labels = LabelSum(Path(directory), label_cohort)

    def train_on(self, patients: Patients) -> None:
        """Set what it holds of its devices' patients. Call it before `run`, for a run that trains a split model.

        Raises:
            UsageError: the bundle is of a whole model, a device is none of this hospital's, or a shape does not fit.
        """
        if self.model is None:
            raise UsageError(f"hospital {self.name}: data, but no split model to train on them; only that needs any")
        patients.check_devices(self.devices)
        shape, wanted = patients.train.x.shape[1:], split.own_shape(self.model, split.HOSPITAL)
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
        overs = (self.finished, *(lane.over for lane in self.lanes))
        return [(lane, over.is_set()) for lane, over in zip(self.runtime.lanes, overs, strict=True)]

    @property
    def is_idle(self) -> bool:
        """No run is under way."""
        return all(lane.session is None or over for lane, over in self.list_lanes())

    def change_allow(self, allow: Allow) -> None:
        """Let other rules decide about runs from now on, also about the present one. May be called from any thread."""
        for gate, lane in zip((self.gate, *(lane.gate for lane in self.lanes)), self.runtime.lanes, strict=True):
            gate.allow = allow
            lane.permission.change_owner(gate)
        self.runtime.wake()

    def stop(self) -> None:
        self.runtime.stop()

    def assemble(self, run: Run) -> Assembly:
        """This hospital's part in a run: role, env and codecs. UsageError: its settings do not allow the run."""
        self.runtime.permission.check(run)
        if self.current not in ("", run.id):
            self.finished.clear()  # the run before was
        self.current = run.id
        sizes = dict.fromkeys(self.devices, 1)
        if is_rollout(run):
            return assemble_rollout(run, sizes, self.limits)
        self.bundle = self.find_bundle(run)
        check_bundle(run, self.bundle, "hospital")
        given = family_of(run).for_hospital(
            HospitalParts(
                run=run,
                whose=f"hospital {self.name}",
                model=self.model,
                companions=self.companions,
                patients=self.patients,
            )
        )
        given |= mask_giving.for_hospital(run, int(self.bundle.manifest["classes"]))
        given |= mask_giving.for_pooling(run, self.masks, self.name)
        env = make_env(run, self.bundle.layout, self.bundle.theta0, sizes=sizes, limits=self.limits, **given)
        assembly = make_assembly(run, "hospital", env)
        role = self.gate.ledger.guard(run, assembly.role)
        return replace(assembly, role=leaving_scores.limited(role, lambda: self.gate.allow, hospital=True))

    def check_run(self, run: Run) -> None:
        """Raises UsageError if a run is not to be trusted."""
        (self.rollouts if is_rollout(run) else self.trust).check_run(run)

    def find_bundle(self, run: Run) -> Bundle:
        """The bundle of a run: the settings' one, or one that a rollout has brought here.

        Raises:
            UsageError: that is damaged.
        """
        brought = bundle_path(self.runtime.directory, run.bundle)
        return read_bundle(brought) if run.bundle != self.own_bundle.sha256 and brought.exists() else self.own_bundle

    def keep_bundle(self, message: VersionTaken) -> None:
        """Keep the bundle that a rollout brings: later runs may be for it."""
        found = parse(message.bundle.tobytes())
        path = bundle_path(self.runtime.directory, found.sha256)
        if found.sha256 != self.own_bundle.sha256 and not path.exists():
            write_bytes(path, message.bundle.tobytes())

    def receive_event(self, number: int, message: Any) -> None:
        """Pass on what the role tells the application. The runtime calls this after its commit, at least once."""
        if isinstance(message, Complaint):
            self.runtime.counters.count(f"{message.to_metrics()['kind']}.{message.sender}")
            self.log.warning("%s: %s", self.name, message.to_sentence())
        if isinstance(message, VersionTaken):
            self.keep_bundle(message)
        if self.on_event is not None:
            self.on_event(message)
        if isinstance(message, Finished):
            self.finished.set()
