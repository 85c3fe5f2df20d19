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


def test_every_promise_of_the_services_has_its_tests() -> None:
    text, files = DOCUMENT.read_text(), (HERE / "system").glob("test_*.py")
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)}
    promised = set(re.findall(r"^\| (P\d+) \|", text, re.M))
    rows = re.findall(r"^\| (P\d+(?:, P\d+)*) \| ((?:`test_\w+`(?:, )?)+) \|$", text, re.M)
    assert len(rows) > 8
    for promises, tests in rows:
        assert set(promises.split(", ")) <= promised
        named = re.findall(r"`(test_\w+)`", tests)
        assert set(named) <= there, f"{promises}: {set(named) - there}"
