"""Brokers with limits: packets that they do not take, told or not, and versions of MQTT that they do not speak."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.live.loop.fleet_report import COUNTS, describe_node
from edge_sdk.replay.nodes.broker import EmbeddedBroker, Mosquitto
from edge_sdk.wire import topics
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.known_broker import (
    CUTS,
    CUTS_OF_PROVEN,
    FILE,
    FORGOTTEN_AFTER,
    HOPELESS,
    LEAST_PACKET,
    PACKET,
    KnownBroker,
    KnownBrokers,
)
from edge_sdk.wire.link import HOPELESS_CAP, Backoff
from edge_sdk.wire.link_limits import Quota
from edge_sdk.wire.mqtt import Connection
from tests.conftest import missing
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

needs_mosquitto = pytest.mark.skipif(bool(missing("mosquitto")), reason=missing("mosquitto") or "")
LOG = logging.getLogger("auscult.node")
KB = 1024


@needs_mosquitto
@pytest.mark.parametrize(("version", "packet"), [(4, 131_072), (4, 20_000), (None, 20_000), (None, 9_000)])
def test_what_a_broker_does_not_take_is_cut_smaller(tmp_path: Path, version: int | None, packet: int) -> None:
    """A model of 1.6 MB. With 3.1.1 the broker cuts off who sends too much, without a word; 5 tells the limit."""
    with Mosquitto(settings=f"max_packet_size {packet}") as small:
        net = Net(tmp_path, small.url, version=version)
        aggregator = net.aggregator("h", rounds=3, size=200_000)
        with playing(aggregator, net.hospital("h", "a"), net.device("a", "h", worker=True)):
            eventually(lambda: net.rounds == 3)
    counted = [(done.round, done.devices, done.total) for _, done in net.told]
    assert counted == [(r, 1, 200_000.0 * r) for r in (1, 2, 3)], "each once, in whatever pieces it came"
    assert bool(aggregator.counters["cut_smaller.h"]) == (version == 4)


@needs_mosquitto
def test_what_was_learned_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Mosquitto(settings="max_packet_size 20000") as small:
        net = Net(tmp_path, small.url, version=4)
        for reached in (2, 6):
            caplog.clear()
            nodes = net.aggregator("h", size=100_000), net.hospital("h", "a"), net.device("a", "h")
            with playing(*nodes):
                eventually(lambda reached=reached: net.rounds >= reached)  # type: ignore[misc]
            for name in ("agg", "h", "a"):
                known = json.loads((tmp_path / name / FILE).read_text())[small.url]
                assert LEAST_PACKET <= known["taken"] <= known["most"] <= 20_000
        assert "cut off" not in caplog.text, "the second time nobody sends what is too large"


@needs_mosquitto
def test_a_message_that_cannot_be_cut_is_said_once_and_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The description of a run goes in one packet."""
    with Mosquitto(settings="max_packet_size 20000") as small:
        net = Net(tmp_path, small.url)
        long = Run(id="count", method="count", rounds=1, settings={"names": ["x" * 30] * 2000})
        aggregator = net.node("agg", roles.AGGREGATOR, None, ("a",), run=long)
        with playing(aggregator, net.device("a", "agg")):
            waiting = eventually(lambda: "cannot be cut" in (found := aggregator.waiting()["for"]) and found)
            eventually(lambda: aggregator.counters["too_large.a"] >= 2)
            reported = describe_node(aggregator, {}, COUNTS, time.monotonic())["waiting"]
    assert "its broker: the broker takes packets of 20000 bytes, and a message that cannot be cut needs 6" in waiting
    assert "its broker: the broker takes packets of 20000 bytes" in reported and "127.0.0.1" not in reported
    assert caplog.text.count("cannot be cut needs") == 1


@needs_mosquitto
def test_a_broker_for_too_small_packets_is_said_and_tried_ever_more_rarely(tmp_path: Path) -> None:
    with Mosquitto(settings="max_packet_size 4000") as small:
        net = Net(tmp_path, small.url, backoff=Backoff(0.001, 0.2))
        device = net.device("a", "agg")
        with playing(device):
            why = eventually(lambda: device.publisher.trouble)
            eventually(lambda: device.above is not None and device.above.failures >= 5)
    assert why == "its broker: the broker takes packets of 4000 bytes, at least 8192 are needed"


