"""The live node over real brokers: calls of the role, what is refused, counters, ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTErrorCode

from edge_sdk.contract.round import LEAP, Policy
from edge_sdk.delivery.storage.store import Store
from edge_sdk.errors import Cancelled, UsageError
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire import topics
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.client import Client
from edge_sdk.wire.frames import Message, pack_frame
from edge_sdk.wire.mqtt import Connection
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
from tests.delivery.nodes import make_runtime


def test_training_does_not_stop_the_network(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is acknowledged while the one before it is still being worked on, and the broker answers pings."""
    begun, free, answered = threading.Event(), threading.Event(), list[bytes]()
    take_answer = Client._handle_pingresp

    def count(client: Client) -> MQTTErrorCode:
        if client._client_id == b"a" and begun.is_set() and not free.is_set():
            answered.append(client._client_id)
        return take_answer(client)

    monkeypatch.setattr(Client, "_handle_pingresp", count)

    def work(round: int) -> None:
        begun.set()
        assert free.wait(60)

    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("a", rounds=3), net.device("a", "agg", work, keepalive=1)
    with playing(aggregator, device):
        assert begun.wait(20)
        session = aggregator.session
        assert session is not None
        eventually(lambda: not session.outbox.pending)
        eventually(lambda: len(answered) >= 2)  # by then the broker would have waited too long for a sign of life
        free.set()
        eventually(lambda: net.rounds == 3)


def test_a_newer_question_cancels_the_older(tmp_path: Path, quick: LocalBroker) -> None:
    """The device is too slow for the first question; it gives up when the second has come, and answers that."""
    gave_up = threading.Event()

    def work(round: int) -> None:
        if not gave_up.is_set():
            eventually(device.cancelled)
            gave_up.set()
            raise Cancelled("for a newer question")

    net = Net(tmp_path, quick.url)
    device = net.device("a", "agg", work)
    with playing(net.aggregator("a", policy=Policy(deadline=0.5), rounds=3), device):
        eventually(lambda: net.rounds == 3)
        assert gave_up.is_set() and device.counters["cancelled"] == 1
    assert net.told[0][1].devices == 0 and net.told[-1][1].devices == 1


def test_stopping_gives_up_the_call_and_makes_it_again(tmp_path: Path, quick: LocalBroker) -> None:
    begun = threading.Event()

    def work(round: int) -> None:
        if round == 1:
            begun.set()
            eventually(slow.cancelled)
            raise Cancelled("the node stops")

    net = Net(tmp_path, quick.url)
    slow = net.device("a", "agg", work)
    with playing(net.aggregator("a", rounds=2)):
        with playing(slow):
            assert begun.wait(20)
        with playing(net.device("a", "agg")):
            eventually(lambda: net.rounds == 2)
    assert [done.devices for _, done in net.told] == [1, 1]


@pytest.mark.parametrize("worker", [True, False])
def test_what_a_role_cannot_work_on_is_set_aside(tmp_path: Path, quick: LocalBroker, worker: bool) -> None:
    def work(round: int) -> None:
        if round == 1:
            raise ZeroDivisionError("a fault of the method")

    net = Net(tmp_path, quick.url, worker=worker)
    device = net.device("a", "agg", work)
    with playing(net.aggregator("a", policy=Policy(deadline=0.5), rounds=2), device):
        eventually(lambda: net.rounds == 2)
        assert device.counters["quarantined.agg"] == 1
    store = Store(tmp_path / "a" / "count.db")
    ((sender, number, why),) = store.load_quarantine()
    store.close()
    assert (sender, number % LEAP) == ("agg", 1) and "a fault of the method" in why


def stranger(url: str, name: str) -> Connection:
    """A client that may send what it likes."""
    connection = Connection(broker_at(url), name, ["nothing"])
    connection.open()

    def is_up() -> bool:
        connection.read()
        connection.write()
        return connection.up

    eventually(is_up)
    return connection


