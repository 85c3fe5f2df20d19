"""Days in virtual time: rounds wait for nights and go on over several; deadlines, joules and links as they are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.emulation import parse_boards
from edge_sdk.nodes.policy.budget import TrainingBudget
from edge_sdk.replay.days import Days, days_lines, play_days
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.traces.synth import write_traces

WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
NIGHT = TrainingBudget(hours=("22:00-06:00",), calm=0.0)
BOARDS = parse_boards("raspberry-pi-zero-2w=0.5,raspberry-pi-5=1")
DAY, HOUR = 86400, 3600


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("days") / "traces"
    write_traces(folder, devices=2, seed=3, minutes=1)
    return folder


def play(traces: Path, out: Path, budget: TrainingBudget, **more: Any) -> dict[str, Any]:
    """Two devices with a hospital of their own each, two rounds. A step takes a minute or two."""
    settings = {"local_epochs": 4, "batch": 8}
    link = more.pop("link", {})
    job = Replay(
        data=traces,
        out=out,
        hospitals=2,
        method="fedavg",
        rounds=2,
        seed=3,
        bundle=(WRIST,),
        settings=settings,
        boards=BOARDS,
        link=link,
        options={"window": 64, "stride": 64, "validation": 0.0},
    )
    given = {"days": 30, "step_seconds": 200.0, **more}
    return play_days(Days(job=job, budget=budget, **given), lambda text: None)


def rounds(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["rounds"] if row["kind"] == "round"]


def test_nights_change_when_and_nothing_else(traces: Path, tmp_path: Path) -> None:
    always = play(traces, tmp_path / "always", TrainingBudget(calm=0.0))
    nights = play(traces, tmp_path / "nights", NIGHT)
    assert always["finished"] and nights["finished"]
    assert [row["devices"] for row in rounds(nights)] == [2, 2]
    same = ("round", "devices", "global")
    assert [[row[key] for key in same] for row in rounds(always)] == [
        [row[key] for key in same] for row in rounds(nights)
    ]
    assert always["accuracy"] == nights["accuracy"]
    zero, five = nights["boards"]["rows"]
    assert [zero[key] for key in ("board", "nights", "late")] == ["raspberry-pi-zero-2w", zero["nights"], 0]
    assert zero["nights"] >= 2 and nights["days"] > always["days"]  # a round did not fit into one night
    assert zero["hours"] == pytest.approx(always["boards"]["rows"][0]["hours"])
    assert 0.3 < zero["willing"] < 0.5
    assert zero["joules"] == pytest.approx(zero["hours"] * HOUR * (0.6 + (2.1 - 0.6) / 4))
    assert five["hours"] < zero["hours"] and "raspberry-pi-5" in days_lines(nights)


def test_a_deadline_ends_rounds_without_who_is_slow_and_nothing_counts_twice(traces: Path, tmp_path: Path) -> None:
    found = play(traces, tmp_path / "out", TrainingBudget(calm=0.0), deadline=2.0 * HOUR)
    counted = sum(row["devices"] for row in rounds(found))
    answers = sum(row["answers"] * row["devices"] for row in found["boards"]["rows"])
    late = sum(row["late"] * row["devices"] for row in found["boards"]["rows"])
    evaluated = found["rounds"][-1]["devices"]
    assert late + sum(row["given_up"] for row in found["boards"]["rows"]) > 0
    assert counted + late + evaluated == answers and counted < 4


def test_joules_of_a_day_and_a_slow_link(traces: Path, tmp_path: Path) -> None:
    link = {"rate": 100.0, "latency": 1.0}
    found = play(traces, tmp_path / "out", TrainingBudget(joules=5000.0, watts=1.0, calm=0.0), link=link)
    for row in found["boards"]["rows"]:
        assert row["joules"] <= 5100.0 * (int(found["days"]) + 1) and row["joules"] == pytest.approx(
            row["hours"] * HOUR
        )
    first = rounds(found)[0]["at"]
    assert first > 2 * 310_000 / 100  # the model went down and up at 100 bytes a second


def test_what_cannot_be_played_in_virtual_time(traces: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--days 0"):
        play(traces, tmp_path / "a", NIGHT, days=0)
    with pytest.raises(UsageError, match="--link loss: in virtual time"):
        play(traces, tmp_path / "b", NIGHT, link={"loss": 0.1})
    with pytest.raises(UsageError, match="--link colour: there are rate"):
        play(traces, tmp_path / "c", NIGHT, link={"colour": 0.1})
