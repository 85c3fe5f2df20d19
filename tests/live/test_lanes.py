"""Lanes: a node's run beside another one, over the same connections, with a store of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.live.loop.runtime import LaneWork, Runtime
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Birth, pack_frame
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

DEVICES = ("h-1", "h-2")


class Top:
    """An aggregator `agg` of one run, in one lane."""

    def __init__(self, net: Net, id: str, lane: int, base: Path | None = None):
        self.told: list[Any] = []
        run = Run(id=id, method="count", rounds=10**6)
        options: dict[str, Any] = {"run": run, "told": lambda n, m: self.told.append(m), "lane": lane}
        options |= {"directory": net.base / f"agg-{id}", "client": f"agg:{id}" if lane else "", "flexible": True}
        self.node: Runtime = net.node("agg", roles.AGGREGATOR, None, ("h",), **options)

    def check_rounds(self) -> None:
        """No round was lost or played twice, and each answer of both devices was counted once."""
        assert [m.round for m in self.told] == list(range(1, len(self.told) + 1))
        assert all((m.total, m.devices) == (4 * m.round, 2) for m in self.told)

    def goes_on(self, rounds: int = 5) -> None:
        done = len(self.told)
        eventually(lambda: len(self.told) > done + rounds)


def lane_of(net: Net, name: str, role: Any, children: tuple[str, ...] = (), **given: Any) -> dict[int, LaneWork]:
    """What a node does in the first lane beside its main one: the counting run, too."""

    def assemble(run: Run) -> Assembly:
        return roles.assembly(role, run, None, sizes=dict.fromkeys(children, 1), **given)

    return {1: LaneWork(directory=net.base / name / "lane-1", assemble=assemble)}


def hospital(net: Net, **options: Any) -> Runtime:
    return net.hospital("h", *DEVICES, beside=lane_of(net, "h", roles.HOSPITAL, DEVICES), flexible=True, **options)


def device(net: Net, name: str, work: Callable[[int], None] | None = None) -> Runtime:
    return net.device(name, "h", work, beside=lane_of(net, name, roles.DEVICE))


def test_two_runs_go_on_at_once_at_the_same_devices(tmp_path: Path, quick: LocalBroker) -> None:
    """The second one once waited until the first had ended."""
    net = Net(tmp_path, quick.url)
    training, judging = Top(net, "a", 0), Top(net, "b", 1)
    with playing(training.node, hospital(net), *(device(net, name) for name in DEVICES)):
        training.goes_on()
        with playing(judging.node):
            judging.goes_on()
            training.goes_on()
        training.goes_on()  # the other one has said goodbye
    training.check_rounds()
    judging.check_rounds()
    names = training.node.counters.keys() | judging.node.counters.keys()
    assert not [name for name in names if name.startswith(("refused.malformed", "refused.stranger"))]


def test_a_disk_that_fails_in_one_lane_is_not_put_down_to_another(tmp_path: Path, quick: LocalBroker) -> None:
    """The main lane tells the others who has gone."""
    net = Net(tmp_path, quick.url)
    node = hospital(net)
    main, beside = (lane.dispatcher for lane in node.lanes)
    failed = list[Any]()
    for one in (main, beside):
        one.membership.disk_failed = lambda error, one=one: failed.append(one)

    def fail(birth: Any) -> None:
        raise OSError(28, "no room")

    beside.neighbours.handle_childs_birth = fail
    gone = Birth("h-1", 1, 2, gone=True)
    main.take_payload(topics.upward("h", "h-1", topics.BIRTHS), pack_frame(gone))
    assert failed == [beside]
