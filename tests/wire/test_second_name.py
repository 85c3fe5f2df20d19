"""Two nodes of one name at a broker: said at the first take-over, where the broker tells, or at the second one."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.addresses import Broker
from edge_sdk.wire.link import SHORT, TAKEN_OVER, Backoff, Link
from edge_sdk.wire.mqtt import Connection
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing


def make_link() -> Link:
    return Link(ready, lambda: None, Backoff(), logging.getLogger("test"))


def ready() -> Connection:
    connection = Connection(Broker("localhost", 1883), "watch-7", ())
    connection.up = connection.is_accepted = True
    return connection


def lose(link: Link, reason: int = 0, was_cut: bool = True, lasted: float = 1.0, sent: int = 0) -> None:
    """End a connection of the link as a broker has, or the network."""
    connection, now = ready(), time.monotonic()
    if sent:
        connection.proof.note_sent(1, sent, now)
    connection.reason, connection.was_cut, connection.lost = reason, was_cut, "lost"
    link.connection, link.up_since = connection, now - lasted
    link.fail(now, "lost")


def test_a_broker_that_tells_of_a_take_over_is_quoted_at_once(caplog: pytest.LogCaptureFixture) -> None:
    lose(make_link(), TAKEN_OVER, lasted=2 * SHORT)
    assert "another node has connected with the same name: there is a second watch-7" in caplog.text


def test_a_second_cut_without_a_word_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    link = make_link()
    lose(link)
    assert "second watch-7" not in caplog.text
    lose(link)
    assert "2 connections to mqtt://localhost:1883 in a row were lost" in caplog.text
    assert caplog.text.count("is there a second watch-7?") == 1


@pytest.mark.parametrize("how", [{"was_cut": False}, {"lasted": 2 * SHORT}, {"reason": 0x8B}, {"sent": 10**6}])
def test_other_ends_of_connections_are_not_taken_for_that(
    caplog: pytest.LogCaptureFixture, how: dict[str, float]
) -> None:
    """A bad link, a broker restarted now and then or that says so, a packet that may have been too large."""
    link = make_link()
    for _ in range(3):
        lose(link, **how)  # type: ignore[arg-type]
    assert "second watch-7" not in caplog.text


def test_two_nodes_of_one_name_hear_of_each_other_soon(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    first, other = Net(tmp_path / "first", quick.url), Net(tmp_path / "other", quick.url)
    with playing(first.device("a", "agg"), other.device("a", "agg")):
        eventually(lambda: "2 connections" in caplog.text and "is there a second a?" in caplog.text)
