"""MQTT connections, made with paho, which no other module imports but `client.py`.

What this module takes care of, because others have lost weeks by it:

    * a paho client that reconnects publishes its old messages again: a client is used for one connection only
    * paho ignores the broker's Receive Maximum: `room` counts the messages that are not acknowledged
    * Nagle's algorithm and delayed acknowledgements add up to 40 ms per message: TCP_NODELAY is set (the broker has a
      setting of its own for that)
    * one packet is read at a time, until the socket has no more, so that one commit covers a burst
    * paho makes four system calls for a packet: `Stream` makes one for many packets
"""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from edge_sdk.errors import UsageError
from edge_sdk.wire.addresses import Broker
from edge_sdk.wire.client import Client
from edge_sdk.wire.known_broker import HEADROOM as HEADROOM
from edge_sdk.wire.known_broker import LEAST_PACKET, PACKET, UNKNOWN, SendLimits
from edge_sdk.wire.link_limits import LARGEST as LARGEST
from edge_sdk.wire.link_limits import PacketProof, Quota, fit_chunk, update_rate
from edge_sdk.wire.stream import Stream

BURST = 256  # packets read at once
SUBSCRIBED = 8  # topics asked for at once: some brokers take no more
WINDOW = 20  # unacknowledged messages where the broker does not say how many it takes (MQTT 3.1.1)
OVERHEAD = 16  # bytes of a packet beside topic and payload, at most
FAILED, REFUSED_VERSION, TOO_LARGE = 0x80, 0x84, 0x95  # reasons of MQTT 5; from the first on they are failures
STUCK = 15.0  # seconds after which a connection is given up that neither acknowledges nor takes anything
SILENCE = 5.0  # seconds that a broker may take to accept a connection
LOOKS_APART = 0.1  # seconds between two looks at what takes too long
VOUCHED = 1.0  # seconds for which one publish that the broker acknowledges stands for others that it need not


@dataclass(frozen=True)
class Will:
    """A message that the broker publishes when the connection breaks."""

    topic: str
    payload: bytes


