"""Who belongs to a round: whoever is away for a moment when it is opened is asked when it is back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.contract.method import Role
from edge_sdk.contract.round import LEAP, Policy
from edge_sdk.errors import Cancelled
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Progress, Report
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
from tests.delivery.method_nodes import nodes_of, run_of
from tests.methods.problems import DEVICES


def asks_who_counts(made: Runtime, role: Role, **policy: Any) -> Runtime:
    """The node with roles that ask whoever counts now (DOWN), as methods do, and not children by name."""
    made.membership.assemble = lambda run: roles.assembly(role, run, Policy(**policy))
    return made


HELD = 2  # the round in which device `a` stands still


def held(gate: threading.Event) -> Callable[[int], None]:
    """Work that stands still in one round until the gate opens."""

    def work(round: int) -> None:
        if round == HELD:
            assert gate.wait(60)

    return work


def waits_only_for_a(parent: Runtime) -> bool:
    """True in the round that `a` is held in, once everybody else has answered.

    The rounds before pass through the same set of debts for a moment: a device that left then would be missed in
    the next round before `a` is held.
    """
    below = parent.node.record.below if parent.node else None
    return below is not None and below.number % LEAP == HELD and set(below.owed) == {"a"}


@pytest.mark.parametrize("restart", [False, True], ids=["", "aggregator restarts"])
def test_who_is_away_when_a_round_begins_is_asked_when_it_is_back(
    tmp_path: Path, quick: LocalBroker, restart: bool
) -> None:
    net, gate = Net(tmp_path, quick.url), threading.Event()

    def aggregator() -> Runtime:
        return asks_who_counts(net.aggregator("a", "b", rounds=5), roles.AGGREGATOR)

    with playing(net.device("a", "agg", work=held(gate))):
        with playing(first := aggregator()):
            with playing(net.device("b", "agg")):
                eventually(lambda: waits_only_for_a(first))
            eventually(lambda: first.here == ("a",))
            gate.set()
            eventually(lambda: first.node.record.below.number % LEAP >= 3)  # type: ignore[union-attr]
            if not restart:
                with playing(net.device("b", "agg")):
                    eventually(lambda: net.rounds == 5)
        if restart:
            with playing(aggregator(), net.device("b", "agg")):
                eventually(lambda: net.rounds == 5)
    assert [done.devices for _, done in net.told] == [2] * 5


def test_a_hospitals_round_waits_for_a_device_that_is_away(tmp_path: Path, quick: LocalBroker) -> None:
    net, gate = Net(tmp_path, quick.url), threading.Event()
    hospital = asks_who_counts(net.hospital("h", "a", "b"), roles.HOSPITAL)
    aggregator = asks_who_counts(net.aggregator("h", rounds=5), roles.AGGREGATOR)
    with playing(aggregator, hospital, net.device("a", "h", work=held(gate))):
        with playing(net.device("b", "h")):
            eventually(lambda: waits_only_for_a(hospital))
        eventually(lambda: hospital.here == ("a",))
        gate.set()
        eventually(lambda: hospital.node.record.below.number % LEAP >= 3)  # type: ignore[union-attr]
        with playing(net.device("b", "h")):
            eventually(lambda: net.rounds == 5)
    assert [done.devices for _, done in net.told] == [2] * 5


class Late:
    """Work of a device that does not end before its round is over; it notes when it was given up."""

    def __init__(self) -> None:
        self.node: Runtime | None = None
        self.begun, self.given_up = threading.Event(), threading.Event()

    def __call__(self, round: int) -> None:
        self.begun.set()
        if round == 1:
            eventually(lambda: self.node is not None and self.node.cancelled(), 60)
            self.given_up.set()
            raise Cancelled("the round is over")


def why(node: Runtime) -> str:
    return "" if node.session is None else node.session.calls.gave_up


def test_a_device_whose_round_is_over_stops_and_says_so(tmp_path: Path, quick: LocalBroker) -> None:
    """It is not asked again: nothing else would tell it."""
    net, work = Net(tmp_path, quick.url), Late()
    parent = net.aggregator("a", "b", rounds=1, policy=Policy(quorum=1, deadline=1.0))
    work.node = late = net.device("a", "agg", work)
    with playing(parent, net.device("b", "agg"), late):
        eventually(work.given_up.is_set, 60)
        eventually(lambda: why(late) == "agg has closed the round of question 1, which was being worked on", 60)
        assert late.counters["cancelled"] == 1 and not late.session.calls.jobs  # type: ignore[union-attr]
    assert [done.devices for _, done in net.told] == [1]


def test_a_device_that_was_away_when_its_round_ended_hears_it_when_it_is_back(
    tmp_path: Path, mortal: LocalBroker
) -> None:
    net, work = Net(tmp_path, mortal.url), Late()
    parent = net.aggregator("a", rounds=1, policy=Policy(deadline=2.0))
    work.node = late = net.device("a", "agg", work)
    with playing(parent, late):
        eventually(work.begun.is_set, 60)
        mortal.kill()
        eventually(lambda: net.rounds == 1, 60)
        mortal.start()
        eventually(work.given_up.is_set, 60)
        eventually(lambda: bool(why(late)), 60)


def beside_a_late_hospital(net: Net, over: threading.Event) -> ExitStack:
    """An aggregator whose only round ends with the first answer, and a device of its own that gives it on a word."""

    def work(round: int) -> None:
        assert over.wait(60)

    return playing(net.aggregator("h", "b", rounds=1, policy=Policy(need=1)), net.device("b", "agg", work))


def test_devices_of_a_hospital_that_is_late_itself_stop_too(tmp_path: Path, quick: LocalBroker) -> None:
    """The hospital's own round stays open, and nobody wants what comes of it."""
    net, work, over = Net(tmp_path, quick.url), Late(), threading.Event()
    work.node = late = net.device("a", "h", work)
    with beside_a_late_hospital(net, over), playing(net.hospital("h", "a"), late):
        eventually(work.begun.is_set, 60)
        over.set()
        eventually(work.given_up.is_set, 60)
        eventually(lambda: why(late) == "h has closed the round of question 1, which was being worked on", 60)
    assert [done.devices for _, done in net.told] == [1]


