"""Rollouts and evaluations at a hospital beside a training, each in a lane of its own; see device/lanes.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.live.loop.runtime import LaneWork
from edge_sdk.live.membership.permission import Permission
from edge_sdk.methods.rollout.messages import VersionTaken
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env
from edge_sdk.nodes.hospital.bundles import BundleShelf
from edge_sdk.nodes.kernels.rollout import open_version
from edge_sdk.nodes.policy.admission import Gate
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.lanes import ROLLOUTS, check_lane, folder_of, note_over, set_over
from edge_sdk.nodes.policy.trust import Trust


class Leading(Protocol):
    """What a lane needs of its hospital."""

    devices: tuple[str, ...]
    limits: Limits
    rollouts: Trust
    on_event: Callable[[Any], None] | None

    shelf: BundleShelf


def assemble_rollout(run: Run, sizes: Mapping[str, int], limits: Limits, gate: Gate) -> Assembly:
    """A hospital's part in a rollout. `sizes`: device -> 1."""
    given = {
        "verify": lambda bundle, theta: open_version(run, bundle, theta),
        "scores_of": lambda: gate.allow.scores_of,
    }
    env = make_env(run, EMPTY_LAYOUT, np.zeros(0, np.float32), sizes=sizes, limits=limits, **given)
    return make_assembly(run, "hospital", env)


class HospitalLane:
    """One lane of a hospital beside its training. Its methods are for the hospital's loop.

    Attributes:
        run: the one that it works in. over: that has ended.
    """

    def __init__(self, number: int, hospital: Leading, directory: Path, key: str | Path | None, allow: Allow):
        self.number, self.hospital, self.folder = number, hospital, folder_of(directory, number)
        self.trust = hospital.rollouts if number == ROLLOUTS else Trust(key, self.folder)
        self.over = threading.Event()
        self.gate = Gate(allow, self.folder, self.over)
        self.permission = Permission(self.gate.owner)
        self.work = LaneWork(
            directory=self.folder,
            assemble=self.assemble,
            told=self.receive_event,
            check_run=self.trust.check_run,
            permission=self.permission,
        )
        self.run: Run | None = None

    def assemble(self, run: Run) -> Assembly:
        """The hospital's part in a run. UsageError: the lane is not for it, or the settings do not allow it."""
        check_lane(run, self.number)
        self.permission.check(run)
        self.run = run
        set_over(self.over, self.folder, run)
        return assemble_rollout(run, dict.fromkeys(self.hospital.devices, 1), self.hospital.limits, self.gate)

    def receive_event(self, number: int, message: Any) -> None:
        """Do what the role tells, and pass it on; see `Hospital.receive_event`."""
        if isinstance(message, VersionTaken):
            self.hospital.shelf.keep(message)
        if self.hospital.on_event is not None:
            self.hospital.on_event(message)
        if isinstance(message, Finished):
            assert self.run is not None
            note_over(self.over, self.folder, self.run)
