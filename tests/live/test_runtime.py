"""The live node over real brokers: sessions, presence, worker, refusals, ends."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge_sdk.contract.round import Policy
from edge_sdk.contract.run import Run
from edge_sdk.delivery.store import Store
from edge_sdk.errors import Cancelled, UsageError
from edge_sdk.live.runtime import Runtime
from edge_sdk.replay.broker import EmbeddedBroker, LocalBroker, Mosquitto
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Message, pack
from edge_sdk.wire.mqtt import Connection, Tls, broker_at
from hardware.bad_link import Proxy
from tests.conftest import missing
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Live, Net, playing
from tests.wire.strict import StrictBroker


def test_two_tiers(tmp_path: Path, broker: LocalBroker) -> None:
    net = Net(tmp_path, broker.url)
    with playing(net.aggregator("a", "b", rounds=5), net.device("a", "agg"), net.device("b", "agg")):
        eventually(lambda: net.rounds == 5)
    assert [(number, done.round, done.devices, done.total) for number, done in net.told] == [
        (r, r, 2, 4.0 * r) for r in range(1, 6)
    ]


@pytest.mark.parametrize("worker", [True, False])
def test_three_tiers_with_a_broker_each(tmp_path: Path, broker: LocalBroker, quick: LocalBroker, worker: bool) -> None:
    """The hospital has its own broker for its devices, and another one upstream."""
    net = Net(tmp_path, broker.url, worker=worker)
    hospital = net.hospital("h", "a", "b", broker=quick.url, upstream=broker.url)
    devices = [net.device(n, "h", broker=quick.url) for n in ("a", "b")]
    with playing(net.aggregator("h", rounds=5), hospital, *devices):
        eventually(lambda: net.rounds == 5)
        assert hospital.counters["messages_in.a"] >= 5
    assert net.told[-1][1] == roles.Done(5, 2, 20.0)


def test_mqtt_5(tmp_path: Path) -> None:
    """amqtt speaks 3.1.1 only."""
    if missing("mosquitto"):
        pytest.skip(missing("mosquitto"))
    with Mosquitto() as five:
        net = Net(tmp_path, five.url, version=5)
        hospital, device = net.hospital("h", "a"), net.device("a", "h", worker=True)
        with playing(net.aggregator("h", rounds=3, size=100_000), hospital, device):
            eventually(lambda: net.rounds == 3)


@pytest.mark.parametrize("size", [4, 100_000], ids=["whole", "in pieces"])
def test_websockets(tmp_path: Path, size: int) -> None:
    if missing("amqtt"):
        pytest.skip(missing("amqtt"))
    with EmbeddedBroker(web=True) as web:
        assert web.url.startswith("ws://")
        net = Net(tmp_path, web.url)
        with playing(net.aggregator("a", "b", rounds=3, size=size), net.device("a", "agg"), net.device("b", "agg")):
            eventually(lambda: net.rounds == 3)


def test_the_order_of_coming_does_not_matter(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    device, hospital = net.device("a", "h"), net.hospital("h", "a")
    with playing(device):
        eventually(lambda: device.above and device.above.up)
        with playing(hospital):
            eventually(lambda: hospital.presence.children)
            assert hospital.here == () and hospital.current is None
            with playing(net.aggregator("h", rounds=2)):
                eventually(lambda: net.rounds == 2)


def test_a_restarted_node_resumes_without_its_parent(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with playing(net.aggregator("a", rounds=2), net.device("a", "agg")):
        eventually(lambda: net.rounds == 2)
    device = net.device("a", "agg")
    with playing(device):
        run = eventually(lambda: device.current)
        assert run.id == "count" and device.session is not None
        assert device.session.node.record.state == roles.Tally(2, 2)


def test_training_does_not_stop_the_network(tmp_path: Path, quick: LocalBroker) -> None:
    """A question is acknowledged while the one before it is still being worked on, and the broker is pinged."""
    begun, free = threading.Event(), threading.Event()

    def work(round: int) -> None:
        begun.set()
        assert free.wait(20)

    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("a", rounds=3), net.device("a", "agg", work, keepalive=1)
    with playing(aggregator, device):
        assert begun.wait(20)
        session = aggregator.session
        assert session is not None
        eventually(lambda: not session.outbox.pending)
        connection = device.above and device.above.connection
        assert not threading.Event().wait(2.5)  # longer than the broker waits for a sign of life
        assert device.above and device.above.connection is connection and connection.up
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
    ((sender, number, why),) = store.quarantined()
    store.close()
    assert (sender, number) == ("agg", 1) and "a fault of the method" in why


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
    forged = pack(Message("count", "b", 1, 1, 1, (), 1, False, b""))
    foreign = pack(Message("other", "a", 1, 1, 1, (), 1, False, b""))
    with playing(aggregator, device):
        eventually(lambda: net.rounds >= 1)
        other = stranger(broker.url, "stranger")
        for payload in (b"", b"\xff" * 40, forged):
            other.publish(topics.up("agg", "a", "m"), payload, 1)
        other.publish(topics.up("agg", "a", "m"), foreign, 1)
        other.publish(topics.up("agg", "zz", "m"), pack(Message("count", "zz", 1, 1, 1, (), 1, False)), 1)
        other.publish(topics.up("agg", "a", "b"), forged, 1)
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
        frame = Message("count", "agg", epoch, 10**9, 1, (), 10**9, True, b"no message")
        other.publish(topics.down("agg", "a", "m"), pack(frame), 1)
        eventually(lambda: device.counters["refused.broken.agg"] == 1)
        reached = net.rounds
        eventually(lambda: net.rounds > reached)
        other.close()


def test_a_replaced_child_is_asked_again(tmp_path: Path, quick: LocalBroker) -> None:
    """It had taken the question in, and then lost its disk."""
    begun, free = threading.Event(), threading.Event()

    def work(round: int) -> None:
        begun.set()
        eventually(lambda: free.is_set() or first.cancelled())
        raise Cancelled("unplugged")

    net = Net(tmp_path, quick.url)
    aggregator, first = net.aggregator("a", rounds=2), net.device("a", "agg", work)
    with playing(aggregator):
        with playing(first):
            assert begun.wait(20)
            session = aggregator.session
            assert session is not None
            eventually(lambda: not session.outbox.pending)
        with playing(net.device("a", "agg", directory=tmp_path / "new")):
            eventually(lambda: net.rounds == 2)
        assert aggregator.counters["replaced.a"] == 1


def test_a_run_that_cannot_be_used_is_reported_to_the_parent(tmp_path: Path, quick: LocalBroker) -> None:
    def assemble(run: Run) -> roles.Assembly:
        raise UsageError("bundle 1234 is not here")

    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("a"), net.device("a", "agg", assemble=assemble)
    with playing(aggregator, device):
        eventually(lambda: "bundle 1234" in aggregator.presence.refusals.get("a", ""))
        assert aggregator.here == () and device.current is None


@pytest.mark.parametrize("worker", [True, False], ids=["worker", "inline"])
def test_a_run_that_turns_out_to_be_of_no_use_is_refused_as_well(
    tmp_path: Path, quick: LocalBroker, worker: bool
) -> None:
    """A role may find out only when it works. The others go on, and it takes part again once that is put right."""

    def unfit(round: int) -> None:
        raise UsageError("40 public inputs, a batch has 64")

    net = Net(tmp_path, quick.url)
    aggregator, other = net.aggregator("a", "b"), net.device("b", "agg", lambda round: time.sleep(0.01), worker=worker)
    device = net.device("a", "agg", unfit, worker=worker)
    with playing(aggregator, other):
        with playing(device):
            eventually(lambda: "40 public inputs" in aggregator.presence.refusals.get("a", ""))
            assert "a" not in aggregator.here and device.session is None and "40 public inputs" in device.refusal
            eventually(lambda: net.rounds >= 2)  # nobody waits for it
        with playing(net.device("a", "agg", worker=worker)):
            eventually(lambda: net.told[-1][1].devices == 2)
    assert [done.round for _, done in net.told] == list(range(1, net.rounds + 1))


def test_a_run_that_nobody_can_take_part_in_waits(tmp_path: Path, quick: LocalBroker) -> None:
    """Its rounds are not used up by nobody: they are there when what was wrong is put right."""

    def unfit(round: int) -> None:
        raise UsageError("40 public inputs, a batch has 64")

    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a", "b", rounds=3)
    with playing(aggregator):
        with playing(net.device("a", "agg", unfit), net.device("b", "agg", unfit)):
            eventually(lambda: set(aggregator.presence.refusals) == {"a", "b"})
            assert net.rounds == 0
        with playing(net.device("a", "agg"), net.device("b", "agg")):
            eventually(lambda: net.rounds == 3)
    assert [done.round for _, done in net.told] == [1, 2, 3]
    assert all(done.devices > 0 for _, done in net.told)  # whoever refused first was not waited for in the first one


def test_who_leaves_is_not_here(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a")
    with playing(aggregator):
        with playing(net.device("a", "agg")):
            eventually(lambda: aggregator.here == ("a",))
        eventually(lambda: aggregator.here == ())


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
    turn = device.turn

    def counted(patience: float) -> None:
        turn(patience)
        turns.append(patience)

    device.turn = counted  # type: ignore[method-assign]
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
            eventually(lambda: device.session and device.session.latest == 1)
        eventually(lambda: not session.outbox.pending)


@pytest.mark.parametrize(
    "wrong",
    [
        {"broker": "http://x"},
        {"broker": "mqtts://x", "tls": Tls(Path("no such file"))},
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
        Runtime("a", **(right | wrong))


def test_two_processes_do_not_share_a_directory(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_sdk.live.directory.PATIENCE", 0.1)
    net = Net(tmp_path, quick.url)
    first = net.device("a", "agg")
    with Live(first):
        eventually(lambda: first.above and first.above.up)
        with pytest.raises(UsageError, match="another process"):
            net.device("a", "agg").run()


def test_a_run_begun_with_other_settings_is_refused(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with playing(net.aggregator(rounds=2)):
        eventually(lambda: (tmp_path / "agg" / "current").exists())
    with pytest.raises(UsageError, match="other settings"):
        net.aggregator(rounds=3).run()


def test_a_replaced_hospital_is_not_refused(tmp_path: Path, quick: LocalBroker) -> None:
    """It counts its questions from 1 again, and its devices have heard higher numbers."""
    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("h"), net.device("a", "h")
    with playing(aggregator, device):
        with playing(net.hospital("h", "a")):
            eventually(lambda: net.rounds >= 5)
        with playing(net.hospital("h", "a", directory=tmp_path / "new")):
            reached = net.rounds
            eventually(lambda: net.rounds >= reached + 5)
        assert device.counters["replaced.h"] == 1 and aggregator.counters["replaced.h"] == 1
    assert all(done.devices == 1 for _, done in net.told)


def test_a_half_open_link_is_given_up(tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_sdk.wire.mqtt.STUCK", 1.0)
    net = Net(tmp_path, quick.url)
    with Proxy("127.0.0.1", quick.port, hole=200_000) as link:
        device = net.device("a", "agg", broker=f"mqtt://127.0.0.1:{link.port}")
        with playing(net.aggregator("a", size=20_000), device):
            eventually(lambda: link.passed.holes >= 1)
            reached = net.rounds
            eventually(lambda: net.rounds > reached)
            assert link.passed.connections >= 2


def test_the_brokers_limits_are_kept(tmp_path: Path) -> None:
    """It takes two unacknowledged messages and packets of 100 KB, and throws out who sends more."""
    with StrictBroker(receive_maximum=2, packet=100_000) as strict:
        net = Net(tmp_path, strict.url, version=5)
        names = ("a", "b", "c", "d")
        devices = [net.device(n, "agg") for n in names]
        with playing(net.aggregator(*names, rounds=4, size=100_000), *devices):
            connection = eventually(lambda: devices[0].above and devices[0].above.connection)
            eventually(lambda: net.rounds == 4)
            assert devices[0].above and devices[0].above.connection is connection
            assert connection.packet == 100_000 and connection.window == 2
            assert devices[0].counters["chunks_out.agg"] >= 4 * 5
        assert strict.violations == []
        assert strict.most == 2 and strict.connections == 5


def test_a_client_that_does_not_count_is_thrown_out() -> None:
    """The strict broker is strict."""
    with StrictBroker(receive_maximum=2, packet=1000) as strict:
        for count, size, why in [(8, 10, "3 publishes unacknowledged"), (1, 2000, "packet of 2010 bytes")]:
            client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, reconnect_on_failure=False)
            connected, gone = threading.Event(), threading.Event()
            client.on_connect = lambda *_, e=connected: e.set()  # type: ignore[misc]
            client.on_disconnect = lambda *_, e=gone: e.set()  # type: ignore[misc]
            client.connect("127.0.0.1", strict.port)
            client.loop_start()
            assert connected.wait(10)
            for _ in range(count):
                client.publish("topic", bytes(size), qos=1)
            assert gone.wait(10)
            client.loop_stop()
            assert strict.violations.pop() == why
