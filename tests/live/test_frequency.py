"""A peer that sends too often is heard less often; nobody else is, and nothing that is delivered is lost."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edge_sdk.live.membership import rate_limit
from edge_sdk.live.membership.rate_limit import Frequency
from edge_sdk.live.presence.presence import Child
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire import topics
from edge_sdk.wire.fields import SMALLEST_CHUNK
from edge_sdk.wire.frames import Birth, pack_frame
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
from tests.live.test_old_captures import recording


def test_so_many_at_once_and_then_so_many_a_second() -> None:
    found = Frequency(rate=10.0, burst=100.0)
    assert [found.admits("a", 1, 5.0) for _ in range(101)] == [True] * 100 + [False]
    assert found.admits("b", 1, 5.0), "another peer has its own"
    assert [found.admits("a", 1, 6.0) for _ in range(11)] == [True] * 10 + [False]
    assert sum(found.admits("a", 1, 1e6) for _ in range(200)) == 100, "no more is saved up than at the start"


def test_a_large_payload_costs_more_and_what_was_of_use_is_given_back() -> None:
    found = Frequency(rate=1.0, burst=20.0)
    assert found.admits("a", 2**20, 0.0) and not found.admits("a", 2**20, 0.0)
    for _ in range(100):
        assert found.admits("b", 2**20, 0.0)
        found.give_back("b")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "RATE", 20.0)
    monkeypatch.setattr(rate_limit, "BURST", 30.0)


@pytest.mark.usefixtures("small")
def test_a_flood_costs_its_sender_and_nobody_else(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of the flooded name are repeated until they are in, each counts once, and rounds go on."""
    logging.getLogger("auscult.node").filters.clear()
    net = Net(tmp_path, quick.url)
    hospital, junk = net.hospital("h", "a", "b"), pack_frame(Birth("a", 1, 2))
    nodes = net.aggregator("h"), hospital, net.device("a", "h"), net.device("b", "h")
    with recording(quick.url) as other, playing(*nodes):
        eventually(lambda: net.rounds > 0)
        for _ in range(800):
            other.repeat(topics.upward("h", "a", topics.BIRTHS), junk)
            other.repeat(topics.upward("h", "nobody", topics.BIRTHS), junk)
        eventually(lambda: hospital.counters["refused.frequency.a"] > 400)
        eventually(lambda: hospital.counters["refused.frequency.?"] > 400)
        before = net.rounds
        eventually(lambda: net.rounds >= before + 3)
    assert hospital.counters["refused.stranger.?"] < 400
    assert not hospital.counters["refused.frequency.agg"]
    assert all(done.devices == 2 and done.total == 4 * done.round for _, done in net.told), "each counted once"
    assert any("a sends too often" in line for line in caplog.messages)


@pytest.mark.usefixtures("small")
def test_a_large_body_is_no_flood(tmp_path: Path, quick: LocalBroker) -> None:
    """Chunks that are new cost nothing, however many there are."""
    net = Net(tmp_path, quick.url, largest_chunk=SMALLEST_CHUNK)
    hospital, device = net.hospital("h", "a"), net.device("a", "h")
    with playing(net.aggregator("h", size=250_000), hospital, device):
        eventually(lambda: net.rounds)
    chunks = 10**6 // SMALLEST_CHUNK
    assert hospital.counters["messages_in.a"] > chunks > 2 * rate_limit.BURST, "the test is of many chunks"
    assert not [name for name in hospital.counters if name.startswith("refused.frequency")]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("gone", [True, False])
def test_the_last_word_of_who_floods_is_heard(tmp_path: Path, gone: bool) -> None:
    """It was dropped with the flood, and a dead node was waited for. Nothing but the end is heard beyond the limit."""
    hospital = Net(tmp_path, "mqtt://127.0.0.1:1").hospital("h", "a", "b")
    presence, topic = hospital.presence, topics.upward("h", "a", topics.BIRTHS)
    presence.children |= {name: Child(1, 5, 1, False, False) for name in ("a", "b")}
    for _ in range(100):
        hospital.dispatcher.take_payload(topic, pack_frame(Birth("a", 1, 4, gone=True)))  # of an earlier connection
    dropped = hospital.counters["refused.frequency.a"]
    assert dropped > 0 and presence.children.keys() == {"a", "b"}
    hospital.dispatcher.take_payload(topic, pack_frame(Birth("b", 1, 5, gone=True)))  # a does not speak for b
    hospital.dispatcher.take_payload(topic, pack_frame(Birth("a", 1, 5, count=9, gone=gone)))
    assert presence.children.keys() == ({"b"} if gone else {"a", "b"})
