"""The tables of benchmarks/peers.py: each page has its place for them, and they say what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from benchmarks.trend_table import read_between

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
        "stages": ["| step | us |", "|---|---|", "| all | 3 |"],
        "profile": {"shares": {"steps of training": 0.6, "checks": 0.4}},
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
    assert "| steps of training | 60% | 6000 |" in peers.write_profile(found)


@pytest.mark.parametrize("name", peers.TABLES)
def test_pages_have_the_tables(found: peers.Found, name: str) -> None:
    page, write = peers.TABLES[name]
    stands = read_between(ROOT / page, f"peers.py: {name}")
    assert stands.splitlines()[0] == write(found).splitlines()[0] or name == "stages"
    assert stands.endswith(".") and " cores, Python " in stands.splitlines()[-1]
