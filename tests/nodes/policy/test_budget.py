"""The decision whether to train: each rule, its margin, its reason; what nobody tells; spans of the day."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from edge_sdk.contract.children.device_facts import SENTENCES, Reason
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.device.options import DevicePolicy
from edge_sdk.nodes.policy.budget import Conditions, Decision, TrainingBudget, decide, is_within

GOOD = Conditions(
    battery=0.9, charging=True, celsius=40.0, busy=0.05, metered=False, joules=10.0, minute=23 * 60, allowed=True
)
STRICT = TrainingBudget(
    charging=True,
    min_battery=0.3,
    max_celsius=70.0,
    max_busy=0.25,
    hours=("22:00-06:00",),
    unmetered=True,
    joules=500.0,
    calm=10.0,
)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"allowed": False}, "the application says no"),
        ({"minute": 14 * 60 + 5}, "14:05 is outside its hours"),
        ({"charging": False}, "not charging"),
        ({"battery": 0.18}, "battery 18 % < 35 %"),
        ({"celsius": 71.0}, "71 degrees Celsius > 65"),
        ({"busy": 0.5}, "others use 50 % of the processor > 25 %"),
        ({"metered": True}, "the link is metered"),
        ({"joules": 500.0}, "500 J of 500 J for today are used up"),
        ({"charging": None}, "nothing tells whether it is charging"),
        ({"battery": None}, "nothing tells the battery's charge"),
        ({"celsius": None}, "nothing tells the temperature"),
        ({"busy": None}, "nothing tells how busy the processor is"),
        ({"metered": None}, "nothing tells which link is used"),
        ({"joules": None}, "nothing tells what training takes: give the budget its watts"),
    ],
)
def test_each_rule_forbids_alone_and_says_why(change: dict[str, Any], sentence: str) -> None:
    assert decide(STRICT, GOOD, 0.0).willing
    found = decide(STRICT, replace(GOOD, **change), 0.0)
    assert str(found.reason) == sentence and found.reason is not None and found.reason.kind in SENTENCES
    assert decide(TrainingBudget(), replace(GOOD, **(change | {"allowed": True})), 0.0).willing  # no rule, no reason


def test_training_stops_at_the_limit_and_begins_a_margin_away_when_it_was_calm_for_a_while() -> None:
    """The whole course of a battery that falls and rises again."""
    budget, before, course = TrainingBudget(min_battery=0.3, calm=10.0), Decision(), []
    for now, battery in enumerate([0.31, 0.30, 0.29, 0.30, 0.34, 0.35, *[0.36] * 12]):
        before = decide(budget, Conditions(battery=battery), float(now), before)
        course.append("train" if before.willing else str(before.reason))
    assert course[:5] == ["train", "train", "battery 29 % < 30 %", "battery 30 % < 35 %", "battery 34 % < 35 %"]
    assert course[5] == "may train since 1 s, begins after 10 s"
    assert course[13] == "may train since 9 s, begins after 10 s" and course[14:] == ["train"] * 4


def test_a_value_that_trembles_at_its_limit_starts_nothing_twice() -> None:
    budget, before, starts = TrainingBudget(max_celsius=70, calm=5.0), Decision(), 0
    for now in range(600):
        after = decide(budget, Conditions(celsius=70.0 + (-1) ** now), float(now), before)
        starts, before = starts + (after.willing and not before.willing), after
    assert starts == 0 and not before.willing


@pytest.mark.parametrize(
    ("span", "inside", "outside"),
    [
        ("22:00-06:30", ("22:00", "23:59", "00:00", "06:29"), ("06:30", "12:00", "21:59")),
        ("09:00-17:00", ("09:00", "16:59"), ("08:59", "17:00", "00:00")),
        ("00:00-00:00", ("00:00", "12:00", "23:59"), ()),
    ],
)
def test_spans_of_the_day(span: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    def minute(text: str) -> int:
        return 60 * int(text[:2]) + int(text[3:])

    assert all(is_within(span, minute(text)) for text in inside)
    assert not any(is_within(span, minute(text)) for text in outside)


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({"hours": ["22-6"]}, "expected a span of the day"),
        ({"hours": ["24:00-06:00"]}, "expected a span of the day"),
        ({"min_battery": 30.0}, "min_battery = 30.0: a share"),
        ({"cpu_share": 0.0}, "cpu_share = 0.0"),
        ({"calm": -1.0}, "calm = -1.0: 0 or more"),
        ({"joules": float("nan")}, "joules = nan"),
        ({"min_batery": 0.3}, "did you mean min_battery"),
    ],
)
def test_a_table_with_a_mistake_is_refused(table: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        from_mapping(TrainingBudget, table, "budget")


def test_a_span_without_a_length_is_the_whole_day_as_in_the_last_release(caplog: pytest.LogCaptureFixture) -> None:
    budget = from_mapping(TrainingBudget, {"hours": ["22:00-22:00"]}, "budget")
    assert all(is_within(budget.hours[0], minute) for minute in range(24 * 60))
    assert "'22:00-22:00' is the whole day, and will be refused from 0.5 on" in caplog.text


def test_a_reason_of_a_later_version_is_shown_as_it_is() -> None:
    assert str(Reason("moon_phase", 0.5, 0.25)) == "moon_phase (0.5, limit 0.25)"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"charging": "yes"}, "charging = 'yes': expected True or False"),
        ({"watts": "5"}, "watts = '5': expected a number"),
        ({"min_battery": True}, "min_battery = True: expected a number"),
        ({"hours": "22:00-06:30"}, "hours = '22:00-06:30': expected a tuple of texts"),
        ({"hours": (22, 6)}, "expected a tuple of texts"),
    ],
)
def test_values_of_another_type_are_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        TrainingBudget(**given)


def test_a_budget_that_is_a_dictionary_is_refused_with_what_is_right() -> None:
    """It was an AttributeError, in `Device`."""
    with pytest.raises(UsageError, match=r"budget = .'charging': True.: expected a TrainingBudget"):
        DevicePolicy(budget={"charging": True})  # type: ignore[arg-type]
