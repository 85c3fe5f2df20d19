"""Children that the trainings of one node share: each child is led by one lane at a time, or by none.

Several trainings may go on at a hospital side by side, each in a lane of its own, if no device is in two of them. What
their parents say comes in lanes of its own. A child knows nothing of that: it speaks in its main lane, and what it says
is for the lane that leads it. Children that are in no training now are led by an idle lane, which greets them, so that
the node knows that they are here, and has no run for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.lane import LaneWork, RunLane
from edge_sdk.live.membership.surroundings import Surroundings

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly

MAIN, UNNUMBERED = 0, -1
"""Numbers of the main lane and of one that nobody above speaks in."""
IDLE = "idle"
"""Folder of the lane that has no run."""


class SharedChildren:
    """The children of one node and the lanes that lead them.

    Args:
        lanes: those of trainings, the main one first.
        idle: the lane that has no run.
        children: names of all.
        least: children that must be here before a role starts, at most; None: all of its lane.
        choose: run -> the children that it is for.
    """

    def __init__(
        self,
        lanes: Sequence[RunLane],
        idle: RunLane,
        children: Sequence[str],
        least: int | None,
        choose: Callable[[Run], Sequence[str]],
    ):
        self.lanes, self.idle, self.children, self.least, self.choose = (
            tuple(lanes),
            idle,
            tuple(children),
            least,
            choose,
        )
        self.leads: dict[str, RunLane] = {}

    def lane_of(self, child: str) -> RunLane:
        """The lane that leads a child."""
        return self.leads.get(child, self.idle)

    def list_led(self, lane: RunLane) -> tuple[str, ...]:
        """The children of a lane."""
        return tuple(child for child in self.children if self.lane_of(child) is lane)

    def give(self, lane: RunLane, children: Collection[str]) -> None:
        """Let a lane lead these children and no others. The lane is about to open a run, or does so anew; others hear
        of it at their next turn. The loop calls this."""
        self.leads = {child: leader for child, leader in self.leads.items() if leader is not lane}
        self.leads |= {child: lane for child in self.children if child in children}
        lane.membership.children = self.list_led(lane)
        lane.habits.wait_for = min(len(children) if self.least is None else self.least, len(children))
        for other in (*self.lanes, self.idle):
            if other is not lane:
                self.tell(other, self.list_led(other))

    def tell(self, lane: RunLane, children: tuple[str, ...]) -> None:
        """Let a lane go on with these children, if it has others."""
        if children != lane.membership.children or lane.changes.children is not None:
            lane.changes.children = children
            lane.around.wake()

    def change(self, children: Sequence[str]) -> None:
        """Let others take part: each run is for those whom it is for among them. From any thread."""
        self.children = tuple(children)
        for lane in self.lanes:
            session = lane.session
            self.tell(lane, () if session is None else tuple(self.choose(session.run)))
        self.tell(self.idle, self.list_led(self.idle))


def share_children(
    work: LaneWork,
    trainings: Mapping[int, LaneWork],
    around: Surroundings,
    least: int | None,
    choose: Callable[[Run], Sequence[str]],
) -> SharedChildren:
    """Make the lanes of trainings that share a node's children; all are idle so far. Arguments as of `Runtime`
    and `LaneSettings`.

    What is for all children of a lane is addressed to each: the topic for all is heard by those of other lanes too.
    """

    def make_lane(number: int, work: LaneWork) -> RunLane:
        own = replace(around, children=(), habits=replace(around.habits, addresses_each=True))
        return RunLane(number, work, own, beside=number != MAIN, below=MAIN)

    idle_work = LaneWork(directory=work.directory / IDLE, assemble=refuse_all)
    lanes = [make_lane(number, each) for number, each in ((MAIN, work), *sorted(trainings.items()))]
    idle = RunLane(UNNUMBERED, idle_work, replace(around, parent=None, above=None), beside=True, below=MAIN)
    return SharedChildren(lanes, idle, around.children, least, choose)


def refuse_all(run: Run) -> Assembly:
    """What is played where nothing is. Raises UsageError."""
    raise UsageError(f"run {run.id} was offered where no run is taken")
