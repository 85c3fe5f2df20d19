"""A hostile publisher: garbage on everybody's topics, frames of strangers, storms of births, retained messages."""

from __future__ import annotations

import threading
from random import Random
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt

from edge_sdk.wire.fields import SMALLEST_CHUNK
from edge_sdk.wire.frames import Birth, Message, Offer, pack_frame

BURST = 20  # messages


class BadPeer:
    """Publishes on a thread until it is stopped.

    Attributes:
        sent: messages so far.
    """

    def __init__(self, broker: str, topics: list[str], dice: Random):
        self.topics, self.dice, self.sent = topics, dice, 0
        self.stopping, where = threading.Event(), urlsplit(broker)
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="mallory")
        self.client.max_queued_messages_set(100)
        self.client.reconnect_delay_set(1, 2)
        self.client.connect_async(where.hostname or "", where.port or 1883)
        self.thread = threading.Thread(target=self.publish, daemon=True)

    def start(self) -> None:
        self.client.loop_start()
        self.thread.start()

    def publish(self) -> None:
        while not self.stopping.wait(self.dice.uniform(0.2, 1.5)):
            burst = self.dice.choice([self.garbage, self.stranger, self.births, self.offers])
            for _ in range(BURST):
                topic, payload = burst()
                self.client.publish(topic, payload, retain=self.dice.random() < 0.1)
                self.sent += 1

    def garbage(self) -> tuple[str, bytes]:
        return self.dice.choice(self.topics), self.dice.randbytes(self.dice.choice((0, 1, 17, 400, 70_000)))

    def stranger(self) -> tuple[str, bytes]:
        frame = Message("soak", "mallory", self.number(), self.number(), 1, (), 7, False, self.body())
        return self.as_stranger("m"), pack_frame(frame)

    def births(self) -> tuple[str, bytes]:
        name = f"mallory{self.dice.randrange(10**6)}"
        topic = self.as_stranger("b").replace("mallory", name)
        return topic, pack_frame(Birth(name, self.number(), self.number(), "soak", True))

    def offers(self) -> tuple[str, bytes]:
        size = self.dice.choice((10**5, 10**9))
        seq, epoch = self.number(), self.number()
        offer = Offer("soak", "mallory", epoch, seq, 1, (), 1, False, size, SMALLEST_CHUNK, bytes(16), self.number())
        return self.as_stranger("m"), pack_frame(offer)

    def as_stranger(self, channel: str) -> str:
        parts = self.dice.choice(self.topics).split("/")
        return "/".join([*parts[:3], "mallory", "up", channel])

    def number(self) -> int:
        return self.dice.randrange(1, 2**31)

    def body(self) -> bytes:
        return self.dice.randbytes(self.dice.choice((0, 100, 10_000)))

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.client.loop_stop()


def topics_of(tree: dict[str, list[str]]) -> list[str]:
    """Topics of a run, which anybody may write to at a broker without an access list."""
    found = [f"auscult/v1/cloud/{hospital}/{way}/{channel}" for hospital in tree for way, channel in WAYS]
    found += [f"auscult/v1/{h}/{device}/{way}/{channel}" for h in tree for device in tree[h] for way, channel in WAYS]
    return found + [f"auscult/v1/{parent}/all/down/m" for parent in ("cloud", *tree)]


WAYS = (("up", "m"), ("up", "b"), ("down", "m"), ("down", "b"))
