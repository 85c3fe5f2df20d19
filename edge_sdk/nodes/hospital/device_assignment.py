"""Which of a hospital's trainings has which devices: each device is in one training at a time, whoever orders more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_sdk.atomic import make_private_directory, write_text
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.lane import RunLane
from edge_sdk.live.loop.node_lanes import NodeLanes
from edge_sdk.nodes.hospital.training import HospitalTraining

LEFT = "left"
"""File in a lane's folder: id of a run whose devices another one was given. It says nothing of other runs."""
NAMED = 5  # devices that a refusal names


class DeviceDivision:
    """Who has the devices of one hospital. Its methods are for the hospital's loop.

    A run has its devices until it is over. One whose aggregator is not there, as after a stop by a person, gives them
    to the next one that wants them, and is taken up anew when it is offered again.
    """

    def __init__(self, trainings: Sequence[HospitalTraining], lanes: NodeLanes):
        assert lanes.shared is not None  # else there is nothing to divide
        self.trainings, self.lanes, self.shared = trainings, lanes, lanes.shared

    def lane_of(self, training: HospitalTraining) -> RunLane:
        return self.lanes.find(training.number)

    def check(self, training: HospitalTraining, run: Run, wanted: tuple[str, ...]) -> None:
        """See that a run may be given its devices.

        Raises:
            UsageError: they are in another training, or there are none.
        """
        offered = self.lane_of(training).membership.presence.parent is not None
        if read_left(training.folder) == run.id and not offered:
            raise UsageError("its devices are in another run since; it goes on when it is offered again")
        if not wanted:
            raise UsageError("it is for none of the devices of this hospital")
        for each in self.list_rivals(training, wanted):
            if not self.may_be_left(each, offered):
                raise UsageError(self.describe_rival(each, wanted))

    def claim(self, training: HospitalTraining, run: Run, wanted: tuple[str, ...]) -> None:
        """Give a run its devices, once nothing else can refuse it: a run that has them is left for good."""
        for each in self.list_rivals(training, wanted):
            self.leave(each, run)
        forget_left(training.folder)
        self.shared.give(self.lane_of(training), wanted)

    def list_rivals(self, training: HospitalTraining, wanted: tuple[str, ...]) -> list[HospitalTraining]:
        """Other trainings that work with one of these devices."""
        return [each for each in self.trainings if each is not training and self.has_any(each, wanted)]

    def has_any(self, training: HospitalTraining, devices: tuple[str, ...]) -> bool:
        """A training works with one of these devices."""
        lane = self.lane_of(training)
        return lane.session is not None and bool({*devices} & {*self.shared.list_led(lane)})

    def may_be_left(self, training: HospitalTraining, offered: bool) -> bool:
        """Another run may have its devices. `offered`: the aggregator of that is there, and this is no restart."""
        return training.over.is_set() or (offered and self.lane_of(training).membership.presence.parent is None)

    def describe_rival(self, training: HospitalTraining, wanted: tuple[str, ...]) -> str:
        """Why a run cannot have its devices, as a sentence."""
        both = sorted({*wanted} & {*self.shared.list_led(self.lane_of(training))})
        more = [f"{len(both) - NAMED} more"] * (len(both) > NAMED)
        run = "" if training.run is None else f" {training.run.id}"
        names = ", ".join([*both[:NAMED], *more])
        return f"{names} {'is' if len(both) == 1 else 'are'} in run{run}: a device takes part in one training at a time"

    def leave(self, training: HospitalTraining, new: Run) -> None:
        """Let a training go without its devices, which a new run is given."""
        lane = self.lane_of(training)
        assert lane.session is not None
        make_private_directory(training.folder)
        write_text(training.folder / LEFT, lane.session.run.id + "\n")
        lane.membership.refuse_run(lane.session.run, f"its devices are in run {new.id} now")
        self.shared.give(lane, ())


def read_left(folder: Path) -> str:
    """Id of the run that was left; "": none."""
    try:
        return (folder / LEFT).read_text(errors="replace").strip()
    except OSError:
        return ""


def forget_left(folder: Path) -> None:
    (folder / LEFT).unlink(missing_ok=True)
