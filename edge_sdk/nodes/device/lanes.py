"""Rollouts and evaluations on a device beside its training: each in a lane of its own (live/loop/lane.py).

A device trains in one run at a time, in its main lane. With `evaluations = n` it has n lanes more, in which nothing is
trained. The first one takes rollouts and evaluations, the others take evaluations only: what a device predicts with is
changed in one place, and no older rollout that somebody has recorded can be played again beside a newer one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.live.loop.runtime import LaneWork
from edge_sdk.live.membership.permission import Permission, Willingness
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.around import only_judges
from edge_sdk.nodes.device.live_device import LiveDevice
from edge_sdk.nodes.models.versions import Versions, check_whole, choose_judges
from edge_sdk.nodes.models.working_model import WorkingModel
from edge_sdk.nodes.policy.admission import Gate
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.lanes import ROLLOUTS, check_lane, folder_of, note_over, set_over
from edge_sdk.nodes.policy.trust import Trust

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly


class Judging(Protocol):
    """What a lane needs of its device."""

    name: str
    directory: Path
    log: logging.Logger
    on_event: Callable[[Any], None] | None
    model: Model
    train: Samples | None
    held_out: Samples | None
    validation: Samples | None
    live: LiveDevice
    working: WorkingModel
    rollouts: Trust

    @property
    def versions(self) -> Versions: ...
    def select_listed(self, samples: Samples, run: Run, part: str) -> Samples: ...


def choose_present_judges(device: Judging, run: Run) -> Samples | None:
    """Held-out samples of this moment, for a comparison beside a run that goes on; None: there are none."""
    held_out = device.held_out
    if device.train is None and device.model.bundle.signal is not None:
        held_out = device.live.open().copy_held_out(device.model.task, run.classes)
    samples = choose_judges(held_out, device.validation)
    return None if samples is None else device.select_listed(samples, run, "held-out")


def assemble_version(run: Run, versions: Versions, judges: Callable[[], Samples | None]) -> Assembly:
    """A device's part in a rollout. Nothing is trained. `judges`: held-out samples to compare versions on, or None."""
    from edge_sdk.nodes.configuration.assembly import make_assembly, make_env
    from edge_sdk.nodes.kernels.rollout import open_version

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

    def __init__(self, number: int, device: Judging, key: str | Path | None, allow: Allow, willing: Willingness):
        self.number, self.device, self.folder = number, device, folder_of(device.directory, number)
        self.trust = device.rollouts if number == ROLLOUTS else Trust(key, self.folder)
        self.finished = threading.Event()
        self.run: Run | None = None
        self.gate = Gate(allow, self.folder, self.finished)
        self.permission = Permission(self.gate.owner)
        self.work = LaneWork(
            directory=self.folder,
            assemble=self.assemble,
            told=self.receive_event,
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
        from edge_sdk.methods.shared.evaluation.evaluation import Finished

        assert self.run is not None
        self.device.versions.receive_event(self.run, message)
        if self.device.on_event is not None:
            self.device.on_event(message)
        if isinstance(message, Finished):
            self.device.log.info("%s: %s is over", self.device.name, self.run.id)
            note_over(self.finished, self.folder, self.run)
