"""A hospital's part in one training at a time; where several go on side by side, each has one of these.

Two trainings have no device in common: a device takes part in one at a time. The hospital sees to that by itself,
whatever its aggregator orders (`DeviceDivision`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.data.patients import Patients
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.runtime import LaneWork
from edge_sdk.live.membership.permission import Permission
from edge_sdk.methods.rollout.messages import VersionTaken
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Complaint
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.configuration.around import is_rollout
from edge_sdk.nodes.configuration.assembly import check_bundle, family_of, make_assembly, make_env
from edge_sdk.nodes.configuration.mask_tables import HospitalKeys
from edge_sdk.nodes.hospital.bundles import BundleShelf
from edge_sdk.nodes.hospital.lanes import assemble_rollout, keep_version
from edge_sdk.nodes.kernels.family import HospitalParts
from edge_sdk.nodes.policy import score_filter
from edge_sdk.nodes.policy.admission import Gate
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.epsilon_ledger import EpsilonLedger
from edge_sdk.nodes.policy.lanes import folder_of, list_lane_folders, note_over, set_over, training_trust
from edge_sdk.nodes.policy.trust import Trust
from edge_sdk.nodes.secrets import mask_assignment


class Treating(Protocol):
    """What a training needs of its hospital."""

    name: str
    devices: tuple[str, ...]
    companions: tuple[str, ...]
    masks: HospitalKeys | None
    limits: Limits
    rollouts: Trust
    model: SplitModel | None
    patients: Patients | None
    shelf: BundleShelf
    on_event: Callable[[Any], None] | None

    def choose_devices(self, training: HospitalTraining, run: Run) -> tuple[str, ...]: ...
    def claim_devices(self, training: HospitalTraining, run: Run, wanted: tuple[str, ...]) -> None: ...
    def complain(self, message: Complaint) -> None: ...
    def end_training(self, training: HospitalTraining) -> None: ...


class HospitalTraining:
    """One of a hospital's trainings. Its methods are for the hospital's loop.

    Args:
        number: of its lane; 0: the main one.
        persists: `over` holds for a run although the hospital was started again meanwhile.

    Attributes:
        run: the one that it works in; None: none so far.
        bundle: of that.
        over: that has ended.
    """

    def __init__(
        self, number: int, hospital: Treating, directory: Path, key: str | Path | None, allow: Allow, persists: bool
    ):
        self.number, self.hospital, self.persists = number, hospital, persists
        self.folder = folder_of(directory, number) if number else directory
        others = [path for path in list_lane_folders(directory) if path != self.folder] if persists else []
        self.trust = training_trust(key, directory, self.folder, others)
        self.over = threading.Event()
        self.gate = Gate(allow, self.folder, self.over)
        self.gate.ledger = EpsilonLedger(directory)  # epsilon adds up over all runs of the node
        self.permission = Permission(self.gate.owner)
        self.run: Run | None = None
        self.bundle = hospital.shelf.own
        self.work = LaneWork(
            directory=self.folder,
            assemble=self.assemble,
            told=self.receive_event,
            check_run=self.check_run,
            permission=self.permission,
        )

    def check_run(self, run: Run) -> None:
        """Raises UsageError if a run is not to be trusted."""
        (self.hospital.rollouts if is_rollout(run) else self.trust).check_run(run)

    def assemble(self, run: Run) -> Assembly:
        """The hospital's part in a run: role, env and codecs. UsageError: its settings do not allow the run, or its
        devices are in another training."""
        hospital = self.hospital
        if self.number and is_rollout(run):
            raise UsageError(f"lane {self.number} is for trainings here; rollouts have others")
        self.permission.check(run)
        bundle = self.bundle if is_rollout(run) else hospital.shelf.find(run)
        if not is_rollout(run):
            check_bundle(run, bundle, "hospital")
        devices = hospital.choose_devices(self, run)
        assembly = self.make_part(run, bundle, dict.fromkeys(devices, 1))
        hospital.claim_devices(self, run, devices)
        if self.persists:
            set_over(self.over, self.folder, run)
        elif self.run is not None and self.run.id != run.id:
            self.over.clear()  # the run before was
        self.run, self.bundle = run, bundle
        return assembly

    def make_part(self, run: Run, bundle: Bundle, sizes: Mapping[str, int]) -> Assembly:
        """The hospital's part in a run of these devices. UsageError: its settings do not allow the run."""
        hospital = self.hospital
        if is_rollout(run):
            return assemble_rollout(run, sizes, hospital.limits, self.gate)
        given = family_of(run).for_hospital(
            HospitalParts(
                run=run,
                whose=f"hospital {hospital.name}",
                model=hospital.model,
                companions=hospital.companions,
                patients=hospital.patients,
            )
        )
        given |= mask_assignment.for_hospital(run, bundle.task.histograms)
        given |= mask_assignment.for_pooling(run, hospital.masks, hospital.name)
        env = make_env(run, bundle.layout, bundle.theta0, sizes=sizes, limits=hospital.limits, **given)
        assembly = make_assembly(run, "hospital", env)
        role = self.gate.ledger.guard(run, assembly.role)
        return replace(assembly, role=score_filter.limited(role, lambda: self.gate.allow, hospital=True))

    def receive_event(self, number: int, message: Any) -> None:
        """Pass on what the role tells the application. The runtime calls this after its commit, at least once."""
        if isinstance(message, Complaint):
            self.hospital.complain(message)
        if isinstance(message, VersionTaken):
            keep_version(self.hospital.shelf, self.folder, message)
        if self.hospital.on_event is not None:
            self.hospital.on_event(message)
        if isinstance(message, Finished):
            if self.persists and self.run is not None:
                note_over(self.over, self.folder, self.run)
            self.over.set()
            self.hospital.end_training(self)
