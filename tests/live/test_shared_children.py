"""Several trainings side by side at one node, each with children of its own: who leads whom, and who is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.runtime import LaneWork, Runtime
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

CHILDREN = ("h-1", "h-2", "h-3", "h-4")
LANE = 4


class Top:
    """An aggregator `agg` of one run for some devices, in one lane."""

    def __init__(self, net: Net, id: str, lane: int, *devices: str):
        self.told, self.devices = list[Any](), devices
        run = Run(id=id, method="count", rounds=10**6, devices=devices)
        options: dict[str, Any] = {"run": run, "told": lambda n, m: self.told.append(m), "lane": lane}
        options |= {"directory": net.base / f"agg-{id}", "client": f"agg:{id}", "flexible": True}
        self.node: Runtime = net.node("agg", roles.AGGREGATOR, None, ("h",), **options)

    def goes_on(self, rounds: int = 5) -> None:
        done = len(self.told)
        eventually(lambda: len(self.told) > done + rounds)

    def check_rounds(self) -> None:
        """No round was lost or played twice, and each answer of its devices, and of nobody else, was counted once."""
        assert [m.round for m in self.told] == list(range(1, len(self.told) + 1))
        assert {m.devices for m in self.told} == {len(self.devices)}
        assert all(m.total == 4 * m.round for m in self.told)


def hospital(net: Net, **options: Any) -> Runtime:
    """A hospital with two trainings, which believes what runs say of their devices."""

    def assemble(number: int, run: Run) -> Assembly:
        shared = node.of_lanes.shared
        assert shared is not None
        wanted = choose(run)
        if any({*wanted} & {*shared.list_led(lane)} for lane in shared.lanes if lane.number != number and lane.session):
            raise UsageError("its devices are in another run")
        shared.give(node.of_lanes.find(number), wanted)
        return roles.assembly(roles.HOSPITAL, run, None, sizes=dict.fromkeys(wanted, 1))

    def choose(run: Run) -> tuple[str, ...]:
        return tuple(name for name in node.children if name in run.devices)

    lanes = {LANE: LaneWork(directory=net.base / "h" / f"lane-{LANE}", assemble=lambda run: assemble(LANE, run))}
    options |= {"assemble": lambda run: assemble(0, run), "trainings": lanes, "choose": choose}
    node = net.node("h", roles.HOSPITAL, "agg", CHILDREN, flexible=True, **options)
    return node


def devices(net: Net) -> list[Runtime]:
    return [net.device(name, "h") for name in CHILDREN]


def test_two_trainings_go_on_at_once_at_one_hospital(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    net = Net(tmp_path, quick.url)
    a, b, node = Top(net, "a", 0, "h-1", "h-2"), Top(net, "b", LANE, "h-3", "h-4"), hospital(net)
    with playing(node, *devices(net)):
        eventually(lambda: len(node.of_lanes.shared.idle.membership.presence.children) == 4)  # type: ignore[union-attr]
        assert node.here == () and node.children == CHILDREN
        with playing(a.node):
            a.goes_on()
            with playing(b.node):
                b.goes_on()
                a.goes_on()
                assert node.here == CHILDREN
            a.goes_on()  # the other one has said goodbye
    a.check_rounds()
    b.check_rounds()
    names = a.node.counters.keys() | b.node.counters.keys() | node.counters.keys()
    assert not [name for name in names if name.startswith(("refused.malformed", "refused.stranger"))]
    assert "two nodes are called" not in caplog.text


def test_a_run_that_wants_a_device_of_another_is_refused_and_disturbs_nobody(
    tmp_path: Path, quick: LocalBroker
) -> None:
    net = Net(tmp_path, quick.url)
    a, b, node = Top(net, "a", 0, "h-1", "h-2"), Top(net, "b", LANE, "h-2", "h-3"), hospital(net)
    with playing(node, a.node, *devices(net)):
        a.goes_on()
        with playing(b.node):
            eventually(lambda: "h" in b.node.presence.refusals)
            assert b.node.presence.refusals["h"] == "run b: its devices are in another run"
            a.goes_on()
    a.check_rounds()
    assert not b.told


def test_children_go_from_one_training_to_the_next(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    a, b, c = Top(net, "a", 0, "h-1", "h-2"), Top(net, "b", LANE, "h-3"), Top(net, "c", 0, "h-1", "h-4")
    with playing(hospital(net), *devices(net)), playing(b.node):
        with playing(a.node):
            a.goes_on()
            b.goes_on()
        with playing(c.node):
            c.goes_on()
            b.goes_on()
    for top in (a, b, c):
        top.check_rounds()


def test_both_trainings_go_on_after_a_restart_of_the_hospital(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    a, b = Top(net, "a", 0, "h-1", "h-2"), Top(net, "b", LANE, "h-3", "h-4")
    with playing(a.node, b.node, *devices(net)):
        for _ in range(2):
            with playing(hospital(net)):
                a.goes_on()
                b.goes_on()
    a.check_rounds()
    b.check_rounds()


def test_a_child_that_has_left_belongs_to_no_training(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    a, b, node = Top(net, "a", 0, "h-1", "h-2"), Top(net, "b", LANE, "h-3", "h-4"), hospital(net)
    with playing(node, a.node, b.node, *devices(net)):
        a.goes_on()
        b.goes_on()
        node.change(children=("h-1", "h-2", "h-3"))
        eventually(lambda: b.told[-1].devices == 1)
        a.goes_on()
        node.change(children=CHILDREN)
        eventually(lambda: b.told[-1].devices == 2)
        a.goes_on()
    a.check_rounds()
