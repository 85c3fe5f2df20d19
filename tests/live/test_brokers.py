"""A node on its brokers: every kind of connection, links that are half open, and brokers with limits."""

from __future__ import annotations

import threading
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge_sdk.hardware.bad_link import Proxy
from edge_sdk.replay.nodes.broker import EmbeddedBroker, LocalBroker, Mosquitto
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.mqtt import Connection
from tests.conftest import missing
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
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


def test_a_broker_for_smaller_packets_than_peers_take_is_not_used() -> None:
    """Chunks that fit its packets would be refused by every peer, and sent again for ever."""
    with StrictBroker(receive_maximum=2, packet=5_000) as strict:
        connection = Connection(broker_at(strict.url), "a", ["topic"], version=5)
        connection.open()
        eventually(lambda: connection.read() or connection.write() or connection.lost)
        assert "packets of 5000 bytes" in connection.lost and "8192" in connection.lost and not connection.up


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
