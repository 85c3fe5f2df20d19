"""All lanes of one node: made together, and found by topics, numbers and children."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.live.loop.lane import LaneWork, RunLane
from edge_sdk.live.membership.dispatcher import Dispatcher
from edge_sdk.live.membership.surroundings import Surroundings
from edge_sdk.wire import topics

if TYPE_CHECKING:
    from edge_sdk.live.loop.shared_children import SharedChildren


@dataclass(frozen=True, kw_only=True)
class LaneSettings:
    """Runs beside each other at one node.

    Attributes:
        client: its client id, where other nodes of its name lead other children; "": the name, and it leads all.
        lane: number of the lane that it works in: above 0, beside other nodes of its name at the same children.
        beside: number of a lane -> what it does there, beside the main one; only where `lane` is 0.
        trainings: number of a lane -> a further training in it, for other children than those of the main lane.
        choose: run -> the children that it is for; with it trainings share the children, see shared_children.py.
    """

    client: str = ""
    lane: int = 0
    beside: Mapping[int, LaneWork] = field(default_factory=dict)
    trainings: Mapping[int, LaneWork] = field(default_factory=dict)
    choose: Callable[[Run], Sequence[str]] | None = None


ONE_LANE = LaneSettings()


class NodeLanes:
    """The lanes of one node.

    Args:
        work: of the main lane.
        settings: number of that, and what is done in the others.
        least: children that must be here before a role starts; None: all.

    Attributes:
        main: the main one. all: each of them, the main one first.
        shared: which lane leads which child, where several trainings share the children; None: they do not.
        rooms: "evaluations" and "trainings" -> how many runs of that kind may go on at once.
    """

    def __init__(
        self,
        work: LaneWork,
        around: Surroundings,
        settings: LaneSettings,
        least: int | None,
    ):
        number, beside, trainings, choose = settings.lane, settings.beside, settings.trainings, settings.choose
        self.name, self.waits_for_all = around.name, least is None
        self.rooms = {"evaluations": len(beside), "trainings": 1 + len(trainings)}
        self.shared: SharedChildren | None = None
        if choose is not None:  # of a hospital
            from edge_sdk.live.loop.shared_children import share_children

            self.shared = share_children(work, trainings, around, least, choose)
        self.main = RunLane(number, work, around) if self.shared is None else self.shared.lanes[0]
        own = [RunLane(number, work, around, beside=True) for number, work in sorted(beside.items())]
        others = () if self.shared is None else (*self.shared.lanes[1:], self.shared.idle)
        self.all = (self.main, *own, *others)
        # A connection has one will, and it is about all lanes.
        self.main.dispatcher.beside += [lane.dispatcher for lane in (*own, *others) if lane.around.parent is not None]
        for lane in others:
            lane.dispatcher.beside += [each.dispatcher for each in own]
            lane.dispatcher.heard_at = self.main.dispatcher.heard_at

    @property
    def leading(self) -> tuple[RunLane, ...]:
        """The lanes to which children speak of themselves: that of each training, and that of nobody's."""
        return (self.main,) if self.shared is None else (*self.shared.lanes, self.shared.idle)

    @property
    def children(self) -> tuple[str, ...]:
        """Names of those that may take part below."""
        return self.main.membership.children if self.shared is None else self.shared.children

    @property
    def here(self) -> tuple[str, ...]:
        """Names of the children that count now, in any training."""
        return tuple(sorted(name for lane in self.leading for name in lane.membership.presence.here))

    def lane_of(self, child: str) -> RunLane:
        """The lane of the training in which a child is."""
        return self.main if self.shared is None else self.shared.lane_of(child)

    def find(self, number: int) -> RunLane:
        """The lane of a number."""
        return next(lane for lane in self.all if lane.number == number)

    def find_dispatcher(self, topic: str) -> Dispatcher:
        """The dispatcher of the lane that a topic is of; the main one, where there is no such lane."""
        if len(self.all) == 1:
            return self.main.dispatcher
        if self.shared is not None and (child := topics.find_child(topic, self.name)) in self.shared.children:
            return self.shared.lane_of(child).dispatcher
        number = topics.find_lane(topic)
        return next((lane.dispatcher for lane in self.all if lane.number == number), self.main.dispatcher)

    def change(self, limits: Limits | None, children: tuple[str, ...] | None) -> None:
        """Go on with other limits, or other children. From any thread, which then wakes the loop."""
        for lane in self.all:
            lane.changes.limits = limits or lane.changes.limits
            if children is not None and (self.shared is None or lane not in self.leading):
                lane.habits.wait_for = len(children) if self.waits_for_all else lane.habits.wait_for
                lane.changes.children = children
        if children is not None and self.shared is not None:
            self.shared.change(children)
