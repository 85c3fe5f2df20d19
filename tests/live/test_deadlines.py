"""Deadlines: derived from what rounds take, shown to whoever operates the run, and changed while it goes on."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.contract.round import Policy
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.deadlines import Deadline, deadline_above, parse_deadline
from edge_sdk.nodes.daemon.prometheus import exposition
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

MEASURED = Policy(quorum=1, deadline=20.0, measured=True, least=1.0)


def test_a_device_that_hangs_holds_up_a_run_for_one_deadline_and_is_named(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_sdk.live.membership.waiting_log.SHOWN", 0.2)
    caplog.set_level("INFO", "auscult.node")
    net, go_on = Net(tmp_path, quick.url), threading.Event()
    hung = net.device("b", "agg", work=lambda round: go_on.wait(30) if round == 3 else None)
    aggregator = net.aggregator("a", "b", policy=MEASURED)
    with playing(aggregator, net.device("a", "agg"), hung):
        eventually(lambda: net.rounds >= 2)
        eventually(lambda: "waiting_for.b" in aggregator.gauges())
        assert 'auscult_waiting_for{node="agg",of="b"}' in exposition(aggregator)
        assert 'auscult_deadline_seconds{node="agg"} 1\n' in exposition(aggregator)
        eventually(lambda: net.rounds >= 3, 10)
        assert aggregator.counters["late.b"] >= 1
        go_on.set()
        eventually(lambda: net.told[-1][1].devices == 2)
    assert [done.devices for _, done in net.told][:3] == [2, 2, 1]
    assert "deadline of Ask: 20 s (nothing of that kind has been measured yet)" in caplog.text
    assert "deadline of Ask: 1 s (4 times the usual" in caplog.text
    assert "question 3 is over after 1 s without b" in caplog.text


def test_what_was_measured_is_there_after_a_restart(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with playing(net.device("a", "agg")):
        with playing(net.aggregator("a", policy=MEASURED)):
            eventually(lambda: net.rounds >= 3)
        with playing(again := net.aggregator("a", policy=MEASURED)):
            eventually(lambda: again.session)
            assert again.gauges()["deadline_seconds"] == 1.0 and len(again.node.record.below.times["Ask"]) >= 3  # type: ignore[union-attr]


def test_who_is_gone_for_longer_than_a_round_waits_is_not_asked(tmp_path: Path, quick: LocalBroker) -> None:
    """A device that is switched off costs one deadline, and not one in each round."""
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a", "b")
    aggregator.membership.assemble = lambda run: roles.assembly(roles.AGGREGATOR, run, MEASURED)
    with playing(aggregator, net.device("a", "agg")):
        with playing(net.device("b", "agg")):
            eventually(lambda: net.rounds >= 3)
        eventually(lambda: net.told[-1][1].devices == 1, 10)
        time.sleep(1.0)
        reached = net.rounds
        eventually(lambda: net.rounds >= reached + 20, 5)
        with playing(net.device("b", "agg")):
            eventually(lambda: net.told[-1][1].devices == 2)


def test_a_quorum_is_waited_for_beyond_the_deadline(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a", "b")
    policy = Policy(quorum=2, deadline=0.3)
    aggregator.membership.assemble = lambda run: roles.assembly(roles.AGGREGATOR, run, policy)
    with playing(aggregator, net.device("a", "agg")):
        with playing(net.device("b", "agg")):
            eventually(lambda: net.rounds >= 3)
        eventually(lambda: aggregator.here == ("a",))
        reached = net.rounds
        time.sleep(1.5)
        assert net.rounds <= reached + 1
        with playing(net.device("b", "agg")):
            eventually(lambda: net.rounds >= reached + 5)
    assert all(done.devices == 2 for _, done in net.told)


def test_waiting_may_be_changed_while_a_run_goes_on(tmp_path: Path, quick: LocalBroker) -> None:
    """On both tiers, with no call interrupted."""
    net, go_on, begun = Net(tmp_path, quick.url), threading.Event(), list[int]()

    def work(round: int) -> None:
        begun.append(round)
        if round == 3:
            assert go_on.wait(20)

    hospital, aggregator = net.hospital("h", "a", "b"), net.aggregator("h")
    hospital.membership.assemble = lambda run: roles.assembly(roles.HOSPITAL, run, Policy(deadline=run.deadline))
    slow = net.device("b", "h", work=work)
    with playing(aggregator, hospital, net.device("a", "h"), slow):
        eventually(lambda: 3 in begun)
        run = aggregator.current
        assert run is not None
        aggregator.change_waiting(replace(run, deadline=0.5))
        eventually(lambda: net.rounds >= 3)
        eventually(lambda: slow.current and slow.current.deadline == 0.5)
        aggregator.change_waiting(replace(run, deadline=inf))
        go_on.set()
        eventually(lambda: net.told[-1][1].devices == 2)
        eventually(lambda: hospital.node and hospital.node.record.below.policy.deadline == inf)
    assert begun.count(3) == 1


@pytest.mark.parametrize(
    "value, seconds, measured", [("auto", 3600.0, True), ("none", inf, False), (90, 90.0, False), (inf, inf, False)]
)
def test_what_a_file_may_say(value: Any, seconds: float, measured: bool) -> None:
    assert parse_deadline(value, "deadline") == Deadline(seconds, measured)


@pytest.mark.parametrize("value", ["soon", 0, -1.0, float("nan"), ""])
def test_what_it_may_not_say(value: Any) -> None:
    with pytest.raises(UsageError, match=r'run\.deadline = .*expected seconds above 0, "auto" or "none"'):
        parse_deadline(value, "run.deadline")


def test_an_aggregator_waits_longer_than_its_hospitals() -> None:
    auto, none, minute = Deadline(3600.0, True), Deadline(), Deadline(60.0)
    assert deadline_above("auto", auto) == Deadline(7200.0, True, 120.0)
    assert deadline_above("auto", none) == none and deadline_above("none", minute) == none
    assert deadline_above("auto", minute) == Deadline(120.0, True, 120.0)
    assert deadline_above(61, minute) == Deadline(61.0)
    for value, below in ((60, minute), (600, auto), (600, none)):
        with pytest.raises(UsageError, match="the aggregator waits longer than a hospital"):
            deadline_above(value, below)
