"""A log stays readable, whatever peers send."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge_sdk.live.loop.log_guard import LINES, MOST, guard_log
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Birth, pack_frame
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    made = guard_log(logging.getLogger("guarded"))
    yield made
    made.filters.clear()


@contextmanager
def client(broker: LocalBroker, name: str) -> Iterator[paho.Client]:
    """Another client of the broker, which may say what it likes."""
    made = paho.Client(CallbackAPIVersion.VERSION2, client_id=name)
    made.connect("127.0.0.1", broker.port)
    made.loop_start()
    yield made
    made.loop_stop()
    made.disconnect()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    logging.getLogger("auscult.node").filters.clear()


def test_a_record_is_one_line_of_printable_characters(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    log.warning("%s: %s", "h", "a\n2026-01-01 agg: all is well\x1b[2J\u202e")
    assert caplog.messages == ["h: a\\n2026-01-01 agg: all is well\\x1b[2J\\u202e"]


def test_a_traceback_keeps_its_lines_and_none_passes_for_a_record(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log.error("h: failed:\n%s", "Traceback:\n  x\x07\nagg: all is well")
    assert caplog.messages == ["h: failed:\n    | Traceback:\n    |   x\\x07\n    | agg: all is well"]


def test_a_record_is_short(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    log.warning("%s", "x" * 100_000)
    assert len(caplog.messages[0]) < 2100 and caplog.messages[0].endswith("... (100000 characters)")


def test_what_is_said_too_often_is_counted(
    log: logging.Logger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("edge_sdk.live.loop.log_guard.time.monotonic", lambda: now[0])
    for i in range(5000):
        log.warning("%s: %s cannot take part: %s", "h", "a", i)
    log.warning("%s: %s cannot take part: %s", "h", "b", "no bundle")
    assert len(caplog.messages) == LINES + 1
    now[0] += 61
    log.warning("%s: %s cannot take part: %s", "h", "a", 7)
    assert (
        caplog.messages[-1] == f"h: a cannot take part: 7 (and {5000 - LINES} more of this kind in the minute before)"
    )


def test_kinds_without_end_fill_no_log(
    log: logging.Logger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer may choose words that nobody has used before, so that each line is the first of its kind."""
    now = [1000.0]
    monkeypatch.setattr("edge_sdk.live.loop.log_guard.time.monotonic", lambda: now[0])
    for i in range(20_000):
        log.warning("%s: %s", "h", f"{i} is no frame")
    assert len(caplog.messages) == MOST
    now[0] += 61
    log.warning("%s: %s", "h", "a frame")
    assert caplog.messages[-1] == f"h: a frame (and {20_000 - MOST} more of all kinds in the minute before)"


def test_frames_of_ever_new_strangers_fill_no_log(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("b")
    with playing(aggregator, net.device("b", "agg")):
        eventually(lambda: net.rounds)
        for i in range(500):
            aggregator.dispatcher.take_payload(topics.upward("agg", f"mallory{i}", "m"), pack_frame(Birth("b", 1, 2)))
            aggregator.dispatcher.take_payload(topics.upward("agg", "b", f"{i}"), f"{i} garbage".encode())
    dropped = [line for line in caplog.messages if "dropped a frame" in line]
    assert 2 <= len(dropped) <= 2 * LINES, dropped


def test_what_happens_anyway_is_said_every_time(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "guarded"):
        for i in range(50):
            log.info("%s: round %d", "h", i)
    assert len(caplog.messages) == 50


def test_births_without_end_fill_no_log(tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    """3,000 births with a reason of 60 KB wrote 183 MB in 10 s, with forged lines."""
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a", "b")
    with playing(aggregator, net.device("b", "agg")), client(quick, "a") as other:
        eventually(lambda: aggregator.below is not None and aggregator.below.up)
        eventually(lambda: aggregator.presence.children)
        nonce = aggregator.presence.nonce_for("a")
        for i in range(300):
            refusal = f"{i}\nagg: finished\x1b[2J" + "x" * 60_000
            birth = Birth("a", 1, 5, refusal=refusal, count=i + 1, nonce=nonce)
            other.publish(topics.upward("agg", "a", "b"), pack_frame(birth), 1).wait_for_publish(10)
        eventually(lambda: aggregator.counters["messages_in.a"] >= 300)
        assert len(aggregator.presence.refusals["a"]) <= 500
    assert len(caplog.text) < 60_000
    assert "\nagg: finished" not in caplog.text and "\x1b" not in caplog.text


def test_what_was_left_on_the_broker_is_not_read(tmp_path: Path, quick: LocalBroker) -> None:
    """Nodes retain nothing; garbage that was retained came again at every start."""
    net, topic = Net(tmp_path, quick.url), topics.upward("agg", "a", "m")
    aggregator = net.aggregator("a")
    with client(quick, "somebody") as other:
        other.publish(topic, b"garbage", qos=1, retain=True).wait_for_publish(10)
        with playing(aggregator, net.device("a", "agg")):
            eventually(lambda: net.rounds >= 2)
        other.publish(topic, b"", qos=1, retain=True).wait_for_publish(10)
    assert aggregator.counters["refused.retained.?"] == 1
    assert not any(name.startswith("refused.malformed") for name in aggregator.counters)
