"""Makes the links of a node to its parent and its children: which broker, which topics, which certificates."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import Logger
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.wire import topics
from edge_sdk.wire.addresses import Tls, broker_at, conceal, is_this_machine
from edge_sdk.wire.known_broker import KnownBrokers, SendLimits
from edge_sdk.wire.link import Backoff, Link
from edge_sdk.wire.mqtt import Connection, Will

FLUSH = 2.0  # seconds for the last bytes to leave
NEAR = 10.0  # seconds at most between attempts to connect to a broker on this machine


class TlsFiles:
    """Certificates of one node for one broker, read again before a connection where they were renewed meanwhile.

    Raises:
        UsageError: a file is missing or is no certificate.
    """

    def __init__(self, tls: Tls):
        self.tls, self.seen = tls, look_at_files(tls)
        self.context = tls.context()

    def read_anew(self, log: Logger) -> ssl.SSLContext:
        """The context for the next connection. Files that do not go together, such as in the moment between the writing
        of a new key and of its certificate, are left for the next attempt, which is made with the ones before."""
        now = look_at_files(self.tls)
        if now != self.seen:
            try:
                self.context, self.seen = self.tls.context(), now
            except UsageError as error:
                log.warning("connects with the certificates of before: %s", error)
        return self.context


def look_at_files(tls: Tls) -> tuple[tuple[int, int] | None, ...]:
    """Which files there are now: node and time of change of each; None where one is missing."""

    def look(path: Path | None) -> tuple[int, int] | None:
        try:
            found = None if path is None else path.stat()
        except OSError:
            return None
        return None if found is None else (found.st_ino, found.st_mtime_ns)

    return look(tls.ca), look(tls.certificate), look(tls.key)


@dataclass(frozen=True)
class LinkMaker:
    """Makes the links of one node.

    Attributes:
        name: of the node.
        client: its client id, where others of its name lead other children: then it hears its own children only; "":
            its name, and it hears whoever calls.
        children: names of its children now.
        lane: of the node's run, where it works in no other; 0: it hears all.
        contexts: URL of a broker -> its TLS files; no entry for a broker without TLS.
        wake: called from another thread when the loop should look.
        will: link -> will of its next connection.
        brokers: what was learned of them.
        per_second: messages that may be published in a second over one link; None: any number.
    """

    name: str
    contexts: Mapping[str, TlsFiles]
    keepalive: int
    brokers: KnownBrokers
    backoff: Backoff
    wake: Callable[[], None]
    will: Callable[[Link], Will]
    log: Logger
    client: str
    children: Callable[[], Sequence[str]]
    lane: int = 0
    per_second: float | None = None

    def list_heard(self) -> tuple[str, ...]:
        """Topics of children that are to be heard now."""
        return topics.heard_by_parent(self.name, self.children() if self.client else (topics.ANYBODY,), self.lane)

    def make_links(
        self, parent: str | None, leads: bool, broker: str, upstream: str
    ) -> tuple[Link | None, Link | None]:
        """Make the links to the children, if the node `leads`, and to the parent; one where both share a broker."""
        here, there = broker_at(broker), broker_at(upstream)
        parents = topics.heard_by_child(parent, self.name) if parent else ()
        if leads and parent and here == there:
            link = self.make_link(broker, lambda: (*parents, *self.list_heard()))
            return link, link
        below = self.make_link(broker, self.list_heard) if leads else None
        return below, self.make_link(upstream, lambda: parents) if parent else None

    def make_link(self, url: str, heard: Callable[[], Sequence[str]]) -> Link:
        broker = broker_at(url)

        def connect() -> Connection:
            will, files = self.will(link), self.contexts.get(url)
            tls = None if files is None else files.read_anew(self.log)
            return Connection(
                broker,
                self.client or self.name,
                heard(),
                will=will,
                keepalive=self.keepalive,
                version=known.next_version(),
                tls=tls,
                limits=SendLimits(known.next_packet(), known.taken, self.per_second),
            )

        backoff = self.backoff
        if is_this_machine(broker.host):  # no network to be spared, and no fleet that comes back all at once
            backoff = replace(backoff, cap=min(backoff.cap, NEAR))
        known = self.brokers.find(conceal(url))
        link = Link(connect, self.wake, backoff, self.log, heard, known, self.brokers.save)
        return link


def make_tls_contexts(broker: str, upstream: str, tls: Tls | None, upstream_tls: Tls | None) -> dict[str, TlsFiles]:
    """URL -> with what a broker is met that wants TLS.

    Raises:
        UsageError: a URL is none, or a certificate is missing.
    """
    trusted = {upstream: upstream_tls or tls, broker: tls}  # one broker for both: tls
    return {url: TlsFiles(by or Tls()) for url, by in trusted.items() if broker_at(url).tls}


def close_links(links: Iterable[Link]) -> None:
    """Close links, after their last bytes have left if that takes no longer than FLUSH seconds."""
    end = time.monotonic() + FLUSH
    for link in links:
        while link.connection and link.connection.wants_write and not link.connection.lost:
            if time.monotonic() > end:
                break
            link.connection.write()
            time.sleep(0.001)
        link.close()