def test_a_pause_without_hope_grows() -> None:
    waits = [Backoff(1.0, 60.0).draw(failures, hopeless=True) for failures in range(12)]
    assert all(2**i / 2 <= wait <= 2**i for i, wait in enumerate(waits[:9])) and min(waits[10:]) >= HOPELESS_CAP / 2


def test_a_broker_that_speaks_no_five_is_spoken_to_in_three(tmp_path: Path) -> None:
    if missing("amqtt"):
        pytest.skip(missing("amqtt"))
    with EmbeddedBroker() as old:
        net = Net(tmp_path, old.url)
        device = net.device("a", "agg")
        with playing(net.aggregator("a", rounds=2), device):
            eventually(lambda: net.rounds == 2)
            assert device.above and device.above.connection and device.above.connection.version == 4


@needs_mosquitto
def test_five_is_spoken_where_the_broker_has_it(tmp_path: Path) -> None:
    with Mosquitto() as five:
        device = Net(tmp_path, five.url).device("a", "agg")
        with playing(device):
            eventually(lambda: device.above and device.above.up)
            assert device.above and device.above.connection and device.above.connection.version == 5


@pytest.fixture
def closing_port() -> Iterator[int]:
    """A port where somebody takes each connection and closes it without a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_who_closes_without_a_word_is_tried_in_both_versions(tmp_path: Path, closing_port: int) -> None:
    device = Net(tmp_path, f"mqtt://127.0.0.1:{closing_port}").device("a", "agg")
    link = device.above
    assert link is not None
    with playing(device):
        for version in (5, 4, 5):
            eventually(lambda: (now := link.connection or link.opening) is not None and now.version == version)  # noqa: B023
        eventually(lambda: "closed by the other end" in device.publisher.trouble)


# -- what is learned, without a broker


def test_one_cut_says_nothing_and_more_halve_what_is_sent() -> None:
    known = KnownBroker()
    for _ in range(CUTS - 1):
        assert not known.note_cut(64 * KB, 0) and known.most == PACKET
    assert "at most 32768" in known.note_cut(64 * KB, 0)
    assert "at most 16384" in known.note_cut(32 * KB, 0), "what is smaller needs no second look"
    assert known.next_packet() == 16 * KB


def test_a_bad_link_takes_nothing_that_was_proven() -> None:
    """Cuts come between packets that were acknowledged: never below these."""
    known = KnownBroker()
    for _ in range(100):
        known.note_acknowledged(64 * KB)
        known.note_cut(128 * KB, 64 * KB)
    assert known.most == 64 * KB and known.taken == 64 * KB


def test_what_was_acknowledged_within_the_connection_is_not_to_blame() -> None:
    known = KnownBroker()
    for _ in range(100):
        assert not known.note_cut(64 * KB, 64 * KB) and not known.note_cut(500, 0)
    assert known.most == PACKET


def test_a_broker_that_takes_less_than_it_did_is_noticed() -> None:
    known = KnownBroker()
    known.note_acknowledged(256 * KB)
    for _ in range(CUTS_OF_PROVEN - 1):
        assert not known.note_cut(256 * KB, 0)
    assert known.note_cut(256 * KB, 0) and known.most == 128 * KB and known.taken == LEAST_PACKET


def test_a_broker_that_says_too_large_is_believed_at_once() -> None:
    known = KnownBroker()
    assert known.note_cut(64 * KB, 0, said=True) and known.most == 32 * KB


def test_without_hope_it_says_so_until_something_arrives() -> None:
    known = KnownBroker()
    for _ in range(HOPELESS):
        assert not known.trouble
        known.note_cut(LEAST_PACKET, 0)
    assert "cut off 8 times in a row" in known.trouble and f"{LEAST_PACKET} bytes" in known.trouble
    known.note_acknowledged(LEAST_PACKET)
    assert not known.trouble and known.cuts == 0


def test_a_limit_is_forgotten_after_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownBroker()
    known.note_cut(64 * KB, 0, said=True)
    at = known.learned
    monkeypatch.setattr("edge_sdk.wire.known_broker.time.time", lambda: at + FORGOTTEN_AFTER + 1)
    assert known.next_packet() == PACKET


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"mqtt://b": 3}',
        '{"mqtt://b": {"taken": 9000, "most": 5, "learned": 0}}',
        '{"mqtt://b": {}}',
        "\x00",
    ],
)
def test_a_file_that_is_damaged_is_learned_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    found = KnownBrokers(tmp_path, None, LOG).find("mqtt://b")
    assert (found.taken, found.most) == (LEAST_PACKET, PACKET)


def test_a_full_disk_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    brokers = KnownBrokers(tmp_path / "missing", None, LOG)
    brokers.find("mqtt://b").note_acknowledged(64 * KB)
    brokers.save()
    assert "No such file" in caplog.text


# -- brokers in the cloud: what they document, as settings of a broker here

CLOUDS = {
    "AWS IoT Core": "max_packet_size 131072\nmax_inflight_messages 100\nmax_queued_messages 100\nmax_keepalive 1200",
    "Azure Event Grid": "max_packet_size 524288\nmax_inflight_messages 16\nretain_available false\nmax_keepalive 1160",
    "HiveMQ Cloud": "max_packet_size 5242880\nmax_inflight_messages 10",
    "EMQX Serverless": "max_packet_size 1048576\nmax_queued_messages 1000\npersistent_client_expiration 2h",
}


@needs_mosquitto
@pytest.mark.parametrize("version", [None, 4])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_limits_of_brokers_in_the_cloud(tmp_path: Path, cloud: str, version: int | None) -> None:
    with Mosquitto(settings=CLOUDS[cloud]) as broker:
        net = Net(tmp_path, broker.url, version=version, keepalive=30)
        aggregator = net.aggregator("h", rounds=2, size=300_000)
        with playing(aggregator, net.hospital("h", "a", "b"), net.device("a", "h"), net.device("b", "h")):
            eventually(lambda: net.rounds == 2)
    assert net.told[-1][1] == roles.Done(2, 2, 2 * 300_000.0)


def test_topics_and_names_are_short_enough_for_all_of_them() -> None:
    """AWS IoT Core: 7 slashes and 256 bytes; EMQX Serverless: 10 levels, and 10 subscriptions of a client."""
    name = "n" * 64
    longest = topics.upward(name, name, topics.BIRTHS, topics.MOST_LANES)
    assert longest.count("/") <= 7 and len(longest) <= 256
    assert len(topics.heard_by_parent(name)) + len(topics.heard_by_child(name, name)) <= 8


@needs_mosquitto
def test_no_more_than_eight_topics_are_asked_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    subscribe = paho.Client.subscribe
    monkeypatch.setattr(paho.Client, "subscribe", lambda me, some: asked.append(len(some)) or subscribe(me, some))
    with Mosquitto() as broker:
        heard = [f"t/{i}" for i in range(20)]
        connection = Connection(broker_at(broker.url), "a", heard, version=5)
        connection.open()
        eventually(lambda: connection.read() or connection.write() or connection.up)
        for topic in heard:
            connection.publish(topic, b"x", 1)
        got: set[str] = set()
        eventually(lambda: got.update(topic for topic, _ in connection.read()) or connection.write() or len(got) == 20)
        connection.close()
    assert asked == [8, 8, 4]


@pytest.mark.parametrize("per_second", [1.0, 10.0, 100.0])
def test_a_quota_is_kept_in_every_second_and_used(per_second: float) -> None:
    quota, published = Quota(per_second), []
    for step in range(20_000):
        now = 1000 + step / 1000
        while quota.count(now) > 0:
            quota.use(now)
            published.append(now)
    for start in published:
        assert sum(start <= at < start + 1 for at in published) <= max(per_second, 2)
    assert len(published) >= 0.75 * per_second * 20


@needs_mosquitto
def test_with_a_quota_a_run_takes_longer_and_ends(tmp_path: Path) -> None:
    with Mosquitto() as broker:
        net = Net(tmp_path, broker.url, messages_per_second=20.0)
        began = time.monotonic()
        device = net.device("a", "agg")
        with playing(net.aggregator("a", rounds=2, size=100_000), device):
            eventually(lambda: net.rounds == 2)
        took = time.monotonic() - began
        assert device.counters["messages_out.agg"] <= 20 * (took + 1)
