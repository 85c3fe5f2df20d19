"""The time by which windows are too old: a clock that leaps ahead is not believed at once, or it would erase them all.

A board without a battery for its clock, or a phone whose date is set by hand, is a year ahead for some minutes. So a
time that is more than a day after the latest one is believed when the clock still says so a day later.
"""

from __future__ import annotations

import logging
import struct
from math import inf

from edge_sdk.data.store.index import SampleIndex

FACT = "trusted_time"
TIMES = struct.Struct("<dd")
"""The latest time that was believed, and since which one there is doubt; inf: there is none."""
DAY, HOUR = 86_400.0, 3600.0

log = logging.getLogger("auscult.samples")


def trust(index: SampleIndex, now: float, days: float) -> float:
    """The time by which windows are too old, within a transaction.

    Args:
        now: what the clock says, seconds since 1970. days: windows that ended longer ago are too old.
    """
    saved = index.find_fact(FACT)
    latest, since = (now, inf) if saved is None else TIMES.unpack(saved)
    if now <= latest + DAY or now >= since + DAY:
        if saved is None or since < inf or now > latest + HOUR:
            index.set_fact(FACT, TIMES.pack(max(latest, now), inf))
        return now
    if now < since:
        index.set_fact(FACT, TIMES.pack(latest, now))
        if lost := len(index.ended_before(now - days * DAY)):
            words = "%s: the clock went on by %.0f days at once; %d windows are too old by it, and go if that lasts"
            log.warning(words, index.path, (now - latest) / DAY, lost)
    return float(latest)