def test_a_device_of_a_late_hospital_hears_it_when_it_is_back(tmp_path: Path, quick: LocalBroker) -> None:
    net, first, second, over = Net(tmp_path, quick.url), Late(), Late(), threading.Event()
    hospital = net.hospital("h", "a")
    with beside_a_late_hospital(net, over), playing(hospital):
        first.node = device = net.device("a", "h", first)
        with playing(device):
            eventually(first.begun.is_set, 60)
        over.set()
        eventually(lambda: hospital.session is not None and hospital.session.calls.closed > 0, 60)
        second.node = device = net.device("a", "h", second)  # with the question on its disk
        with playing(device):
            eventually(second.given_up.is_set, 60)
            eventually(lambda: why(device) == "h has closed the round of question 1, which was being worked on", 60)


def test_a_device_that_is_asked_again_says_no_more_of_the_round_before(tmp_path: Path, quick: LocalBroker) -> None:
    net, work = Net(tmp_path, quick.url), Late()
    parent = net.aggregator("a", rounds=3, policy=Policy(deadline=1.0))
    work.node = late = net.device("a", "agg", work)
    with playing(parent, late):
        eventually(lambda: net.rounds == 3, 60)
        eventually(lambda: why(late) == "", 60)
    assert net.told[-1][1].devices == 1


def test_bounces_of_the_broker_leave_no_round_short(tmp_path: Path, mortal: LocalBroker) -> None:
    """They once gave rounds of 4, 4, 4, 4, 1, 2, 3, 4 devices."""
    told = list[Any]()
    nodes = nodes_of(run_of("fedavg", 40), tmp_path, mortal.url, lambda number, m: told.append(m))
    with playing(*nodes):
        for reached in range(2, 38, 4):
            eventually(lambda reached=reached: sum(isinstance(m, Progress) for m in told) >= reached)  # type: ignore[misc]
            mortal.kill()
            mortal.start()
        eventually(lambda: any(isinstance(m, Finished) for m in told), 60)
    assert [m.devices for m in told if isinstance(m, Progress)] == [len(DEVICES)] * 40
    assert all(m.sums["devices"] == len(DEVICES) for m in told if isinstance(m, Report) and "devices" in m.sums)
