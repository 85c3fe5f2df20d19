"""A link: the connection to a broker, made again whenever it is lost.

Connections are made on a thread of their own, so that the loop never waits for a name server or a host. The back-off is
drawn from the whole interval ("full jitter"): after a power cut a thousand devices must not come back in one second.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from logging import Logger
from math import inf

from edge_sdk.wire.codec.bodies import clip
from edge_sdk.wire.known_broker import KnownBroker
from edge_sdk.wire.mqtt import REFUSED_VERSION, TOO_LARGE, Connection

SHORT, HINT_EVERY = 30.0, 5  # seconds that a connection should last; so many short ones in a row are said
TAKEN_OVER = 0x8E  # reason of MQTT 5: another client has connected with this one's id
HOPELESS_CAP = 600.0  # seconds at most between two attempts that nobody expects to succeed
SHORT_LIVED_MOST = 3  # failures that short ones in a row weigh as at most: 8 s with the default base


@dataclass(frozen=True)
class Backoff:
    """Waiting before an attempt to connect: a random time below min(cap, base * 2^failures) seconds.

    A node is back half a minute after its broker, in the mean, and after a minute at most. A thousand devices of a
    hospital that is down make 33 attempts a second then, which a broker bears while it comes up; with a cap of five
    minutes a round would wait for some of them that long.
    """

    base: float = 1.0
    cap: float = 60.0

    def draw(self, failures: int, hopeless: bool = False) -> float:
        """Seconds to wait. `hopeless`: what has failed will fail again, so that it is tried more and more rarely."""
        most = min(HOPELESS_CAP if hopeless else self.cap, self.base * 2 ** min(failures, 30))
        return random.uniform(most / 2 if hopeless else 0, most)


class Link:
    """A connection to one broker that is always wanted.

    Args:
        connect: makes a connection that is not yet open.
        wake: called from another thread when the loop should look.
        topics: what is to be heard now, for `listen`.
        known: what is known of the broker.
        save: called when something was learned of it.

    Attributes:
        connection: the one that is open, if any.
        opening: the one that is being opened on the other thread; `opened`: the same, when that has ended.
        fresh: nobody has been told yet that the connection is up.
        failures: attempts in a row that have failed.
        retry_at: when to try again, by time.monotonic().
        up_since: when the connection was ready, by time.monotonic().
        short_lived: connections in a row that were lost soon after that.
        cut_short: the latest of these in a row that the broker has closed without a word.
        bytes_before: bytes that earlier connections have moved.
        why: why the latest connection was lost, or could not be made; "": it is up.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        wake: Callable[[], None],
        backoff: Backoff,
        log: Logger,
        topics: Callable[[], Sequence[str]] = tuple,
        known: KnownBroker | None = None,
        save: Callable[[], None] = lambda: None,
    ):
        self.known, self.save = known or KnownBroker(), save
        self.connect, self.wake, self.backoff, self.log, self.topics = connect, wake, backoff, log, topics
        self.connection: Connection | None = None
        self.opening: Connection | None = None
        self.fresh = False
        self.failures, self.retry_at = 0, 0.0
        self.up_since, self.short_lived, self.cut_short = 0.0, 0, 0
        self.opened: Connection | None = None
        self.error = self.why = ""
        self.bytes_before = 0

    @property
    def up(self) -> bool:
        return self.connection is not None and self.connection.up

    @property
    def trouble(self) -> str:
        """What stands between this node and its broker, for people; "": nothing, or nothing yet."""
        why = self.known.trouble or (self.why if self.failures > 1 and not self.up else "")
        return why and f"its broker: {why}"

    @property
    def bytes_moved(self) -> int:
        """Bytes in and out, over all connections so far."""
        stream = self.connection.stream if self.connection else None
        return self.bytes_before + (stream.bytes_in + stream.bytes_out if stream else 0)

    def poll(self, now: float) -> bool:
        """Take what the connecting thread has made, or start it. True: a connection was lost."""
        if self.opening is not None:
            self.take_opened(now)
        if self.connection is not None and self.connection.lost:
            self.fail(now, self.connection.lost)
            return True
        if self.connection is None and self.opening is None and now >= self.retry_at:
            self.opening = self.connect()
            threading.Thread(target=self.open, args=(self.opening,), daemon=True).start()
        return False

    def open(self, connection: Connection) -> None:
        try:
            connection.open()
            self.error = ""
        except (OSError, ValueError) as e:
            self.error = str(e) or type(e).__name__
        except Exception as e:  # paho has stumbled over an answer; without an end of this attempt there is no next one
            self.error = clip(f"an answer that cannot be read: {type(e).__name__}: {e}", 200)
        self.opened = connection
        self.wake()

    def take_opened(self, now: float) -> None:
        if self.opened is not self.opening or self.opening is None:
            return
        connection, self.opening, self.opened = self.opening, None, None
        if self.error:
            self.fail(now, self.error, connection)
        else:
            self.connection, self.fresh = connection, True

    def fail(self, now: float, why: str, connection: Connection | None = None) -> None:
        connection = connection or self.connection
        assert connection is not None
        self.count_short(connection, now)
        again = self.learn(connection)
        connection.drop()
        self.bytes_before = self.bytes_moved
        self.connection, self.fresh = None, False
        # Two nodes of one name must not evict each other as fast as they can: neither would be heard to its end. But a
        # bad link cuts connections short, too, and has to be used again soon.
        hopeless = bool(self.known.cannot)
        failures = max(self.failures, min(self.short_lived - 1, SHORT_LIVED_MOST), self.known.cuts if hopeless else 0)
        wait = 0.0 if again else self.backoff.draw(failures, hopeless)
        self.failures, self.why = self.failures + (not again), self.known.cannot or why
        self.retry_at = now + wait
        if again:
            self.log.info("%s: %s took no MQTT 5 (%s): trying 3.1.1", connection.name, connection.broker, why)
            return
        self.log.warning("%s: %s: %s; next attempt in %.1f s", connection.name, connection.broker, self.why, wait)

    def learn(self, connection: Connection) -> bool:
        """Take what the end of a connection says of the broker; True: the next one is another, and can be made now."""
        known, name, proof = self.known, connection.name, connection.proof
        doubtful = proof.find_doubtful(time.monotonic())
        known.note_acknowledged(proof.proven)
        if not connection.is_accepted:
            known.cannot = connection.lost if connection.reason == TOO_LARGE else known.cannot
            silent = connection.stream is not None and connection.reason in (0, REFUSED_VERSION)
            return silent and known.note_no_answer(connection.version)
        said = connection.reason == TOO_LARGE
        if connection.was_cut and (learned := known.note_cut(doubtful, proof.proven, said)):
            self.log.warning("%s: %s: %s", name, connection.broker, learned)
        self.save()
        return False

    def count_short(self, connection: Connection, now: float) -> None:
        """Say what may be the matter when one connection after the other is lost soon after it was ready.

        A broker that speaks MQTT 5 may say that another client has taken a connection over. Others close it without a
        word, as a broker does that is ended; one that does so again as soon as it was reached has not been ended.
        """
        if not connection.up:
            return
        lasted = now - self.up_since
        self.short_lived = self.short_lived + 1 if lasted < SHORT else 0
        small = connection.proof.find_doubtful(time.monotonic()) <= connection.proof.taken
        silent = connection.was_cut and not connection.reason and small  # else it may have been too large for it
        self.cut_short = self.cut_short + 1 if silent and lasted < SHORT else 0
        name, broker = connection.name, connection.broker
        if connection.reason == TAKEN_OVER:
            words = "%s: %s has ended the connection as another node has connected with the same name: "
            self.log.warning(words + "there is a second %s; give each node a name of its own", name, broker, name)
        elif self.cut_short == 2 or self.short_lived % HINT_EVERY == HINT_EVERY - 1:
            self.log.warning(
                "%s: %d connections to %s in a row were lost within %.0f s; a broker does that when another node "
                "connects with the same name: is there a second %s?",
                name,
                self.cut_short if self.cut_short == 2 else self.short_lived + 1,
                broker,
                SHORT,
                name,
            )

    def listen(self) -> None:
        """What is to be heard may be something else now."""
        if (connection := self.connection or self.opening) is not None:
            connection.listen(self.topics())

    def has_come_up(self) -> bool:
        """The connection is ready for use; True once for each connection."""
        if not self.fresh or not self.up:
            return False
        assert self.connection is not None
        self.fresh, self.failures, self.why, self.up_since = False, 0, "", time.monotonic()
        self.known.note_acceptance(self.connection.version)
        self.log.info("%s: connected to %s", self.connection.name, self.connection.broker)
        return True

    def get_timer(self) -> float:
        """When `poll` has something to do, by time.monotonic()."""
        return self.retry_at if self.connection is None and self.opening is None else inf

    def close(self) -> None:
        if self.connection is not None:
            self.connection.proof.settle(inf)
            self.known.note_acknowledged(self.connection.proof.proven)
            self.connection.close()
            self.bytes_before = self.bytes_moved
            self.connection = None
            self.save()
        self.retry_at = time.monotonic()
