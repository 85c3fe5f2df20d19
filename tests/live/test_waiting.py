"""Runs that stand still name who holds them up; clocks that are set do not; ends are heard after a restart."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.contract.round import Policy
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.listing import list_some
from edge_sdk.errors import PeerError
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
from tests.delivery.method_nodes import nodes_of, run_of
from tests.methods.problems import DEVICES

YEAR = 365 * 24 * 3600.0


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_sdk.live.membership.waiting_log.FIRST", 0.3)
    monkeypatch.setattr("edge_sdk.live.membership.waiting_log.AGAIN", 0.3)


@pytest.mark.usefixtures("soon")
def test_who_does_not_come_is_named(tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a", "b")
    with playing(aggregator, net.device("a", "agg")):
        eventually(lambda: "b (not connected)" in caplog.text)
        eventually(lambda: "waiting for children to come (1 of 2 are here) since" in caplog.text)
        eventually(lambda: aggregator.gauges()["waiting_seconds"] > 0.2)


def test_of_very_many_only_some_are_named() -> None:
    names = [f"d{i}" for i in range(5000)]
    assert list_some(names) == "d0, d1, d2, d3, d4 and 4995 more"
    assert list_some(names[:5]) == ", ".join(names[:5]) and list_some([]) == ""


@pytest.mark.usefixtures("soon")
def test_who_does_not_answer_is_named(tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    net, go_on = Net(tmp_path, quick.url), threading.Event()
    slow = net.device("b", "agg", work=lambda round: go_on.wait(20) if round == 2 else None)
    with playing(net.aggregator("a", "b"), net.device("a", "agg"), slow):
        eventually(lambda: "waiting for answers to question 2 since" in caplog.text)
        said = next(line for line in caplog.messages if "question 2" in line)
        assert said.endswith("s: b") and "a (" not in said
        go_on.set()
        eventually(lambda: net.rounds >= 4)


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
@pytest.mark.parametrize("worker", [True, False])
def test_a_clock_that_is_set_changes_no_round(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch, jump: float, worker: bool
) -> None:
    """A jump of a year once closed a round with nobody in it, and a jump back none at all."""
    net, wall, offset, go_on = Net(tmp_path, quick.url, worker=worker), time.time, [0.0], threading.Event()
    monkeypatch.setattr(time, "time", lambda: wall() + offset[0])
    device = net.device("a", "agg", work=lambda round: go_on.wait(20) if round == 2 else None, worker=True)
    with playing(net.aggregator("a", policy=Policy(deadline=10.0)), device):
        eventually(lambda: net.rounds >= 1)
        offset[0] = jump
        time.sleep(0.5)
        assert net.rounds == 1
        go_on.set()
        eventually(lambda: net.rounds >= 5)
    assert all(done.devices == 1 for _, done in net.told)


def test_a_deadline_ends_a_round_although_the_clock_went_back(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, wall, offset, stuck = Net(tmp_path, quick.url), time.time, [0.0], threading.Event()
    monkeypatch.setattr(time, "time", lambda: wall() + offset[0])
    device = net.device("b", "agg", work=lambda round: stuck.wait(20) if round == 2 else None)
    with playing(net.aggregator("a", "b", policy=Policy(deadline=1.0)), net.device("a", "agg"), device):
        eventually(lambda: net.rounds >= 1)
        offset[0] = -YEAR
        eventually(lambda: net.rounds >= 2, 10)
        stuck.set()
    assert [done.devices for _, done in net.told][:2] == [2, 1]


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_a_restart_after_the_clock_was_set_counts_the_time_anew(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    net, wall, go_on = Net(tmp_path, quick.url), time.time, threading.Event()
    with playing(net.device("a", "agg", work=lambda round: go_on.wait(20) if round == 2 else None)):
        with playing(net.aggregator("a", policy=Policy(deadline=10.0))):
            eventually(lambda: net.rounds >= 1)
        monkeypatch.setattr(time, "time", lambda: wall() + jump)
        with playing(net.aggregator("a", policy=Policy(deadline=10.0))):
            time.sleep(0.5)
            assert net.rounds == 1
            go_on.set()
            eventually(lambda: net.rounds >= 4)
    assert all(done.devices == 1 for _, done in net.told)


def test_answers_that_cannot_be_used_do_not_end_a_run_for_ever(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hospital's file named another count of devices. Also after it was corrected, nothing went on."""
    monkeypatch.setattr("edge_sdk.contract.round.EMPTY", 0.3)
    net, wrong = Net(tmp_path, quick.url), threading.Event()

    def receive(env: Any, state: Any, sender: str, m: Any) -> Any:
        if wrong.is_set():
            raise PeerError(f"{sender} sent a sum of 3 devices, it has 2")
        return roles.AGGREGATOR.receive(env, state, sender, m)

    role = replace(roles.AGGREGATOR, receive=receive)
    run = Run(id="count", method="count", rounds=10**6)
    options = {"run": run, "told": lambda n, m: net.told.append((n, m)), "policy": Policy(quorum=1)}
    with playing(net.node("agg", role, None, ("a",), **options), net.device("a", "agg")):
        eventually(lambda: net.rounds >= 2)
        wrong.set()
        eventually(lambda: net.told[-1][1].devices == 0)
        reached = net.rounds
        time.sleep(1.0)
        assert net.rounds <= reached + 4, "rounds of nobody do not use up the run"
        wrong.clear()
        eventually(lambda: net.told[-1][1].devices == 1)


