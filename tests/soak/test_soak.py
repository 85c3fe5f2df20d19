"""The parts of a soak that say whether something is wrong; the soak itself is a command (`python -m tests.soak`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.atomic import LOCK
from edge_sdk.live.presence.directory import lock_file
from tests.soak.__main__ import wrong_rounds
from tests.soak.gauges import MB, Gauges, Look
from tests.soak.services import Services


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(tmp_path, tmp_path / "no.bundle", "mqtt://127.0.0.1:1883")


def test_there_are_three_hospitals_and_twelve_devices(services: Services) -> None:
    assert (len(services.tree), len(services.devices), len(services.names)) == (3, 12, 16)
    assert all((services.base / f"{name}.toml").exists() for name in services.names)


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ([(1, 12), (2, 12)], 0),
        ([(1, 12), (2, 11)], 0),
        ([(1, 12), (3, 12)], 1),
        ([(1, 12), (1, 12)], 1),
        ([(1, 12), (2, 13)], 1),
    ],
)
def test_rounds_that_are_wrong_are_said(services: Services, rounds: list[tuple[int, int]], said: int) -> None:
    line = '{{"number": {0}, "kind": "round", "round": {1}, "devices": {2}}}\n'
    lines = [line.format(i, round, devices) for i, (round, devices) in enumerate(rounds)]
    (services.base / "cloud" / "metrics.jsonl").write_text("".join(lines))
    assert len(wrong_rounds(services)) == said


@pytest.mark.parametrize(("field", "each"), [("memory", MB), ("disk", 2 * MB), ("lines", 1000)])
def test_what_grows_is_said(services: Services, field: str, each: int) -> None:
    flat, growing = Gauges(services), Gauges(services)
    for i in range(50):
        flat.looks["north"].append(Look(60.0 * i, 40 * MB, 5 * MB, 4, 20 * i))
        look = Look(60.0 * i, 40 * MB, 5 * MB, 4, 20 * i)
        setattr(look, field, getattr(look, field) + each * i * (i if field == "lines" else 1))
        growing.looks["north"].append(look)
    assert flat.grown() == [] and len(growing.grown()) == 1


def test_a_directory_is_held_while_a_process_has_its_lock(services: Services) -> None:
    assert not services.holds_directory("north")
    held = lock_file(services.base / "north" / LOCK)
    assert services.holds_directory("north")
    held.close()
    assert not services.holds_directory("north")
