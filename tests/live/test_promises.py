"""Each promise of docs/wire.md has tests that exist: tests/live/promises.toml names them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parents[1]
PAGE = (HERE.parent / "docs" / "wire.md").read_text()
HELD = tomllib.loads((HERE / "live" / "promises.toml").read_text())
ROOMS = ("wire", "delivery", "live", "methods", "nodes", "aggregator")


def found_in(*folders: str) -> set[str]:
    files = [file for folder in folders for file in HERE.glob(f"{folder}/**/test_*.py")]
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)}


def test_the_page_and_the_table_of_tests_have_the_same_promises() -> None:
    promised = re.findall(r"^\| (P\d+) \|", PAGE, re.M)
    assert promised == [f"P{number}" for number in range(1, len(promised) + 1)]
    assert promised == [*HELD["runtime"]]


def test_every_promise_has_its_tests() -> None:
    there = found_in(*ROOMS)
    assert not {promise: missing for promise, named in HELD["runtime"].items() if (missing := {*named} - there)}
    assert all(HELD["runtime"].values())


def test_every_promise_of_the_services_has_its_tests() -> None:
    assert {*HELD["services"]} <= found_in("system")
    assert {promise for named in HELD["services"].values() for promise in named} <= {*HELD["runtime"]}
    assert len(HELD["services"]) > 8
