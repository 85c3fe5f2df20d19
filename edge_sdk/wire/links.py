"""The ways of a node to its parent and to its children: to which brokers, for which topics, and with what to prove who
it is."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import Logger

from edge_sdk.wire import topics
from edge_sdk.wire.link import Backoff, Link
from edge_sdk.wire.mqtt import Connection, Tls, Will, broker_at

FLUSH = 2.0  # seconds to get the last bytes out


@dataclass(frozen=True)
class Ways:
    """Makes the links of one node.

    Attributes:
        name: client id.
        contexts: URL of a broker -> with what it is met; nothing for one without TLS.
        wake: called from another thread when the loop should look.
        will: of a new connection of a link.
    """

    name: str
    contexts: Mapping[str, ssl.SSLContext]
    keepalive: int
    version: int
    backoff: Backoff
    wake: Callable[[], None]
    will: Callable[[Link], Will]
    log: Logger

    def links(
        self, parent: str | None, children: Sequence[str], broker: str, upstream: str
    ) -> tuple[Link | None, Link | None]:
        """To the children and to the parent; one and the same where they share a broker."""
        here, there = broker_at(broker), broker_at(upstream)
        mine = topics.of_children(self.name) if children else ()
        parents = topics.of_parent(parent, self.name) if parent else ()
        if children and parent and here == there:
            link = self.link(broker, (*parents, *mine))
            return link, link
        below = self.link(broker, mine) if children else None
        return below, self.link(upstream, parents) if parent else None

    def link(self, url: str, subscriptions: Sequence[str]) -> Link:
        broker = broker_at(url)

        def connect() -> Connection:
            will, tls = self.will(link), self.contexts.get(url)
            return Connection(broker, self.name, subscriptions, will, self.keepalive, self.version, tls)

        link = Link(connect, self.wake, self.backoff, self.log)
        return link


def contexts(broker: str, upstream: str, tls: Tls | None, upstream_tls: Tls | None) -> dict[str, ssl.SSLContext]:
    """URL -> with what a broker is met that wants TLS.

    Raises:
        UsageError: a URL is none, or a certificate is missing.
    """
    trusted = {upstream: upstream_tls or tls, broker: tls}  # one broker for both: tls
    return {url: (by or Tls()).context() for url, by in trusted.items() if broker_at(url).tls}


def close(links: Iterable[Link]) -> None:
    """With the last bytes out, if they go at once."""
    end = time.monotonic() + FLUSH
    for link in links:
        while link.connection and link.connection.wants_write and not link.connection.lost:
            if time.monotonic() > end:
                break
            link.connection.write()
            time.sleep(0.001)
        link.close()
