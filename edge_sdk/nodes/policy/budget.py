"""A device's training budget: rules of its owner and its application, and the decision that they come to. Pure.

    charging, battery, temperature, other work, hours, link, joules of today  ->  train now, or not and why

The decision has memory, so that it does not flicker where a value is at its limit: training stops at the limit, begins
again a margin away from it, and only when all rules have been kept for `calm` seconds.

A rule whose fact nobody tells forbids training and says so: a battery that nobody can read may be empty.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from math import inf

from edge_sdk.contract.children.device_facts import APPLICATION, Reason
from edge_sdk.errors import UsageError

log = logging.getLogger("auscult.device")
METERED = ("wwan*", "ppp*", "rmnet*")
"""Names of interfaces of mobile networks, as patterns of fnmatch."""
HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, kw_only=True)
class TrainingBudget:
    """The [budget] table of a device's settings file. What is not set is not asked for.

    Attributes:
        charging: train only while connected to power.
        min_battery: share of the battery (0 to 1) below which it does not train; 0: no such rule.
        max_celsius: degrees Celsius of the hottest sensor above which it does not train; inf: no such rule.
        max_busy: share of the processor (0 to 1) above which other processes are in the way; 1: no such rule.
        hours: spans of local time in which it may train, such as "22:00-06:30"; none: always.
        unmetered: train only while the default route's interface is none of `metered_links`.
        metered_links: patterns of names of interfaces whose bytes cost money.
        joules: energy that training may take on one day, J; inf: no such rule.
        watts: power of the machine while it trains, W, where nothing on it tells; 0: not given.
        cpu_share: share of the time (0 to 1) in which training works; it rests for the others.
        battery_margin, celsius_margin: distances from the limits at which training begins again.
        calm: seconds for which all rules must have been kept before training begins again.
        keep_every: seconds of training after which its progress is saved; what a kill costs at most.

    >>> TrainingBudget(charging=True, hours=("22:00-06:30",)).hours
    ('22:00-06:30',)
    """

    charging: bool = False
    min_battery: float = 0.0
    max_celsius: float = inf
    max_busy: float = 1.0
    hours: tuple[str, ...] = ()
    unmetered: bool = False
    metered_links: tuple[str, ...] = METERED
    joules: float = inf
    watts: float = 0.0
    cpu_share: float = 1.0
    battery_margin: float = 0.05
    celsius_margin: float = 5.0
    calm: float = 30.0
    keep_every: float = 60.0

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("min_battery", "max_busy", "battery_margin"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} = {getattr(self, name)}: a share, from 0 to 1")
        if not 0 < self.cpu_share <= 1:
            raise UsageError(f"cpu_share = {self.cpu_share}: a share of the time, above 0 and at most 1")
        for name in ("watts", "celsius_margin", "calm", "keep_every", "joules"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} = {getattr(self, name)}: 0 or more")
        check_hours(self.hours)


def check_hours(hours: Iterable[str]) -> None:
    """Raises UsageError for a text that is no span of the day. One without a length is the whole day, as in 0.2, which
    is warned of: only midnight to midnight is a day to its reader."""
    for span in hours:
        if not HOURS.fullmatch(span):
            raise UsageError(f'hours: {span!r}: expected a span of the day such as "22:00-06:30"')
        if span[:5] == span[6:] != "00:00":
            log.warning("hours: %r is the whole day, and will be refused from 0.5 on; leave hours out for that", span)


def check_types(budget: TrainingBudget) -> None:
    """Raises UsageError for a value of another type: an application writes these as it likes, and `"no"` is true."""
    for field in fields(budget):
        value = getattr(budget, field.name)
        if isinstance(field.default, bool):
            fits, wanted = isinstance(value, bool), "True or False"
        elif isinstance(field.default, float):
            fits, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        else:
            fits = isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
            wanted = "a tuple of texts"
        if not fits:
            raise UsageError(f"budget: {field.name} = {value!r:.60}: expected {wanted}")


@dataclass(frozen=True, kw_only=True)
class BudgetFile:
    """A file with a [budget] table and nothing else, for an application's device and for a replay of days."""

    budget: TrainingBudget