def test_garbage_and_forgery_cost_a_line_in_the_log(tmp_path: Path, broker: LocalBroker) -> None:
    net = Net(tmp_path, broker.url)
    aggregator, device = net.aggregator("a", rounds=10**6), net.device("a", "agg")
    forged = pack_frame(Message("count", "b", 1, 1, 1, (), 1, False, b""))
    foreign = pack_frame(Message("other", "a", 1, 1, 1, (), 1, False, b""))
    with playing(aggregator, device):
        eventually(lambda: net.rounds >= 1)
        other = stranger(broker.url, "stranger")
        for payload in (b"", b"\xff" * 40, forged):
            other.publish(topics.upward("agg", "a", "m"), payload, 1)
        other.publish(topics.upward("agg", "a", "m"), foreign, 1)
        other.publish(topics.upward("agg", "zz", "m"), pack_frame(Message("count", "zz", 1, 1, 1, (), 1, False)), 1)
        other.publish(topics.upward("agg", "a", "b"), forged, 1)
        eventually(lambda: aggregator.counters.totals().get("refused", 0) >= 6)
        assert aggregator.counters["refused.run.a"] == 1
        reached = net.rounds
        eventually(lambda: net.rounds > reached)
        other.close()


def test_a_message_that_cannot_be_read_is_dropped(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    device = net.device("a", "agg")
    with playing(net.aggregator("a", rounds=10**6), device):
        eventually(lambda: net.rounds >= 1)
        session = device.session
        assert session is not None
        epoch = session.inbox.peers["agg"].epoch
        other = stranger(quick.url, "stranger")
        frame = Message("count", "agg", epoch, 10**9, 1, (), 10**9, False, b"no message")
        other.publish(topics.downward("agg", "a", "m"), pack_frame(frame), 1)
        eventually(lambda: device.counters["refused.broken.agg"] == 1)
        reached = net.rounds
        eventually(lambda: net.rounds > reached)
        other.close()


def test_counters_survive(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with playing(net.aggregator("a", rounds=2), net.device("a", "agg")):
        eventually(lambda: net.rounds == 2)
    aggregator = net.aggregator("a", rounds=2)
    with playing(aggregator):
        eventually(lambda: aggregator.session)
        assert aggregator.counters["messages_in.a"] >= 2


def test_the_application_is_told_after_a_restart_what_it_may_not_have_heard(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with playing(net.aggregator(rounds=3)):
        eventually(lambda: (tmp_path / "agg" / "current").exists())
    store = Store(tmp_path / "agg" / "count.db")
    store.save_told(net.codec.encode(roles.Done(7, 8, 9.0)))
    store.close()
    with playing(net.aggregator(rounds=3)):
        eventually(lambda: (1, roles.Done(7, 8, 9.0)) in net.told)


def test_a_node_with_nothing_to_do_does_nothing(tmp_path: Path, quick: LocalBroker) -> None:
    """No loop that spins: connected, with its parent gone, and with what it has to say unsaid."""
    net, turns = Net(tmp_path, quick.url), list[float]()
    device = net.device("a", "agg")
    turn = device.take_turn

    def counted(patience: float) -> None:
        turn(patience)
        turns.append(patience)

    device.take_turn = counted  # type: ignore[method-assign]
    with playing(device):
        with playing(net.aggregator("a", rounds=10**6)):
            eventually(lambda: net.rounds >= 5)
        eventually(lambda: device.presence.parent is None)
        assert not threading.Event().wait(0.5)
        before = len(turns)
        assert not threading.Event().wait(1.0)
        assert len(turns) - before < 20


def test_stop_leaves_nothing_owed(tmp_path: Path, quick: LocalBroker) -> None:
    """What was taken in is acknowledged before the node is gone."""
    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("a", rounds=1), net.device("a", "agg")
    with playing(aggregator):
        with playing(device):
            session = eventually(lambda: aggregator.session)
            eventually(lambda: device.session and device.session.calls.latest % LEAP == 1)
        eventually(lambda: not session.outbox.pending)


@pytest.mark.parametrize(
    "wrong",
    [
        {"broker": "http://x"},
        {"broker": "mqtts://x", "ca": Path("no such file")},
        {"broker": "mqtt://x:y"},
        {"parent": "all"},
        {"parent": "a/b"},
        {"parent": "a"},
        {"children": ["b"], "wait_for": 2},
        {"version": 3},
    ],
)
def test_mistakes_are_told_before_anything_starts(tmp_path: Path, wrong: dict[str, object]) -> None:
    right = {"parent": "h", "broker": "mqtt://localhost", "directory": tmp_path, "assemble": lambda run: None}
    with pytest.raises(UsageError):
        make_runtime("a", **(right | wrong))
