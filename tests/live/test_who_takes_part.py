"""Who joins, who refuses and who is a stranger is said where somebody looks: at the node above, and in its metrics."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from edge_sdk.contract.round import Policy
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.nodes.daemon.prometheus import exposition
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Birth, pack_frame
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
from tests.delivery.method_nodes import nodes_of, run_of
from tests.methods.problems import TREE


def refuse(run: Run) -> Assembly:
    raise UsageError("label 'wlak' is none of the run's classes")


def test_the_root_hears_why_all_devices_of_a_hospital_refuse(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It once said that it was connected, and then nothing more."""
    net = Net(tmp_path, quick.url)
    devices = [net.node(name, None, "h", (), assemble=refuse) for name in ("a", "b")]  # type: ignore[arg-type]
    with playing(net.aggregator("h", size=2), net.hospital("h", "a", "b"), *devices):
        eventually(lambda: "agg: h cannot take part: 2 of 2 children cannot take part" in caplog.text, 60)
    said = next(line for line in caplog.messages if line.startswith("agg: h cannot") and "2 of 2" in line)
    assert "a (run count: label 'wlak' is none of the run's classes), b" in said


def test_who_joins_is_said_and_named_in_the_metrics(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a", "b")
    with playing(aggregator, net.device("a", "agg")):
        eventually(lambda: "agg: a has joined run count" in caplog.text, 60)
        text = exposition(aggregator)
    assert 'auscult_child_here{node="agg",of="a"} 1' in text and 'auscult_child_here{node="agg",of="b"} 0' in text
    assert 'auscult_in_run{node="agg",of="count"} 1' in text
    assert 'auscult_last_heard_timestamp_seconds{node="agg",of="a"} 1' in text


def test_a_stranger_is_counted_as_one(tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a")
    with playing(aggregator, net.device("watch-9", "agg")):
        eventually(lambda: aggregator.counters["refused.stranger.?"], 60)
    assert "watch-9 is a stranger: the settings of agg do not name it" in caplog.text
    assert not aggregator.counters["refused.malformed.?"]


def test_a_stranger_is_named_once_an_hour(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was named every second."""
    aggregator, now = Net(tmp_path, quick.url).aggregator("a"), [1e6]
    monkeypatch.setattr("edge_sdk.live.membership.dispatcher.time.monotonic", lambda: now[0])
    for name in ("watch-9", "watch-9", "watch-8", "watch-9"):
        aggregator.dispatcher.take_payload(topics.upward("agg", name, "b"), pack_frame(Birth(name, 1, 2)))
    assert [line.split()[6] for line in caplog.messages if "stranger" in line] == ["watch-9", "watch-8"]
    assert aggregator.counters["refused.stranger.?"] == 4
    now[0] += 3601
    aggregator.dispatcher.take_payload(topics.upward("agg", "watch-9", "b"), pack_frame(Birth("watch-9", 1, 2)))
    assert caplog.text.count("watch-9 is a stranger") == 2


@pytest.mark.parametrize(("parent", "known"), [("gga", ("watch-9",)), ("agg", ("watch-8",))])
def test_a_device_says_that_nobody_answers(
    tmp_path: Path,
    quick: LocalBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    parent: str,
    known: tuple[str, ...],
) -> None:
    """A hospital of another name, and one that does not name it. It said "connected", and then nothing."""
    monkeypatch.setattr("edge_sdk.live.membership.waiting_log.SILENT", 1.5)
    net = Net(tmp_path, quick.url)
    device = net.device("watch-9", parent)
    with playing(net.aggregator(*known), device):
        why = eventually(lambda: device.publisher.trouble)
        eventually(lambda: sum(device.announcer.counts.values()) > 2)  # it goes on calling
    assert why.startswith(f"nobody called {parent} answers at mqtt://") and why.endswith("name watch-9?")
    assert caplog.text.count("nobody called") == 1


def test_a_device_that_is_answered_has_nothing_to_say(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_sdk.live.membership.waiting_log.SILENT", 0.3)
    net = Net(tmp_path, quick.url)
    device = net.device("a", "agg")
    with playing(device):
        eventually(lambda: device.publisher.trouble)
        with playing(net.aggregator("a")):
            eventually(lambda: device.current is not None and not device.publisher.trouble)
    assert caplog.text.count("nobody called agg") <= 2  # before it came, and perhaps after it went


@pytest.mark.parametrize("least", [None, 2])
def test_a_run_does_not_wait_for_a_device_that_cannot_take_part(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, least: int | None
) -> None:
    """One watch whose owner had labelled nothing held up the whole fleet, for ever. A hospital that names how many must
    be here gets so many."""
    caplog.set_level(logging.INFO)
    net, able = Net(tmp_path, quick.url), threading.Event()
    late, hospital = net.device("b", "h"), net.hospital("h", "a", "b", wait_for=least)
    make, late.membership.assemble = late.membership.assemble, lambda run: make(run) if able.is_set() else refuse(run)
    parts = hospital.membership.assemble
    hospital.membership.assemble = lambda run: replace(parts(run), joins_later=True)
    with playing(net.aggregator("h", size=2), hospital, net.device("a", "h"), late):
        eventually(lambda: "h: b cannot take part" in caplog.text)
        if least is None:
            eventually(lambda: net.rounds >= 2)
            assert net.told[-1][1].devices == 1 and "h: goes on without b: cannot take part now" in caplog.text
        else:
            eventually(lambda: "agg: h cannot take part: 1 of 2 children cannot take part" in caplog.text)
            assert not net.told
        able.set()
        late.reconsider()
        eventually(lambda: net.told and net.told[-1][1].devices == 2)


@pytest.mark.parametrize("least", [None, 2])
def test_a_run_waits_for_a_device_that_never_comes_as_long_as_for_an_answer(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, least: int | None
) -> None:
    """A watch in a drawer kept a whole hospital from beginning, for ever, although its run had a deadline."""
    caplog.set_level(logging.INFO)
    hospital = Net(tmp_path, quick.url).hospital("h", "a", "b", wait_for=least, policy=Policy(deadline=0.5))
    parts, net = hospital.membership.assemble, Net(tmp_path, quick.url)
    hospital.membership.assemble = lambda run: replace(parts(run), joins_later=True)
    with playing(net.aggregator("h", size=2), hospital):
        session = eventually(lambda: hospital.session)
        assert session.beginning.ends_at == inf, "nobody is here"
        with playing(net.device("a", "h")):
            eventually(lambda: session.members.here)
            if least is None:
                eventually(lambda: net.rounds >= 2)
                assert "h: goes on without b: not here, and no longer waited for" in caplog.text
            else:
                assert session.beginning.ends_at == inf and not session.settled


@pytest.mark.parametrize("method, later", [("fedavg", True), ("fedal", False), ("fedavg:4:secret", False)])
def test_a_run_waits_for_each_device_where_none_can_join_later(
    tmp_path: Path, quick: LocalBroker, method: str, later: bool
) -> None:
    """Companions exist for the devices of the start, and secret sums have exchanged keys by then."""
    run = run_of(method, 2)
    nodes = {node.name: node for node in nodes_of(run, tmp_path, quick.url, lambda n, m: None)}
    hospital = nodes[next(iter(TREE))]
    parts = hospital.membership.assemble(run)
    assert parts.joins_later is later and parts.may_decline is later and hospital.habits.waits_for_able
    assert not nodes["agg"].membership.assemble(run).joins_later
