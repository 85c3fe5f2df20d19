"""Two aggregators of one name beside each other, each with hospitals of its own, and hospitals that come and leave."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing


class Lane:
    """An aggregator `agg` of one run, beside others of its name."""

    def __init__(self, net: Net, id: str, *hospitals: str):
        self.hospitals = hospitals
        self.told: list[Any] = []
        run = Run(id=id, method="count", rounds=10**6)

        def assemble(run: Run) -> Assembly:
            return roles.assembly(roles.AGGREGATOR, run, sizes=dict.fromkeys(self.hospitals, 1))

        options: dict[str, Any] = {"run": run, "told": lambda n, m: self.told.append(m), "assemble": assemble}
        options |= {"directory": net.base / f"agg-{id}", "client": f"agg:{id}", "flexible": True}
        self.node: Runtime = net.node("agg", roles.AGGREGATOR, None, hospitals, **options)

    def change(self, *hospitals: str) -> None:
        self.hospitals = hospitals
        self.node.change(children=hospitals)

    @property
    def latest(self) -> int:
        """Devices that the latest round has counted."""
        return int(self.told[-1].devices) if self.told else 0

    def check_rounds(self) -> None:
        """No round was lost or played twice, and each answer was counted once."""
        assert [m.round for m in self.told] == list(range(1, len(self.told) + 1))
        assert all(m.total == 4 * m.round for m in self.told)


def ward(net: Net, hospital: str) -> tuple[Runtime, Runtime]:
    """A hospital with one device."""
    return net.hospital(hospital, f"{hospital}-1", flexible=True), net.device(f"{hospital}-1", hospital)


def test_two_aggregators_of_one_name_go_on_beside_each_other(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    net = Net(tmp_path, quick.url)
    a, b = Lane(net, "a", "h"), Lane(net, "b", "i")
    with playing(a.node, *ward(net, "h"), *ward(net, "i")):
        eventually(lambda: a.latest == 1)
        with playing(b.node):
            eventually(lambda: len(b.told) > 5)
            done = len(a.told)
            eventually(lambda: len(a.told) > done + 5)
        done = len(a.told)  # the other one has said goodbye
        eventually(lambda: len(a.told) > done + 5)
    a.check_rounds()
    b.check_rounds()
    assert not [name for lane in (a, b) for name in lane.node.counters.totals() if "refused.stranger" in name]
    assert "two nodes are called agg" not in caplog.text and "lost within" not in caplog.text


def test_a_hospital_comes_leaves_and_returns_during_a_run(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    lane = Lane(net, "a", "h")
    with playing(lane.node, *ward(net, "h"), *ward(net, "i")):
        eventually(lambda: lane.latest == 1)
        lane.change("h", "i")
        eventually(lambda: lane.latest == 2)
        lane.change("h")
        eventually(lambda: lane.latest == 1)
        lane.change("i", "h")
        eventually(lambda: lane.latest == 2)
    lane.check_rounds()


def test_a_hospital_that_has_left_takes_part_in_the_run_beside(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    a, b = Lane(net, "a", "h", "i"), Lane(net, "b", "j")
    with playing(a.node, b.node, *ward(net, "h"), *ward(net, "i"), *ward(net, "j")):
        eventually(lambda: (a.latest, b.latest) == (2, 1))
        a.change("h")
        eventually(lambda: a.latest == 1)
        b.change("i", "j")
        eventually(lambda: b.latest == 2)
    a.check_rounds()
    b.check_rounds()


def test_a_hospital_that_hangs_and_is_taken_out_is_waited_for_no_longer(tmp_path: Path, quick: LocalBroker) -> None:
    """It once took a restart of the run."""
    net = Net(tmp_path, quick.url)
    lane = Lane(net, "a", "h", "i")
    with playing(lane.node, *ward(net, "h")):
        with playing(*ward(net, "i")):
            eventually(lambda: lane.latest == 2)
        eventually(lambda: lane.node.here == ("h",))
        lane.change("h")
        eventually(lambda: lane.latest == 1)
    again = Lane(net, "a", "h")
    with playing(again.node, *ward(net, "h")):  # and what counts outlives the process
        eventually(lambda: len(again.told) > 3)
    assert {m.devices for m in again.told} == {1}


def test_what_is_for_all_hospitals_of_a_run_is_for_no_others(tmp_path: Path, quick: LocalBroker) -> None:
    """A question to two hospitals once went to the topic for all, which those of other runs hear too."""
    net = Net(tmp_path, quick.url)
    lane = Lane(net, "a", "h", "i")
    other = listener(net, "j")
    with playing(lane.node, *ward(net, "h"), *ward(net, "i"), other):
        eventually(lambda: len(lane.told) > 5 and lane.latest == 2)
    assert lane.node.counters.get("bytes_out.all", 0) < 2000  # births
    assert other.counters.get("refused.run.agg", 0) + other.counters.get("refused.early.agg", 0) == 0


def listener(net: Net, name: str) -> Runtime:
    return net.hospital(name, f"{name}-1")
