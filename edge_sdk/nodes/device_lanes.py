"""Rollouts and evaluations on a device beside its training: each in a lane of its own (live/lane.py).

A device trains in one run at a time, in its main lane. With `evaluations = n` it has n lanes more, in which nothing is
trained. The first one takes rollouts and evaluations, the others take evaluations only: what a device predicts with is
changed in one place, and no older rollout that somebody has recorded can be played again beside a newer one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.atomic import make_private_directory, write_text
from edge_sdk.contract.run import ID, Run
from edge_sdk.data.samples import Samples
from edge_sdk.delivery.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.live.lane import LaneWork
from edge_sdk.live.permission import Permission
from edge_sdk.live.willingness import Willingness
from edge_sdk.methods.shared.evaluation import Finished
from edge_sdk.nodes.allow import Allow
from edge_sdk.nodes.assembly import is_rollout, make_assembly, make_env, only_judges
from edge_sdk.nodes.gate import Gate
from edge_sdk.nodes.kernels.rollout import open_version
from edge_sdk.nodes.trust import TRUST_FILE, Trust
from edge_sdk.nodes.versions import Versions, check_whole, choose_judges
from edge_sdk.wire.topics import MOST_LANES

if TYPE_CHECKING:
    from edge_sdk.nodes.participant import Participant

ROLLOUTS = 1
"""Number of the lane that takes rollouts."""


def folder_of(directory: Path, number: int) -> Path:
    """Folder of a lane in a node's directory."""
    return directory / f"lane-{number}"


def list_folders(directory: Path) -> list[Path]:
    """A node's directory, and the folders of its lanes."""
    return [directory, *(path for n in range(1, MOST_LANES + 1) if (path := folder_of(directory, n)).is_dir())]


def check_evaluations(count: int, key: str = "evaluations") -> int:
    """A number of lanes, checked. Raises UsageError if it cannot be used."""
    if not 0 <= count <= MOST_LANES:
        raise UsageError(f"{key} = {count}: expected 0 to {MOST_LANES}, beside the run that trains")
    return count


def list_lanes(count: int) -> range:
    """Numbers of the lanes beside the main one. Raises UsageError if there cannot be so many."""
    return range(1, check_evaluations(count) + 1)


def check_lane(run: Run, number: int) -> None:
    """Raises UsageError for a run that does not belong into a lane."""
    if not is_rollout(run):
        raise UsageError("beside a run there are rollouts and evaluations only: nothing is trained in two runs at once")
    if number != ROLLOUTS and not only_judges(run):
        raise UsageError(f"rollouts are for lane {ROLLOUTS}, and this is lane {number}")


def rollouts_trust(key: str | Path | None, directory: Path, lanes: int) -> Trust:
    """Whom a node trusts about rollouts, in whichever lane they come: with lanes beside its trainings it counts both
    apart, since a training that goes on was signed before a rollout beside it, and is not old for that."""
    folder = folder_of(directory, ROLLOUTS)
    if not lanes and not folder.is_dir():
        return Trust(key, directory)
    if key is not None and not (folder / TRUST_FILE).exists() and (directory / TRUST_FILE).exists():
        make_private_directory(folder)
        write_text(folder / TRUST_FILE, json.dumps(Trust(key, directory).read_numbers()) + "\n")
    return Trust(key, folder)


def read_current(directory: Path) -> str:
    """Id of the run that a lane worked in last; "": none."""
    try:
        found = (directory / "current").read_text(errors="replace").strip()
    except OSError:
        return ""
    return found if ID.fullmatch(found) else ""


OVER = "over"
"""File in a lane's folder: id of the run that has ended there last."""


def set_over(over: threading.Event, folder: Path, run: Run) -> None:
    """Set an event that says if a lane's run has ended, also before the node was started again."""
    try:
        ended = (folder / OVER).read_text(errors="replace").strip()
    except OSError:
        ended = ""
    if ended == run.id:
        over.set()
    else:
        over.clear()


def note_over(over: threading.Event, folder: Path, run: Run) -> None:
    """A lane's run has ended."""
    write_text(folder / OVER, run.id + "\n")
    over.set()


def hears_of_rollout(device: Participant) -> bool:
    """Is the version that predicts one of a rollout in a lane, where the device will hear what becomes of it?"""
    return bool(device.lanes) and read_current(device.lanes[0].folder) == device.working.run


def choose_present_judges(device: Participant, run: Run) -> Samples | None:
    """Held-out samples of this moment, for a comparison beside a run that goes on; None: there are none."""
    held_out = device.held_out
    if device.train is None and device.model.bundle.signal is not None:
        held_out = device.live.open().copy_held_out()
    samples = choose_judges(held_out, device.validation)
    return None if samples is None else device.select_listed(samples, run, "held-out")


def assemble_version(run: Run, versions: Versions, judges: Callable[[], Samples | None]) -> Assembly:
    """A device's part in a rollout. Nothing is trained. `judges`: held-out samples to compare versions on, or None."""
    given = {
        "verify": lambda bundle, theta: open_version(run, bundle, theta),
        "attempt": lambda bundle, theta: versions.attempt(run, bundle, theta, judges()),
        "has_version": lambda rollout: versions.predicts(rollout or run.id),
    }
    return make_assembly(run, "device", make_env(run, EMPTY_LAYOUT, np.zeros(0, np.float32), **given))


class DeviceLane:
    """One lane of a device beside its training. Its methods are for the device's loop.

    Attributes:
        run: the one that it works in.
        finished: that is over.
    """

    def __init__(self, number: int, device: Participant, key: str | Path | None, allow: Allow, willing: Willingness):
        self.number, self.device, self.folder = number, device, folder_of(device.directory, number)
        self.trust = device.rollouts if number == ROLLOUTS else Trust(key, self.folder)
        self.finished = threading.Event()
        self.run: Run | None = None
        self.gate = Gate(allow, self.folder, self.finished)
        self.permission = Permission(self.gate.owner)
        self.work = LaneWork(
            self.folder,
            self.assemble,
            self.receive_event,
            check_run=self.trust.check_run,
            willingness=willing,
            permission=self.permission,
        )

    def assemble(self, run: Run) -> Assembly:
        """The device's part in a run. UsageError: the lane is not for it, or the device's settings do not allow it."""
        check_lane(run, self.number)
        self.permission.check(run)
        check_whole(self.device.model)
        if not only_judges(run):
            self.device.versions.leave_unconfirmed(run.id)
        set_over(self.finished, self.folder, run)
        self.run = run
        return assemble_version(run, self.device.versions, lambda: choose_present_judges(self.device, run))

    def receive_event(self, number: int, message: Any) -> None:
        """Do what the role tells, and pass it on; see `Participant.receive_event`."""
        assert self.run is not None
        self.device.versions.receive_event(self.run, message)
        if self.device.on_event is not None:
            self.device.on_event(message)
        if isinstance(message, Finished):
            self.device.log.info("%s: %s is over", self.device.name, self.run.id)
            note_over(self.finished, self.folder, self.run)
