"""Births, hellos and goodbyes that somebody has recorded and plays again later: they change nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.mqtt import Connection
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing


class Recorder:
    """A client that hears everything, and can say all of it again."""

    def __init__(self, url: str) -> None:
        self.lock = threading.Lock()
        self.connection = Connection(broker_at(url), "recorder", ["auscult/v1/#"])
        self.heard: list[tuple[str, bytes]] = []
        self.connection.open()
        eventually(self.turn)

    def turn(self) -> bool:
        with self.lock:
            return self.read_and_write()

    def read_and_write(self) -> bool:
        self.heard += [(topic, bytes(payload)) for topic, payload in self.connection.read()]
        self.connection.write()
        return self.connection.up

    def births(self) -> list[tuple[str, bytes]]:
        self.turn()
        return [(topic, payload) for topic, payload in self.heard if topic.endswith("/b")]

    def repeat(self, topic: str, payload: bytes) -> None:
        with self.lock:
            self.connection.publish(topic, payload, 1)
            self.read_and_write()


@contextmanager
def recording(url: str) -> Iterator[Recorder]:
    """A recorder that listens on a thread until the `with` ends."""
    recorder, over = Recorder(url), threading.Event()

    def listen() -> None:
        while not over.wait(0.01):
            recorder.turn()

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield recorder
    finally:
        over.set()
        thread.join()
        recorder.connection.close()


def play_again(net: Net, recorder: Recorder, old: list[tuple[str, bytes]]) -> None:
    """Each of them once, and the run goes on after each."""
    for topic, payload in old:
        recorder.repeat(topic, payload)
        reached = net.rounds
        eventually(lambda reached=reached: net.rounds >= reached + 3, 8)  # type: ignore[misc]


def test_what_was_recorded_of_earlier_connections_stops_no_run(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with recording(quick.url) as recorder:
        for _ in range(2):
            with playing(net.aggregator("h"), net.hospital("h", "a"), net.device("a", "h")):
                reached = net.rounds
                eventually(lambda reached=reached: net.rounds >= reached + 3)  # type: ignore[misc]
        old = recorder.births()
        device = net.device("a", "h")
        with playing(net.aggregator("h"), net.hospital("h", "a"), device):
            eventually(lambda: net.rounds >= 9)
            play_again(net, recorder, old)
            assert not device.counters["replaced.h"]
    assert all(done.devices == 1 for _, done in net.told)


def test_what_was_recorded_of_this_connection_stops_no_run(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with (
        recording(quick.url) as recorder,
        playing(net.aggregator("h"), net.hospital("h", "a"), net.device("a", "h")),
    ):
        eventually(lambda: net.rounds >= 3)
        play_again(net, recorder, recorder.births())
    assert all(done.devices == 1 for _, done in net.told)


def test_what_was_recorded_of_a_lost_disk_brings_it_not_back(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    aggregator, hospital = net.aggregator("h"), net.hospital("h", "a")
    with recording(quick.url) as recorder, playing(aggregator, hospital):
        with playing(net.device("a", "h")):
            eventually(lambda: net.rounds >= 3)
        old = recorder.births()
        with playing(net.device("a", "h", directory=tmp_path / "new")):
            eventually(lambda: hospital.counters["replaced.a"] == 1)
            play_again(net, recorder, old)
            assert hospital.counters["replaced.a"] == 1
    assert all(done.devices == 1 for _, done in net.told)
