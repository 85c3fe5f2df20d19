"""Days in virtual time: rounds wait for nights and go on over several; deadlines, joules and links as they are said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.cli import main
from edge_sdk.data.samples import store_samples
from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.emulation import parse_boards
from edge_sdk.model.tasks.task import FORECAST, RECONSTRUCTION, STEP_VALUES, STEPS
from edge_sdk.nodes.policy.budget import TrainingBudget
from edge_sdk.replay.days import Days, days_lines, play_days
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.traces.falls import write_fall_traces
from edge_sdk.replay.traces.heart import write_heart_traces
from edge_sdk.replay.traces.rhythms import write_rhythm_traces
from edge_sdk.replay.traces.sleep import write_sleep_traces
from edge_sdk.replay.traces.synth import write_traces
from tests import step_values, steps
from tests.layers import save_bundle
from tests.reconstructions import WAVES

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


# Other tasks ----------------------------------------------------------------------------------------------------
FALLS = ("--label", "event", "--abnormal", "fall,tremor", "--window", "32")
OTHER_TASKS = {
    "reconstruction": (write_fall_traces, 9, FALLS, "errors", "window"),
    "forecast": (write_fall_traces, 9, FALLS, "errors", "window"),
    "steps": (write_sleep_traces, 700, ("--label", "stage", "--window", "96"), "macro_f1", ""),
    "labels": (write_rhythm_traces, 4, ("--labels", "all", "--label", "labels", "--window", "128"), "macro_f1", ""),
    "step_values": (write_heart_traces, 4, ("--target", "heart_rate", "--window", "64"), "errors", "heart_rate"),
    "value": (write_heart_traces, 4, ("--target", "heart_rate", "--window", "64"), "errors", "heart_rate"),
}
"""Kind of task -> what writes traces, minutes of each, what is asked for, and under which key a score is, of what."""


def check_scores(data: Path, out: Path, asked: tuple[str, ...], task: str, key: str, of: str) -> None:
    """Plays two rounds, which have scores of this task under `key`. `of`: of values and windows, which."""
    budget = out.with_suffix(".toml")
    budget.write_text("[budget]\ncalm = 0.0\n")
    given = ("--hospitals", "1", "--method", "fedavg", "--rounds", "2", "--days", "3", "--budget", str(budget))
    assert main(["replay", str(data), *asked, *given, "--plain", "--out", str(out)]) == 0
    found = json.loads((out / "result.json").read_text())
    assert found["finished"] and found["task"] == task
    rounds, last = found["rounds"][:-1], found["rounds"][-1]
    assert [(row["kind"], row["round"]) for row in rounds] == [("round", 1), ("round", 2)]
    for row in (*rounds, last, found):
        score = row[key]["global"]
        assert 0 < (score[of] if of else score) < 100
    assert found[key]["global"] == last[key]["global"] and "accuracy" not in found


def test_days_of_windows_and_of_steps_by_what_a_bundle_is_for(tmp_path: Path) -> None:
    """Nothing but the bundle says the task; days change when rounds are, whatever a model predicts."""
    nn = pytest.importorskip("torch", reason="a network is compiled").nn
    net = nn.Sequential(nn.Flatten(), nn.Linear(96, 8), nn.Linear(8, 96), nn.Unflatten(1, (3, 32)))
    flat = save_bundle(tmp_path / "flat.bundle", net, "flat", (3, 32), "mean_squared_error", WAVES)
    write_fall_traces(tmp_path / "falls", devices=2, minutes=9)
    asked = ("--bundle", str(flat), *FALLS)
    check_scores(tmp_path / "falls", tmp_path / "out", asked, "reconstruction", "errors", "window")
    bundle = steps.compile_steps(tmp_path / "steps.bundle")
    for k in range(2):
        store_samples(tmp_path / "steps" / f"d{k}.npz", steps.samples(30, k), steps.samples(20, k + 5))
    check_scores(tmp_path / "steps", tmp_path / "own", ("--bundle", str(bundle)), "steps", "macro_f1", "")
    bundle = step_values.compile_step_values(tmp_path / "curves.bundle")
    for k in range(2):
        store_samples(tmp_path / "curves" / f"d{k}.npz", step_values.samples(30, k), step_values.samples(20, k + 5))
    check_scores(tmp_path / "curves", tmp_path / "curve", ("--bundle", str(bundle)), "step_values", "errors", "rate")


@pytest.mark.long
@pytest.mark.parametrize("task", OTHER_TASKS)
def test_days_of_other_tasks_have_their_scores(task: str, tmp_path: Path) -> None:
    """With the network that such data get."""
    pytest.importorskip("torch", reason="a network is compiled")
    write, minutes, asked, key, of = OTHER_TASKS[task]
    write(tmp_path / "traces", devices=2, minutes=minutes)
    asked = (*asked, "--task", task) if task in (STEPS, STEP_VALUES, RECONSTRUCTION, FORECAST) else asked
    check_scores(tmp_path / "traces", tmp_path / "out", asked, task, key, of)
