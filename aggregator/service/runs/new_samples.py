"""Schedules of an event: a run begins when the hospitals have told of enough new labelled samples.

Hospitals tell sums that never fall (edge_sdk/live/presence/labels.py). A schedule keeps what each had told when it was
made, and when it began a run last; what has come since is new, and what a hospital tells for the first time is new as a
whole. While a run of the schedule waits, trains or is paused, samples only add up. The run is queued and the sums are
noted in one transaction, so a kill at any moment leaves both or neither.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Connection

from aggregator.service.database import audit
from aggregator.service.database.database import schedules
from aggregator.service.runs.runs import queue_in, wanted_of
from edge_sdk.errors import UsageError

WHEN = re.compile(r"([1-9]\d{0,8}) new samples")


@dataclass(frozen=True)
class NewSamples:
    """An event: so many new labelled samples.

    Attributes:
        count: of them.
        told: hospital -> its sum at the moment from which on samples are new.
    """

    count: int
    told: Mapping[str, int] = field(default_factory=dict)

    def as_columns(self) -> dict[str, Any]:
        """The columns of a schedule that say when."""
        return {"begin": "", "end": "", "days": "", "samples": self.count, "counted": dict(self.told)}


def read_event(text: str, told: Mapping[str, int]) -> NewSamples:
    """Reads an event such as "1000 new samples". Raises UsageError if it is none."""
    if (found := WHEN.fullmatch(text.strip())) is None:
        raise UsageError(f'when = {text[:80]!r}, expected such as "1000 new samples"')
    return NewSamples(int(found[1]), told)


def count_new(row: Mapping[str, Any], told: Mapping[str, int]) -> int:
    """Labelled samples of a schedule's hospitals that are new to it. `told`: hospital -> its sum now."""
    names = wanted_of(row).hospitals or tuple(told)
    return sum(max(0, told[name] - row["counted"].get(name, 0)) for name in names if name in told)


def begin_run(
    t: Connection, row: Mapping[str, Any], author: str, id: str, told: Mapping[str, int], awaits: int
) -> None:
    """Queue the run of a schedule whose samples have come, and count from here on."""
    new, day = count_new(row, told), time.strftime("%Y-%m-%d")
    queue_in(t, wanted_of(row), author, id, awaits=awaits)
    changes = {"counted": {**row["counted"], **told}, "latest": day}
    t.execute(schedules.update().where(schedules.c.name == row["name"]).values(**changes))
    audit.note(t, author, "schedule.due", row["name"], new=new, run=id)
