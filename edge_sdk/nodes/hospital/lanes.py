"""Rollouts and evaluations at a hospital beside a training, each in a lane of its own; see device/lanes.py."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.atomic import replace_file
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.data.npz import read_npz
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.runtime import LaneWork
from edge_sdk.live.membership.permission import Permission
from edge_sdk.methods.rollout.messages import VersionStays, VersionTaken
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env
from edge_sdk.nodes.hospital.bundles import BundleShelf
from edge_sdk.nodes.kernels.rollout import open_version
from edge_sdk.nodes.policy.admission import Gate
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.lanes import ROLLOUTS, check_lane, folder_of, note_over, set_over
from edge_sdk.nodes.policy.trust import Trust

VERSION = "rollout.npz"
"""File with the version of the latest rollout. In the node's record it would be written again with each answer."""


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
        "find_version": lambda: find_version(run, gate.directory),
    }
    env = make_env(run, EMPTY_LAYOUT, np.zeros(0, np.float32), sizes=sizes, limits=limits, **given)
    return make_assembly(run, "hospital", env)


def keep_version(shelf: BundleShelf, folder: Path, message: VersionTaken) -> None:
    """Keep the version that a rollout brings, for devices that come when it is over, and its bundle for later runs."""
    shelf.keep(message)
    with replace_file(folder / VERSION, lasting=True) as file:
        np.savez(file, bundle=message.bundle, theta=message.theta)


def find_version(run: Run, folder: Path) -> VersionStays | None:
    """The version of a rollout as it was kept; None: it was not, or is not what the run says, which is logged."""
    if not (folder / VERSION).exists():
        return None
    try:
        found = VersionStays(**read_npz(folder / VERSION))
        open_version(run, found.bundle, found.theta)
    except (UsageError, TypeError) as error:
        logging.getLogger("auscult").warning("rollout %s has no version for who comes late: %s", run.id, error)
        return None
    return found


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
            keep_version(self.hospital.shelf, self.folder, message)
        if self.hospital.on_event is not None:
            self.hospital.on_event(message)
        if isinstance(message, Finished):
            assert self.run is not None
            note_over(self.over, self.folder, self.run)
