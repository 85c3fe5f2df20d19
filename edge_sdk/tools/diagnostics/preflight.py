"""Round trips to a broker and back, of messages as large as a small model, as a node would send them.

A broker without `set_tcp_nodelay true` holds back the end of each message until the receiver's system acknowledges the
part before it, and systems delay that acknowledgement by 40 ms. Small messages do not show this stall.
"""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Callable
from secrets import token_hex

from edge_sdk.errors import AuscultError
from edge_sdk.wire.addresses import Broker, Tls, broker_at
from edge_sdk.wire.mqtt import REFUSED_VERSION, Connection

BODY = bytes(40_000)
OWN = "auscult/v1/doctor/{}"  # the access list that provision writes lets each node write and read its own
PATIENCE = 10.0
"""Seconds for a connection or a round trip."""


class BrokerError(AuscultError):
    """The broker does not answer as it should."""


def measure_round_trips(url: str, count: int, tls: Tls | None = None, holder: str | None = None) -> list[float]:
    """Measures the seconds that each of `count` messages of 40 kB takes to another connection and back.

    Args:
        tls: certificates, for a broker at mqtts://.
        holder: name in the certificate: its only connection is that of its name, so its messages come back to it.

    Raises:
        UsageError: this is no broker's URL. BrokerError: no answer. OSError: nobody listens there.
    """
    broker = broker_at(url)
    context = (tls or Tls()).context() if broker.tls else None
    if holder is not None:
        return measure_alone(Connection(broker, holder, [OWN.format(holder)], version=5, tls=context), count, holder)
    name = f"auscult-doctor-{token_hex(4)}"
    there, back = f"auscult/v1/{name}/there", f"auscult/v1/{name}/back"
    one, other = open_both(broker, [(f"{name}-1", back), (f"{name}-2", there)], context)
    try:
        return [measure_round_trip(one, other, there, back) for _ in range(count)]
    finally:
        for connection in (one, other):
            connection.close()


def open_both(
    broker: Broker, asked: list[tuple[str, str]], context: ssl.SSLContext | None, version: int = 5
) -> tuple[Connection, Connection]:
    """Two connections that are up, each with a name and a topic; in MQTT 5, or 3.1.1 where the broker has no 5.

    Raises:
        BrokerError: there is no answer to either. OSError: nobody listens there.
    """
    one, other = (Connection(broker, name, [topic], version=version, tls=context) for name, topic in asked)
    try:
        for connection in (one, other):
            connection.open()
        serve_until(one, other, lambda: one.up and other.up)
        return one, other
    except (BrokerError, OSError):
        for connection in (one, other):
            connection.close()
        if version == 4 or one.is_accepted or one.reason not in (0, REFUSED_VERSION):
            raise
        return open_both(broker, asked, context, version=4)


def make_body(connection: Connection) -> bytes:
    """What is sent: as much as the broker takes, 40 kB at most."""
    return BODY[: connection.most_body]


def measure_alone(one: Connection, count: int, holder: str) -> list[float]:
    """Measures as `measure_round_trips` does, to the broker and back to the same connection."""
    try:
        one.open()
        serve_until(one, one, lambda: one.up)
        return [measure_echo(one, OWN.format(holder)) for _ in range(count)]
    finally:
        one.close()


def measure_echo(one: Connection, topic: str) -> float:
    """Seconds to the broker and back."""
    began = time.perf_counter()
    one.publish(topic, make_body(one), 1)
    serve_until(one, one, lambda: bool(one.read()))
    return time.perf_counter() - began


def measure_round_trip(one: Connection, other: Connection, there: str, back: str) -> float:
    """Seconds from `one` to `other` and back."""
    began, returned = time.perf_counter(), False
    one.publish(there, make_body(one), 1)

    def done() -> bool:
        nonlocal returned
        for _ in other.read():
            other.publish(back, make_body(one), 1)
        returned = returned or bool(one.read())
        return returned

    serve_until(one, other, done)
    return time.perf_counter() - began


def serve_until(one: Connection, other: Connection, done: Callable[[], bool]) -> None:
    """Serves both connections until `done()`.

    Raises:
        BrokerError: a connection is lost, or PATIENCE seconds are over.
    """
    until = time.monotonic() + PATIENCE
    while not done():
        for connection in (one, other):
            if connection.lost:
                raise BrokerError(f"{connection.broker}: {connection.lost}")
            if connection.wants_write:
                connection.write()
        if time.monotonic() > until:
            raise BrokerError(f"{one.broker}: no answer within {PATIENCE:.0f} s")
        select.select([one, other], [c for c in (one, other) if c.wants_write], [], 0.05)
        if not (one.up and other.up):
            one.read()
            other.read()