class Connection:
    """One connection, from connecting to its end; never reused.

    Args:
        broker: address to connect to.
        client: client id, which is the name of the node.
        topics: topics to subscribe to, with QoS 1; `listen` changes them.
        will: published by the broker if the connection breaks.
        keepalive: seconds of silence after which the broker is pinged; fewer where it says so.
        version: version of MQTT, 4 (3.1.1) or 5.
        tls: context for a broker that wants TLS.
        limits: what may be sent.

    Attributes:
        up: subscribed, and ready for use.
        lost: why the connection is gone; "" while it is not.
        proof: which packets the broker has taken; `flying`: the messages of it that are not acknowledged.
        reason: of MQTT 5, with which the broker has refused or ended this connection; 0: none.
        was_cut: the other end has closed this connection.
        rate: bytes per second that the broker takes; 0: not known.
        trip: seconds that the broker took for its latest acknowledgement.
        window: messages that may be unacknowledged.
        packet: bytes of the largest packet that the broker takes.
        chunk: bytes of a large body that should travel together.
        vouched: when something was last published that the broker is to acknowledge, by time.monotonic().
        retained: retained messages that were dropped and not counted yet.
        ready: the system says that there is something to be read, or that the connection is broken.
        is_accepted: the broker has accepted the connection.
        asked: topics that it has been asked for; `asking`: number of a request that it has not answered -> its topics.
    """

    def __init__(
        self,
        broker: Broker,
        client: str,
        topics: Sequence[str],
        will: Will | None = None,
        keepalive: int = 60,
        version: int = 4,
        tls: ssl.SSLContext | None = None,
        limits: SendLimits = UNKNOWN,
    ):
        if broker.tls and tls is None:
            raise UsageError(f"{broker} wants TLS, and no certificates are given: plain text is not sent there")
        self.tls = tls if broker.tls else None
        self.broker, self.name, self.topics, self.keepalive = broker, client, topics, keepalive
        self.received: list[tuple[str, bytes]] = []
        self.proof = PacketProof(limits.taken)
        self.up, self.lost, self.flying = False, "", self.proof.flying
        self.rate = self.trip = 0.0
        self.window, self.packet, self.version = WINDOW, limits.packet, version
        self.quota = Quota(limits.per_second)
        self.reason, self.was_cut, self.ready = 0, False, False
        self.chunk = min(fit_chunk(self.rate), self.most_body)
        self.since, self.looked, self.vouched, self.retained = time.monotonic(), 0.0, 0.0, 0
        self.is_accepted, self.asked, self.asking = False, frozenset[str](), dict[int | None, list[str]]()
        self.client = self.make(client, will, version)
        self.stream: Stream | None = None

    def make(self, name: str, will: Will | None, version: int) -> Client:
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            clean_session=True if version == 4 else None,  # of MQTT 5 it is the default
            protocol=paho.MQTTv311 if version == 4 else paho.MQTTv5,
            reconnect_on_failure=False,
            transport="websockets" if self.broker.path else "tcp",
        )
        if self.broker.path:
            client.ws_set_options(self.broker.path)
        client.max_inflight_messages_set(0)  # ours is `room`
        client.on_connect, client.on_subscribe, client.on_publish = self.on_connect, self.on_subscribe, self.on_publish
        client.on_message, client.on_disconnect = self.on_message, self.on_disconnect
        if self.broker.user is not None:
            client.username_pw_set(self.broker.user, self.broker.password)
        if self.tls is not None:
            client.tls_set_context(self.tls)
        if will is not None:
            client.will_set(will.topic, will.payload, qos=0)
        return client

    def open(self) -> None:
        """Blocks until TCP is there or raises OSError; the rest is the loop's."""
        try:
            self.client.connect(self.broker.host, self.broker.port, keepalive=self.keepalive)
        except BaseException:
            if self.client.stream is not None:  # paho leaves it to the garbage collector
                self.client.stream.sock.close()
            raise
        self.stream, self.since = self.client.stream, time.monotonic()
        if self.fileno() < 0:
            raise ConnectionError(self.lost or "closed at once")

    # -- what paho reports

    def on_connect(self, client: paho.Client, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.lost, self.reason = f"refused: {reason}", reason.value
            return
        self.window = getattr(properties, "ReceiveMaximum", WINDOW)
        self.keepalive = min(self.keepalive, getattr(properties, "ServerKeepAlive", 0) or self.keepalive)
        self.client.keep_alive(self.keepalive)  # also where it wants none: a half-open connection is to be noticed
        self.packet = min(self.packet, getattr(properties, "MaximumPacketSize", PACKET))
        if self.packet < LEAST_PACKET:
            self.lost = f"the broker takes packets of {self.packet} bytes, at least {LEAST_PACKET} are needed"
            self.reason = TOO_LARGE
            return
        self.chunk = min(fit_chunk(self.rate), self.most_body)
        self.is_accepted = True
        self.listen(self.topics)

    def listen(self, topics: Sequence[str]) -> None:
        """Hear these topics, and no others, from now on; before the broker has accepted us: as soon as it has."""
        self.topics = tuple(topics)
        if not self.is_accepted:
            return
        new, old = [t for t in self.topics if t not in self.asked], sorted(self.asked - {*self.topics})
        self.asked = frozenset(self.topics)
        for start in range(0, len(new), SUBSCRIBED):
            some = new[start : start + SUBSCRIBED]
            self.asking[self.client.subscribe([(topic, 1) for topic in some])[1]] = some
        if old:
            self.client.unsubscribe(old)

    def on_subscribe(self, _: Any, __: Any, mid: int, reasons: Any, ___: Any) -> None:
        asked = self.asking.pop(mid, [])  # of nothing that was asked for it says nothing
        refused = [topic for topic, reason in zip_longest(asked, reasons) if reason is None or reason.is_failure]
        if asked and refused:
            self.lost = f"subscription to {refused[0]} refused"
        self.up = self.up or bool(asked and not refused and not self.asking)

    def on_publish(self, _: Any, __: Any, mid: int, reason: Any, ___: Any) -> None:
        if (value := reason.value) >= FAILED:
            if value != TOO_LARGE:
                self.flying.pop(mid, None)  # that it was refused says nothing of its size
            elif mid in self.flying:  # it has dropped it, and would drop its repetitions
                self.lost = self.lost or f"{reason}: {self.flying[mid][1]} bytes"
                self.reason, self.was_cut = TOO_LARGE, True
            return
        now = time.monotonic()
        sent, size = self.proof.note_acknowledged(mid, now)  # also called for QoS 0, as soon as it is written
        took = max(1e-6, now - sent)
        self.trip = took if size else self.trip
        self.rate = update_rate(self.rate, size, took)
        self.chunk = min(fit_chunk(self.rate), self.most_body)

    def on_message(self, _: Any, __: Any, message: paho.MQTTMessage) -> None:
        self.take_message(message._topic, bytes(message.payload), message.retain)

    def take_message(self, topic: bytes, payload: bytes, retained: bool) -> None:
        """Take a message that has come."""
        if retained:
            self.retained += 1  # nodes retain nothing: somebody has left this to be read at every start
            return
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            name = "?"  # no topic of ours, as the caller will find
        self.received.append((name, payload))

    def on_disconnect(self, _: Any, __: Any, flags: Any, reason: Any, ___: Any) -> None:
        malformed = self.client.malformed  # then it is us who close
        self.was_cut = self.was_cut or not (self.lost or malformed)
        said = flags.is_disconnect_packet_from_server
        self.reason = self.reason or (reason.value if said else 0)
        self.lost = self.lost or malformed or (str(reason) if said else self.client.why_closed)

    # -- what the loop calls

    def fileno(self) -> int:
        sock = self.client.socket()
        return -1 if sock is None else sock.fileno()

    @property
    def pending(self) -> bool:
        """Bytes may be there although the socket shows none: they are in the stream."""
        stream = self.stream
        return stream is not None and (not stream.dry or (stream.held > 0 and not stream.short))

    @property
    def wants_write(self) -> bool:
        stream = self.stream
        if stream is None:
            return self.client.want_write()
        return stream.needs_write or (not stream.needs_read and bool(stream.out or self.client.want_write()))

    @property
    def events(self) -> int:
        """What to wait for, for `select.poll`. TLS that must write before it can read has no use for what has come."""
        waits = self.stream is not None and self.stream.needs_write
        return (0 if waits else select.POLLIN) | (select.POLLOUT if self.wants_write else 0)

    @property
    def moved(self) -> float:
        """When anything was last read or written, by time.monotonic()."""
        return self.stream.moved if self.stream else self.since

    @property
    def room(self) -> int:
        """Number of messages that may be published now."""
        return min(self.window - len(self.flying), self.quota.count(time.monotonic())) if self.up else 0

    @property
    def most_body(self) -> int:
        """Bytes of the largest body that fits into a packet."""
        return max(1, self.packet - HEADROOM)

    @property
    def is_light(self) -> bool:
        """A message may do without the broker's acknowledgement, which costs as much as the message itself.

        Whether a message has arrived is known from its receiver. The broker's acknowledgement tells whether the link
        moves, how fast it is, and how much the broker has room for. For that one a second is enough, but while anything
        waits to be sent, every message asks for one.
        """
        waits = self.client.want_write() or (self.stream is not None and self.stream.behind)
        return not waits and time.monotonic() < self.vouched + VOUCHED

    def read(self) -> list[tuple[str, bytes]]:
        """Read topic and payload of all that has come. Sets `lost` where the connection is."""
        self.ready = False
        if self.stream is not None:
            self.stream.look_again()
        for _ in range(BURST):
            if not self.pending or self.client.socket() is None:
                break
            if (message := self.client.take_publish()) is not None:
                self.take_message(*message)
            elif self.pending:
                self.note(self.client.loop_read())
        received, self.received = self.received, []
        return received

    def write(self) -> None:
        """Write what waits. To be called when the socket takes more."""
        self.note(self.client.loop_write())
        self.flush()

    def flush(self) -> None:
        """Send what was kept back to go together. To be called before waiting."""
        stream = self.stream
        if stream is not None and stream.out:
            try:
                stream.flush()
            except OSError as e:
                self.was_cut = self.was_cut or not self.lost
                self.lost = self.lost or self.client.hear_end() or str(e)

    def check_health(self, now: float) -> None:
        """Ping the broker, and give up a connection that takes too long. Does nothing if it was called just now."""
        if now < self.looked + LOOKS_APART:
            return
        self.looked = now
        self.client.note_heard()
        was_cut = self.was_cut
        self.note(self.client.loop_misc())
        self.was_cut = was_cut  # who does not answer a ping has cut nothing
        oldest = next(iter(self.flying.values()), None)
        if oldest is not None and now - max(self.moved, oldest[0]) > STUCK:
            self.lost = self.lost or f"nothing has moved for {STUCK:.0f} s"
        if not self.up and not self.lost and now - self.since > SILENCE:
            self.lost = f"no answer within {SILENCE:.0f} s"

    def note(self, result: MQTTErrorCode) -> None:
        if result != paho.MQTT_ERR_SUCCESS or self.client.socket() is None:
            self.was_cut = self.was_cut or not self.lost
            self.lost = self.lost or paho.error_string(result)

    def measure_packet(self, topic: str, payload: bytes) -> int:
        """Bytes of the packet that brings this, at most."""
        return len(payload) + len(topic.encode()) + OVERHEAD

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        """Publish, with QoS 1 where the broker is not known to take so much: only that tells whether it has."""
        size = self.measure_packet(topic, payload)
        self.quota.use(time.monotonic())
        if not qos and size <= self.proof.taken:
            self.proof.note_light(size, time.monotonic())
            self.note(self.client.publish_light(topic, payload))
            return
        info = self.client.publish(topic, payload, 1)
        self.vouched = time.monotonic()
        self.proof.note_sent(info.mid, size, self.vouched)
        self.note(info.rc)

    def close(self) -> None:
        """Disconnect in order, so that the will is not published."""
        self.client.disconnect()
        self.drop()

    def drop(self) -> None:
        """Close the socket at once: the broker will publish the will."""
        self.up = False
        sock = self.client.socket()
        if sock is not None:
            sock.close()
