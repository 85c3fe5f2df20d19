"""Values that other devices publish over MQTT, as ESPHome, Home Assistant and zigbee2mqtt do.

Each channel is a topic, with a path into JSON where its payload is an object: "kitchen/climate#temperature". Topics
come one at a time; a reading is made at each message, of the latest value of every channel, once all have been heard.
Payloads that are no number ("unavailable") are counted in `refused` and change nothing.
"""

from __future__ import annotations

import json
import math
import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.sensor import Reading, SensorError

WAITING = 4096
"""Messages that wait for us at most; older ones are dropped, and counted."""
LONGEST = 65536
"""Bytes of a payload at most."""
CONNECTING = 10.0


class MqttTopics:
    """Topics of a broker as channels.

    Args:
        host: of the broker.  port: of it.
        topics: channel -> topic, or topic#key.key for a number inside a JSON object.
        username, password: for the broker; "" for none.
    """

    def __init__(
        self,
        host: str,
        topics: Mapping[str, str],
        port: int = 1883,
        username: str = "",
        password: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not topics or any("+" in topic or topic.startswith("#") or not topic for topic in topics.values()):
            raise UsageError(f"mqtt {host}: topics = {dict(topics)}; one topic without wildcards for each channel")
        self.host, self.port, self.clock = host, port, clock
        self.credentials = (username, password)
        self.paths = {channel: split_path(topic) for channel, topic in topics.items()}
        self.name, self.channels, self.rate_hz = f"mqtt-{host}", tuple(topics), None
        self.units = ("",) * len(self.channels)
        self.latest: dict[str, float] = {}
        self.refused = self.dropped = 0
        self.client: mqtt.Client | None = None

    def open(self) -> None:
        self.messages: queue.Queue[tuple[float, str, bytes]] = queue.Queue(WAITING)
        self.states: queue.Queue[str] = queue.Queue()
        client = mqtt.Client(CallbackAPIVersion.VERSION2)
        if self.credentials[0]:
            client.username_pw_set(*self.credentials)
        client.on_connect, client.on_message, client.on_subscribe = self.connected, self.heard, self.subscribed
        try:
            client.connect(self.host, self.port)
        except OSError as error:
            raise SensorError(f"mqtt {self.host}:{self.port}: {error}") from error
        self.client = client
        client.loop_start()
        try:
            state = self.states.get(timeout=CONNECTING)
        except queue.Empty:
            state = f"no answer within {CONNECTING:.0f} s"
        if state:
            self.close()
            raise SensorError(f"mqtt {self.host}:{self.port}: {state}")

    def connected(self, client: mqtt.Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.states.put(f"refused: {reason}")
        else:  # also after a lost connection: a broker forgets what we wanted
            client.subscribe([(topic, 1) for topic in sorted({topic for topic, _ in self.paths.values()})])

    def subscribed(self, client: mqtt.Client, userdata: Any, mid: int, reasons: Any, properties: Any) -> None:
        refused = [str(reason) for reason in reasons if reason.is_failure]
        self.states.put(f"subscription refused: {', '.join(refused)}" if refused else "")

    def heard(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        entry = (self.clock(), message.topic, bytes(message.payload[: LONGEST + 1]))
        while True:
            try:
                self.messages.put_nowait(entry)
                return
            except queue.Full:
                self.messages.get_nowait()
                self.dropped += 1

    def read(self, timeout: float) -> list[Reading]:
        readings: list[Reading] = []
        try:
            entry = self.messages.get(timeout=timeout)
            while True:
                readings += self.take(*entry)
                entry = self.messages.get_nowait()
        except queue.Empty:
            return readings

    def take(self, at: float, topic: str, payload: bytes) -> list[Reading]:
        """The reading that a message makes; none before all channels have been heard, or if nothing in it is ours."""
        found = {c: parse(payload, path) for c, (own, path) in self.paths.items() if own == topic}
        numbers = {channel: value for channel, value in found.items() if value is not None}
        self.refused += len(found) - len(numbers)
        self.latest |= numbers
        if not numbers or len(self.latest) < len(self.channels):
            return []
        return [Reading(at, tuple(self.latest[channel] for channel in self.channels))]

    def close(self) -> None:
        if self.client is not None:
            self.client.disconnect()
            self.client.loop_stop()
            self.client = None


def split_path(topic: str) -> tuple[str, tuple[str, ...]]:
    """Topic and path of "topic#key.key"; without #, the whole payload is the number."""
    name, mark, path = topic.partition("#")
    return name, tuple(path.split(".")) if mark else ()


def parse(payload: bytes, path: tuple[str, ...]) -> float | None:
    """The number of a payload, or None: a plain one, or that under a path of keys in a JSON object."""
    if len(payload) > LONGEST:
        return None
    try:
        value: Any = json.loads(payload) if path else float(payload)
        for key in path:
            value = value[key]
        number = float(value) if not isinstance(value, bool) else math.nan
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    return number if math.isfinite(number) else None
