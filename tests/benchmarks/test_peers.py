"""The tables of benchmarks/peers.py: each page has its place for them, and they say what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from benchmarks.trend_table import read_between
from benchmarks.wire_without import PARTS, compare, without
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.session import Session
from edge_sdk.delivery.storage import outbox_table
from edge_sdk.delivery.storage.log_check import WritingMark
from edge_sdk.live.membership.rate_limit import Frequency
from edge_sdk.live.membership.waiting_log import WaitingLog
from edge_sdk.wire.codec import bodies

ROOT = Path(__file__).parents[2]


def loop(size: str, raw: float, flower: float, ours: float) -> dict[str, Any]:
    mine = {"rounds_per_second": ours, "of raw paho": ours / raw, "of flower": ours / flower}
    mine |= {"parent_cpu_ms": 1.0, "child_cpu_ms": 0.4}
    others = {"raw paho": {"rounds_per_second": raw}, "flower": {"rounds_per_second": flower}}
    return {"size": size, **others, "ours, full": mine, "ours, normal": mine}


def rate(name: str, model: str, clients: float) -> dict[str, Any]:
    return {"name": name, "model": model, "rate": clients, "mb": 100, "cpu_ms": 1000 / clients}


@pytest.fixture
def found() -> peers.Found:
    ms = {
        "20": {"device": 1.0, "torch": 2.0, "torch tuned": 2.5},
        "32": {"device": 2.0, "torch": 5.0, "torch tuned": 4},
    }
    ours = ("auscult simulate", 100.0), ("the same, --calls cohort", 150.0), ("plain numpy loop", 200.0)
    return {
        "about": "1 January 2026, a machine",
        "step": {"ms": ms, "memory_mb": {"device": 70.0, "torch": 300.0}},
        "loop": [loop("2x10k", 1000, 100, 200), loop("10x10k", 800, 80, 240)],
        "start": [{"devices": 4, "first round": 5.0}, {"devices": 18, "first round": 9.0}],
        "simulate": [
            *(rate(name, "mlp", clients) for name, clients in (*ours, ("pfl-research", 30.0), ("Flower, Ray", 2.0))),
            *(rate(name, "wrist", clients) for name, clients in (("auscult simulate", 50.0), ("pfl-research", 10.0))),
        ],
        "million": [rate("auscult simulate", "mlp", 90.0)],
        "parts": ["| part | ms |", "|---|---|", "| everything | 1 |"],
        "stages": ["| step | us |", "|---|---|", "| all | 3 |"],
        "profile": [
            {"model": "mlp", "shares": {"steps": 0.6, "checks": 0.4}, "steps_us": {"epoch": 5500.0, "cohort": 4000.0}},
            {"model": "wrist", "shares": {"steps": 0.9, "checks": 0.1}, "steps_us": {"epoch": 17000.0}},
        ],
    }


def test_ratios_are_of_the_best_of_ours_and_of_the_same_run(found: peers.Found) -> None:
    short = peers.write_short(found)
    assert "| 0.40 to 0.50 of torch eager's |" in short
    assert "| 240: 0.30 of raw paho, 3.0 x Flower |" in short
    assert "150: 0.75 of a plain numpy loop; 5.0 x pfl-research; 75.0 x Flower; 50: 5.0 x pfl-research" in short
    assert "| 5.0 s; 9.0 s |" in short


def test_the_loop_stands_beside_its_goals(found: peers.Found) -> None:
    assert "| 2 x 10k | 1000.0 | 100.0 | 200.0 | 0.20 (goal 0.45) | 2.00 (goal 3) |" in peers.write_loop(found)


def test_a_participant_that_lacks_a_network_has_empty_places(found: peers.Found) -> None:
    assert "| plain numpy loop | 200 | 100 |  |  |" in peers.write_simulate(found)
    profile = peers.write_profile(found)
    assert "| steps | 6000 | 18000 |" in profile and "| the steps by themselves | 4000 | 17000 |" in profile
    assert profile.endswith("| all of a plain numpy loop | 5000 |  |")


@pytest.mark.parametrize("name", peers.TABLES)
def test_pages_have_a_place_for_each_table_and_something_in_it(name: str) -> None:
    stands = read_between(ROOT / peers.TABLES[name].page, f"peers.py: {name}")
    assert stands.startswith("|") and stands.endswith(".")


@pytest.mark.parametrize("word", PARTS)
def test_a_part_is_replaced_for_a_while_wherever_it_was_imported_to(word: str) -> None:
    def used() -> list[object]:
        return [outbox_table.checksum, bodies.check_finite, *(vars(each) for each in classes)]

    classes = Session, Frequency, Counters, WritingMark, WaitingLog
    before = [dict(each) if isinstance(each, Mapping) else each for each in used()]
    with without(word):
        assert used() != before
    assert used() == before


def test_what_a_part_takes_is_the_median_of_differences_within_a_block() -> None:
    measured = iter([(5.0, 2.0), (4.0, 1.5), (9.0, 3.0), (7.0, 2.0), (6.0, 2.0), (6.5, 2.5)])
    rows = compare(lambda: dict(zip(("parent_cpu_ms", "child_cpu_ms"), next(measured), strict=True)), ["mark"], 3)
    assert rows.splitlines()[2:] == [
        "| everything | 6.00 | 2.00 |",
        "| mark: that a transaction is under way, for the next process | 1.00 | 0.50 |",
    ]
