"""All lanes of one node: made together, and found by topics, numbers and children."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edge_sdk.contract.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.live.loop.lane import LaneWork, RunLane, Surroundings
from edge_sdk.live.loop.shared_children import share_children
from edge_sdk.live.membership.dispatcher import Dispatcher
from edge_sdk.wire import topics


class NodeLanes:
    """The lanes of one node.

    Args:
        number, work: of the main lane.
        beside, trainings, choose: as of `Runtime`.
        least: children that must be here before a role starts; None: all.

    Attributes:
        main: the main one. all: each of them, the main one first.
        shared: which lane leads which child, where several trainings share the children; None: they do not.
        rooms: "evaluations" and "trainings" -> how many runs of that kind may go on at once.
    """

    def __init__(
        self,
        number: int,
        work: LaneWork,
        around: Surroundings,
        beside: Mapping[int, LaneWork],
        trainings: Mapping[int, LaneWork],
        least: int | None,
        choose: Callable[[Run], Sequence[str]] | None,
    ):
        self.name, self.waits_for_all = around.name, least is None
        self.rooms = {"evaluations": len(beside), "trainings": 1 + len(trainings)}
        self.shared = None if choose is None else share_children(work, trainings, around, least, choose)
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
