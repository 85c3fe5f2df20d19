"""The page of faults that were found names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_fault_that_was_found_has_its_tests() -> None:
    files = TESTS.glob("**/test_*.py")
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)}
    rows = re.findall(r"^\| (?!what|-)(.*) \| (.+) \|$", (TESTS / "faults" / "FOUND.md").read_text(), re.M)
    assert len(rows) > 40
    for fault, tests in rows:
        named = re.findall(r"`(test_\w+)`", tests)
        assert named and set(named) <= there, f"{fault}: {set(named) - there}"
