"""Webhooks: other systems are told what has happened, signed, in order, and until they have taken it.

What is told are the entries of the audit log, so nothing has to be kept for a receiver but the number of the entry that
it took last: that is its queue. It is told at least once; after a crash an entry may come twice, with the same number.
A receiver that is too far behind is not told all that it has missed, but how many those are. What needs a person is
told too, whenever that changes (`needs.change`), and of the moment only.

Where a webhook goes is said in the settings file and nowhere else: whoever has the console cannot make this machine
call others in its network, and a receiver cannot send it on to another address.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import sqlalchemy as sql

from aggregator.service.database.audit import list_latest
from aggregator.service.database.database import Database, Row, audit, hooks
from edge_sdk.errors import UsageError
from edge_sdk.tools.credentials.no_redirects import NoRedirects

log = logging.getLogger("auscult.service")
EVERY = 1.0  # seconds between two looks
TIMEOUT = 10.0  # seconds
LONGEST_PAUSE = 300.0  # seconds between two tries
WORTH_TELLING = 30.0
"""Seconds of pause from which on a receiver that takes nothing needs a person."""
BEHIND = 1000
"""Entries that wait for one receiver at most; of older ones it is told their number."""
SHORTEST_SECRET = 16  # characters
NEEDS = "needs.change"
NEEDS_APART = 60.0  # seconds
SKIPPED = "hook.skipped"


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """One receiver.

    Attributes:
        url: http or https.
        secret: a file with the key of its signatures.
        events: beginnings of names of events, such as "run." or "model.promote"; empty: all.
    """

    url: str
    secret: Path
    events: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise UsageError("url: expected http://HOST/... or https://HOST/..., without a password in it")
        if any(c.isspace() or not c.isprintable() for c in self.url):
            raise UsageError("url: has a blank or a control character in it")
        if not self.secret.is_file() or len(self.key) < SHORTEST_SECRET:
            raise UsageError(f"secret = {str(self.secret)!r}: a file with at least {SHORTEST_SECRET} characters")

    @property
    def key(self) -> bytes:
        return self.secret.read_bytes().strip()

    def wants(self, event: str) -> bool:
        return not self.events or event.startswith(self.events)


class NotTakenError(Exception):
    """A receiver has not taken an event."""


class WebhookSender:
    """Tells all receivers, each at its own pace.

    Args:
        needs: what needs a person now, as texts.

    Attributes:
        untold: receiver that has taken nothing for a while -> why, as it was said last.
    """

    def __init__(self, fleet: str, database: Database, webhooks: Mapping[str, Webhook], needs: Callable[[], list[str]]):
        self.fleet, self.database, self.webhooks, self.needs = fleet, database, webhooks, needs
        self.stopping = threading.Event()
        self.threads = [
            threading.Thread(target=self.work, args=(name,), name=f"webhook {name}", daemon=True) for name in webhooks
        ]
        self.told: dict[str, list[str]] = {}
        self.untold: dict[str, str] = {}
        self.needs_due: dict[str, float] = {}

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Ends; one that is just being told is waited for."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def work(self, name: str) -> None:
        pause = EVERY
        while not self.stopping.wait(pause):
            try:
                self.tell_due(name)
                pause = EVERY
                self.untold.pop(name, None)
            except (NotTakenError, sql.exc.SQLAlchemyError) as error:
                pause = min(2 * pause, LONGEST_PAUSE)
                if pause >= WORTH_TELLING and isinstance(error, NotTakenError):
                    self.untold[name] = str(error)
                log.warning("webhook %s: %s; next try in %.0f s", name, error, pause)

    def tell_due(self, name: str) -> None:
        """Tells one receiver all that it does not know yet. Raises NotTakenError if it takes something not."""
        webhook = self.webhooks[name]
        for row in self.read_due(name):
            if webhook.wants(row["action"]):
                self.tell(webhook, row)
            self.note_taken(name, row["seq"])
            if self.stopping.is_set():
                return
        if webhook.wants(NEEDS) and time.monotonic() >= self.needs_due.get(name, 0.0):
            self.tell_needs(name, webhook)

    def tell_needs(self, name: str, webhook: Webhook) -> None:
        """Tells one receiver what needs a person, unless it was told that last by this process."""
        needed = self.needs()
        if needed != self.told.get(name):
            row = {"seq": None, "action": NEEDS, "subject": self.fleet, "detail": needed, "at": time.time()}
            self.tell(webhook, row)
            self.told[name], self.needs_due[name] = needed, time.monotonic() + NEEDS_APART

    def read_due(self, name: str) -> list[Row]:
        """Entries that a receiver has not taken yet, the oldest first. A new receiver is told nothing of before."""
        latest = max((row["seq"] for row in list_latest(self.database, 1)), default=0)
        known = self.database.read(sql.select(hooks.c.taken).where(hooks.c.name == name))
        if not known:
            with self.database.transaction() as t:
                t.execute(hooks.insert().values(name=name, taken=latest))
            self.told[name] = []  # nothing, as it takes it; what others were told before a restart nobody knows
            return []
        taken = known[0]["taken"]
        query = sql.select(audit).where(audit.c.seq > max(taken, latest - BEHIND)).order_by(audit.c.seq)
        found = self.database.read(query)
        if latest - taken > BEHIND:
            about = {"seq": taken + 1, "action": SKIPPED, "subject": name, "at": time.time(), "who": "service"}
            found.insert(0, about | {"detail": json.dumps({"entries": latest - taken - BEHIND})})
        return found

    def note_taken(self, name: str, seq: int) -> None:
        with self.database.transaction() as t:
            t.execute(hooks.update().where(hooks.c.name == name).values(taken=seq))

    def tell(self, webhook: Webhook, row: Row) -> None:
        """Sends one event. Raises NotTakenError if it is not taken."""
        detail = json.loads(row["detail"]) if isinstance(row["detail"], str) else row["detail"]
        body = json.dumps({
            "number": row["seq"], "event": row["action"], "subject": row["subject"], "by": row.get("who", ""),
            "at": row["at"], "detail": detail, "service": self.fleet,
        }).encode()  # fmt: skip
        at = f"{time.time():.0f}"
        heads = {"content-type": "application/json", "x-auscult-time": at, "user-agent": "auscult"}
        try:
            heads["x-auscult-signature"] = f"sha256={sign(webhook.key, at, body)}"
            with OPENER.open(urllib.request.Request(webhook.url, body, heads, method="POST"), timeout=TIMEOUT):
                return
        except urllib.error.HTTPError as error:
            error.close()
            raise NotTakenError(f"answers {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # what answers may speak no HTTP
            raise NotTakenError(f"cannot be told: {type(error).__name__}: {str(error)[:200]!r}") from None


def sign(key: bytes, at: str, body: bytes) -> str:
    """HMAC-SHA256 over time and body, so that an old event cannot be sent again as a new one; hexadecimal."""
    return hmac.new(key, at.encode() + b"." + body, hashlib.sha256).hexdigest()


OPENER = urllib.request.build_opener(NoRedirects, urllib.request.ProxyHandler({}))
