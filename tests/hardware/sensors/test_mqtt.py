"""Topics of other devices: payloads as they are, and a whole way through a broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.mqtt_topics import LONGEST, WAITING, MqttTopics, parse, split_path
from edge_sdk.hardware.sensors.sensor import Reading, SensorError, opened
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto

no_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")
TOPICS = {"temperature": "esp/sensor/temperature/state", "humidity": "zigbee2mqtt/bath#climate.humidity"}


@pytest.mark.parametrize(
    ("payload", "path", "number"),
    [
        (b"21.5", (), 21.5),
        (b" 21 ", (), 21.0),
        (b"unavailable", (), None),
        (b"nan", (), None),
        (b"", (), None),
        (b'{"a": {"b": 3}}', ("a", "b"), 3.0),
        (b'{"a": "4.5"}', ("a",), 4.5),
        (b'{"a": true}', ("a",), None),
        (b'{"a": null}', ("a",), None),
        (b'{"a": [1]}', ("a", "b"), None),
        (b"[" * 50_000, ("a",), None),
        (b"1" * (LONGEST + 1), (), None),
    ],
)
def test_payloads(payload: bytes, path: tuple[str, ...], number: float | None) -> None:
    assert parse(payload, path) == number


def test_topics_have_paths_and_no_wildcards() -> None:
    assert split_path("a/b") == ("a/b", ()) and split_path("a/b#c.d") == ("a/b", ("c", "d"))
    for topics in ({}, {"x": "a/+/b"}, {"x": ""}, {"x": "#"}):
        with pytest.raises(UsageError, match="wildcards"):
            MqttTopics("127.0.0.1", topics)


def test_a_broker_that_is_not_there() -> None:
    with pytest.raises(SensorError, match=r"127\.0\.0\.1:1: "), opened(MqttTopics("127.0.0.1", TOPICS, port=1)):
        pass


def collect(sensor: MqttTopics, until: Callable[[list[Reading]], bool]) -> list[Reading]:
    found: list[Reading] = []
    end = time.monotonic() + 20
    while not until(found):
        assert time.monotonic() < end, found
        found += sensor.read(0.1)
    return found


@no_mosquitto
def test_values_come_through_a_broker() -> None:
    with Mosquitto() as broker:
        other = mqtt.Client(CallbackAPIVersion.VERSION2)
        other.connect("127.0.0.1", broker.port)
        other.loop_start()
        with opened(MqttTopics("127.0.0.1", TOPICS, port=broker.port)) as sensor:
            for topic, payload in (
                ("esp/sensor/temperature/state", "20.5"),
                ("zigbee2mqtt/bath", '{"climate": {"humidity": 61}}'),
                ("zigbee2mqtt/bath", '{"climate": {"humidity": "unknown"}}'),
                ("esp/sensor/temperature/state", "21"),
            ):
                other.publish(topic, payload, 1)
            found = collect(sensor, lambda found: len(found) >= 2)
            assert [reading.values for reading in found] == [(20.5, 61.0), (21.0, 61.0)]
            assert sensor.refused == 1 and found[0].time <= found[1].time
            assert sensor.read(0) == []
        other.disconnect()
        other.loop_stop()


def test_the_oldest_go_where_the_reader_is_too_slow() -> None:
    import queue

    sensor = MqttTopics("127.0.0.1", {"x": "t"})
    sensor.messages = queue.Queue(WAITING)
    for number in range(WAITING + 10):
        message = mqtt.MQTTMessage(topic=b"t")
        message.payload = str(number).encode()
        sensor.heard(mqtt.Client(CallbackAPIVersion.VERSION2), None, message)
    found = sensor.read(0)
    assert sensor.dropped == 10 and len(found) == WAITING and found[0].values == (10.0,)
