"""Each promise of docs/wire.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parents[1]
DOCUMENT = HERE.parent / "docs" / "wire.md"


def test_every_promise_has_its_tests() -> None:
    rooms = ("wire", "delivery", "live", "methods", "nodes", "aggregator")
    files = [file for room in rooms for file in HERE.glob(f"{room}/**/test_*.py")]
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)}
    rows = re.findall(r"^\| P(\d+) \| .* \| (.+) \|$", DOCUMENT.read_text(), re.M)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    for number, tests in rows:
        named = re.findall(r"`(test_\w+)`", tests)
        assert named and set(named) <= there, f"P{number}: {set(named) - there}"