@dataclass(frozen=True)
class Conditions:
    """What the rules are about, now. None: nothing tells.

    Attributes:
        battery: share of its charge.
        charging: is it connected to power?
        celsius: of the hottest sensor.
        busy: share of the processor that other processes have used of late.
        metered: does the default route cost money?
        joules: that training has taken today.
        minute: of local time, since midnight.
        allowed: the application allows training.
    """

    battery: float | None = None
    charging: bool | None = None
    celsius: float | None = None
    busy: float | None = None
    metered: bool | None = None
    joules: float | None = 0.0
    minute: int = 0
    allowed: bool = True


@dataclass(frozen=True)
class Decision:
    """Decision whether to train.

    Attributes:
        reason: why not; None: train.
        broken_at: when a rule was last found broken, in the caller's clock; -inf: never.
    """

    reason: Reason | None = None
    broken_at: float = -inf

    @property
    def willing(self) -> bool:
        return self.reason is None


def decide(budget: TrainingBudget, facts: Conditions, now: float, before: Decision | None = None) -> Decision:
    """The decision after another look at the facts.

    Args:
        now: seconds of any clock that does not go back.
        before: the decision of the look before; None: this is the first one.
    """
    begins = before is None or not before.willing
    reason = next(find_reasons(budget, facts, begins), None)
    if reason is not None:
        return Decision(reason, now)
    if before is None or before.willing:
        return Decision(None, -inf if before is None else before.broken_at)
    quiet = now - before.broken_at
    return Decision(Reason("calm", quiet, budget.calm) if quiet < budget.calm else None, before.broken_at)


def find_reasons(budget: TrainingBudget, facts: Conditions, begins: bool) -> Iterator[Reason]:
    """Reasons not to train, the most lasting ones first. `begins`: training would begin, not go on."""
    if not facts.allowed:
        yield Reason(APPLICATION)
    if budget.hours and not any(is_within(span, facts.minute) for span in budget.hours):
        yield Reason("hours", float(facts.minute))
    if budget.charging and not facts.charging:
        yield Reason("no_charging" if facts.charging is None else "charging")
    margin = budget.battery_margin if begins else 0.0
    yield from below("battery", facts.battery, budget.min_battery, margin)
    margin = budget.celsius_margin if begins else 0.0
    yield from above("celsius", facts.celsius, budget.max_celsius, inf, margin)
    yield from above("busy", facts.busy, budget.max_busy, 1.0, 0.0)
    if budget.unmetered and facts.metered is not False:
        yield Reason("no_metered" if facts.metered is None else "metered")
    if budget.joules < inf and facts.joules is None:
        yield Reason("no_joules")
    elif facts.joules is not None and facts.joules >= budget.joules:
        yield Reason("joules", facts.joules, budget.joules)


def below(kind: str, value: float | None, limit: float, margin: float) -> Iterator[Reason]:
    """The reason that a share is below its limit, where there is one (above 0)."""
    if limit > 0 and value is None:
        yield Reason(f"no_{kind}")
    elif value is not None and value < min(1.0, limit + margin if limit else 0.0):
        yield Reason(kind, value, min(1.0, limit + margin))


def above(kind: str, value: float | None, limit: float, none: float, margin: float) -> Iterator[Reason]:
    """The reason that a value is above its limit; where that is `none` there is no such rule."""
    if limit < none and value is None:
        yield Reason(f"no_{kind}")
    elif limit < none and value is not None and value > limit - margin:
        yield Reason(kind, value, limit - margin)


def is_within(span: str, minute: int) -> bool:
    """Is a minute of the day within a span, which may go over midnight, or be a whole day?"""
    found = HOURS.fullmatch(span)
    assert found is not None  # TrainingBudget has checked it
    first, first_minute, last, last_minute = map(int, found.groups())
    begin, end = 60 * first + first_minute, 60 * last + last_minute
    return begin <= minute < end if begin < end else minute >= begin or minute < end
