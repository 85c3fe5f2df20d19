"""Keeps a node's log readable whatever peers send: a record is one line, short, printable, and not said too often.

What a peer writes ends up in the log: reasons, names, addresses of errors. Without this it could forge lines of other
nodes, send escape sequences to the terminal of whoever reads them, or fill the disk.
"""

from __future__ import annotations

import logging
import time
from math import inf

LINES, WINDOW = 10, 60.0  # lines of one kind within so many seconds; of the rest only the number is said
MOST = 300  # lines of all kinds in that time: a peer may choose words that nobody has used before
LONGEST, LONGEST_ERROR = 2_000, 20_000  # characters of a record; an error may bring a traceback
KINDS = 1_000  # that are counted at a time
CONTINUED = "\n    | "  # begins every line but the first of a traceback, so that none can pass for a record


class LogGuard(logging.Filter):
    """A filter for a logger: cleans each record, and drops what is said too often.

    A kind is a format with its first two arguments, which in a node's records are its own name and the peer's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        """Begin anew: nothing has been said."""
        self.kinds: dict[tuple[object, ...], tuple[float, int]] = {}
        self.since, self.said, self.unsaid = -inf, 0, 0  # when the window of all kinds began, and lines in it

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING and not (self.admit(record) and self.admit_any(record)):
            return False
        record.msg, record.args = clean(record), ()
        return True

    def admit(self, record: logging.LogRecord) -> bool:
        """Count the record; False if there were too many of its kind."""
        args = record.args if isinstance(record.args, tuple) else ()
        kind, now = (record.msg, *(str(arg)[:80] for arg in args[:2])), time.monotonic()
        since, count = self.kinds.pop(kind, (-inf, 0))
        if now - since > WINDOW:
            if count > LINES:
                record.msg = f"{record.msg} (and {count - LINES} more of this kind in the minute before)"
            since, count = now, 0
        self.kinds[kind] = since, count + 1
        if len(self.kinds) > KINDS:
            del self.kinds[next(iter(self.kinds))]
        return count < LINES

    def admit_any(self, record: logging.LogRecord) -> bool:
        """Count a record that there are not too many of its kind of; False if there were too many of all kinds."""
        now = time.monotonic()
        if now - self.since > WINDOW:
            if self.unsaid:
                record.msg = f"{record.msg} (and {self.unsaid} more of all kinds in the minute before)"
            self.since, self.said, self.unsaid = now, 0, 0
        if self.said == MOST:
            self.unsaid += 1
            return False
        self.said += 1
        return True


def clean(record: logging.LogRecord) -> str:
    """The text of a record, cut, and with every character that could pass for something else made visible."""
    text, longest = record.getMessage(), LONGEST if record.levelno < logging.ERROR else LONGEST_ERROR
    if len(text) > longest:
        text = f"{text[:longest]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    lines = text.split("\n") if record.levelno >= logging.ERROR else [text]
    return CONTINUED.join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in lines)


def guard_log(log: logging.Logger) -> logging.Logger:
    """The logger, guarded from now on; once is enough."""
    if not any(isinstance(found, LogGuard) for found in log.filters):
        log.addFilter(LogGuard())
    return log
