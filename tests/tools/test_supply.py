"""What is installed is pinned, known by its hashes, and under licences that are listed."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

packaging = pytest.importorskip("packaging.requirements", reason="reads what pyproject.toml asks for")

ROOT = Path(__file__).parents[2]
LOCKS = {"device": "", "aggregator": "aggregator", "aggregator-cuda": "aggregator", "development": "dev"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENTRY = re.compile(r"^([a-z0-9][\w.-]*)==(\S+)[^\n]*\n((?:    --hash=sha256:[0-9a-f]{64}[^\n]*\n)*)", re.MULTILINE)


def text_of(lock: str) -> str:
    return (ROOT / "requirements" / f"{lock}.txt").read_text()


def pins(lock: str) -> dict[str, list[str]]:
    """Name -> versions; some differ between versions of Python."""
    found: dict[str, list[str]] = {}
    for name, version, _ in ENTRY.findall(text_of(lock)):
        found.setdefault(name, []).append(version)
    return found


def asked_for(extra: str) -> list[str]:
    """What pyproject.toml asks for, with one extra and those that it names."""
    found = list(PROJECT["dependencies"]) if not extra else list(PROJECT["optional-dependencies"][extra])
    own = re.compile(r"auscult\[(.*)\]")
    named = [name for need in found if (match := own.fullmatch(need)) for name in match[1].split(",")]
    return [need for need in found if not own.fullmatch(need)] + [n for name in named for n in asked_for(name)]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_with_hashes(lock: str) -> None:
    entries = ENTRY.findall(text_of(lock))
    lines = [line for line in text_of(lock).splitlines() if line and not line.startswith((" ", "#"))]
    assert len(entries) == len(lines) and len(entries) >= 8
    assert not [name for name, _, hashes in entries if "--hash=sha256:" not in hashes]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_that_of_the_project(lock: str) -> None:
    locked = pins(lock)
    for need in {*asked_for(""), *asked_for(LOCKS[lock])}:
        one = packaging.Requirement(need)
        versions = locked.get(one.name)
        assert versions, f"requirements/{lock}.txt has no {one.name}: make lock"
        assert all(one.specifier.contains(version) for version in versions), f"{need}: {lock} has {versions}: make lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_says_from_where(lock: str) -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links \S*/|--trusted-host", text_of(lock))


def test_a_device_is_given_no_torch_and_a_cpu_no_cuda() -> None:
    assert "torch" not in pins("device") and len(pins("device")) <= 10
    assert pins("aggregator")["torch"][0].endswith("+cpu")
    assert not [name for name in pins("aggregator") if name.startswith("nvidia")]
    assert [name for name in pins("aggregator-cuda") if name.startswith("nvidia")]


def test_licences_are_listed() -> None:
    assert PROJECT["license"] == "Apache-2.0" and PROJECT["license-files"] == ["LICENSE"]
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    page = (ROOT / "requirements" / "LICENCES.md").read_text()
    rows = {row[0]: row[1] for row in re.findall(r"^\| ([\w.-]+) \| (.+?) \|", page, re.MULTILINE)}
    missing = {*pins("device"), *pins("aggregator")} - {*rows}
    assert not missing, f"make licences: {missing}"
    assert not [name for name, licence in rows.items() if licence == "not said"]


def test_the_tests_that_the_promises_name_are_there() -> None:
    named = {*re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text())}
    there = {n for path in (ROOT / "tests").rglob("*.py") for n in re.findall(r"def (test_\w+)", path.read_text())}
    assert len(named) > 10 and not named - there


def test_every_link_of_the_page_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)", (ROOT / "SECURITY.md").read_text()):
        assert (ROOT / link).exists(), link


def test_trials_of_the_range_take_the_ends_that_are_declared() -> None:
    """`requirements/ranges.py` pins what stands behind >=, of each package of a device."""
    found = runpy.run_path(str(ROOT / "requirements" / "ranges.py"))
    asked = [packaging.Requirement(need) for need in PROJECT["dependencies"]]
    assert found["needs"]().keys() == {need.name for need in asked}
    assert all(need.specifier.contains(found["needs"]()[need.name]) for need in asked)
    files = [line for line in (ROOT / "tests" / "fast.txt").read_text().split() if line.split("/")[1] in found["ROOMS"]]
    assert len(files) > 100