def test_the_end_is_heard_at_every_start(tmp_path: Path, quick: LocalBroker) -> None:
    """Who is started again after the end must not wait for more."""
    heard: list[list[tuple[int, Any]]] = []
    for _ in range(3):
        told = list[tuple[int, Any]]()
        heard.append(told)
        with playing(*nodes_of(run_of("fedavg", 2), tmp_path, quick.url, lambda n, m, told=told: told.append((n, m)))):
            eventually(lambda told=told: any(isinstance(m, Finished) for _, m in told))  # type: ignore[misc]
    assert [m.devices for _, m in heard[0] if isinstance(m, Progress)] == [len(DEVICES)] * 2
    assert heard[1] == heard[2] == heard[0][-1:]


def test_a_deadline_may_be_set_while_a_run_stands_still(tmp_path: Path, quick: LocalBroker) -> None:
    """The aggregator's settings say it, and it reaches the hospital, which waits for a device that is gone."""
    net = Net(tmp_path, quick.url)

    def hospital() -> Runtime:
        made = net.hospital("h", "a", "b", wait_for=1)
        sizes = {"a": 1, "b": 1}
        made.membership.assemble = lambda run: roles.assembly(
            roles.HOSPITAL, run, Policy(deadline=run.deadline), sizes=sizes
        )
        return made

    def aggregator(deadline: float) -> Runtime:
        made = net.aggregator("h")
        made.run_given = replace(made.run_given, deadline=deadline)
        return made

    with playing(hospital(), net.device("a", "h")):
        with playing(aggregator(inf)):
            with playing(net.device("b", "h")):
                eventually(lambda: net.rounds >= 2)
            eventually(lambda: net.rounds >= 3 or net.told)
            reached = net.rounds
            time.sleep(0.7)
            assert net.rounds <= reached + 1, "b is gone, and is waited for"
            reached = net.rounds
        with playing(aggregator(0.3)):
            eventually(lambda: net.rounds >= reached + 3)
    assert net.told[0][1].devices == 2 and net.told[-1][1].devices == 1


def test_other_settings_under_one_name_are_refused_by_a_child(tmp_path: Path, quick: LocalBroker) -> None:
    """Before, it played on with those of the old run, against a parent with others."""
    net, other, device = Net(tmp_path, quick.url), Net(tmp_path / "other", quick.url), None
    with playing(device := net.device("a", "agg")):
        with playing(net.aggregator("a")):
            eventually(lambda: net.rounds >= 2)
        with playing(parent := other.aggregator("a", rounds=7)):
            eventually(lambda: parent.presence.refusals)
    assert "was begun in" in device.refusal and "other settings" in device.refusal
