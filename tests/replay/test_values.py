"""Replays of values: columns and ranges, what is refused before a process starts, errors, their tables, pulses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.task import Values
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.neighbours.output_models import look_for_output_models
from edge_sdk.replay.traces.heart import RATE as HZ
from edge_sdk.replay.traces.heart import write_heart_traces
from edge_sdk.replay.values import scores, tables
from edge_sdk.replay.values.asked import asked_values, widened
from tests.layers import check_refused, check_same_bytes, write_with_bundle
from tests.values import BOTH, RATE, draw

pytest.importorskip("torch", reason="a bundle is compiled here")


@pytest.fixture(scope="module")
def heart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of generated traces, and in it a bundle for windows of 64 samples."""
    folder = tmp_path_factory.mktemp("heart") / "traces"
    return write_with_bundle(folder, write_heart_traces, 2, (4, 64), "huber", RATE)


# The generator --------------------------------------------------------------------------------------------------
def test_a_pulse_beats_as_often_as_its_column_says(tmp_path: Path) -> None:
    """At rest, where nothing moves, the strongest frequency of ten seconds of pulse is the heart rate."""
    write_heart_traces(tmp_path, devices=4, minutes=6)
    found = list[float]()
    for file in sorted(tmp_path.glob("*.csv")):
        trace = read_trace(file, label=None)
        assert trace.channels == ("ppg", "ax", "ay", "az", "heart_rate") and trace.rate_hz == pytest.approx(
            HZ, rel=1e-3
        )
        values = {name: trace.values[:, n] for n, name in enumerate(trace.channels)}
        assert values["heart_rate"].min() > 40 and values["heart_rate"].max() < 200
        for at in range(0, len(trace.time) - 320, 320):
            part = {name: column[at : at + 320] for name, column in values.items()}
            if part["ax"].std() < 0.06 and np.ptp(part["heart_rate"]) < 6:
                power = np.abs(np.fft.rfft((part["ppg"] - part["ppg"].mean()) * np.hanning(320), 3200)) ** 2
                rates = 60 * np.fft.rfftfreq(3200, 1 / HZ)
                power[(rates < 40) | (rates > 200)] = 0
                found.append(abs(float(rates[power.argmax()]) - float(part["heart_rate"].mean())))
    assert len(found) > 10 and np.median(found) < 4


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    check_same_bytes(write_heart_traces, tmp_path, "heart-01.csv")


# What is asked for ----------------------------------------------------------------------------------------------
def test_a_cohort_of_values(heart: Path) -> None:
    found = form_cohort(str(heart), 2, 0, {"target": "heart_rate", "unit": "bpm", "range": ("40,180",)})
    assert found.classes == ("heart_rate",) and found.shapes == {"x": (4, 64)} and "heart_rate (bpm" in found.summary
    assert isinstance(found.task, Values) and (found.task.low, found.task.high) == ((40.0,), (180.0,))
    guessed = form_cohort(str(heart), 2, 0, {"target": "heart_rate"}).task
    assert isinstance(guessed, Values) and 40 < guessed.low[0] < guessed.high[0] < 200 and guessed.low[0] % 1 == 0


def test_a_range_is_about_what_the_data_have() -> None:
    assert widened(61.2, 168.9) == (60.0, 170.0) and widened(0.12, 0.13) == (0.12, 0.13) and widened(5, 5) == (4, 6)
    several = asked_values("a,b", "bpm,%", (), np.array([[1.0, 10.0], [2.0, 30.0]]))
    assert several.units == ("bpm", "%") and several.low == (1.0, 10.0)


def test_a_range_that_nobody_states_knows_nothing_of_the_test_part(heart: Path, tmp_path: Path) -> None:
    """Devices train between its ends: a range of all values would tell the training what it is judged by."""
    x, y = np.ones((4, 3), np.float32), np.array([50.0, 60, 70, 80])
    parts = {"x": x, "labels": y, "validation_x": x[:1], "validation_labels": [90.0]}
    np.savez(tmp_path / "ann.npz", **parts, held_out_x=x, held_out_labels=[10.0, 20, 300, 400])
    task = form_cohort(str(tmp_path), 1, 0, {}).task
    assert isinstance(task, Values) and (task.low, task.high) == ((50.0,), (90.0,))
    steps = form_cohort(str(steps_of_two(tmp_path / "steps")), 1, 0, {"task": "step_values", "steps": 2}).task
    assert isinstance(steps, Values) and (steps.low, steps.high) == ((50.0,), (80.0,))


@pytest.mark.parametrize("more", [{}, {"task": "step_values", "steps": 4}])
def test_nor_does_that_of_recordings(heart: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    """The last rows of each trace, which are held out, are made larger."""
    for file in heart.glob("*.csv"):
        head, *rows = file.read_text().splitlines()
        at, later = head.split(",").index("heart_rate"), int(0.95 * len(rows))
        cells = [row.split(",") for row in rows]
        for row in cells[later:]:
            row[at] = "900"
        (tmp_path / file.name).write_text("\n".join([head, *map(",".join, cells)]) + "\n")
    asked = {"target": "heart_rate", **more}
    before, after = (form_cohort(str(folder), 2, 0, asked).task for folder in (heart, tmp_path))
    assert isinstance(before, Values) and isinstance(after, Values)
    assert (before.low, before.high) == (after.low, after.high)


def steps_of_two(folder: Path) -> Path:
    """A device whose windows have a value at each of two steps."""
    folder.mkdir()
    x, y = np.ones((2, 1, 8), np.float32), np.array([[50.0, 60], [70, 80]])
    np.savez(folder / "ann.npz", x=x, labels=y, held_out_x=x, held_out_labels=10 * y)
    return folder


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--unit", "Hz", "--target", "heart_rate"), "--unit Hz: bundle flat predicts heart_rate (bpm, 40 to 180)"),
        (("--target", "heart_rate,ax"), "--target heart_rate,ax: bundle flat predicts"),
        (("--target", "hart"), "no column of numbers 'hart' to be predicted; there are ppg"),
        ((), "a column of numbers is predicted with --target NAME"),
        (("--unit", "bpm"), "name the columns that have them with --target"),
        (("--target", "heart_rate", "--range", "40"), "--range 40: expected two numbers"),
        (("--target", "heart_rate", "--labelled", "5", "--ask", "2"), "questions are for the names of classes"),
        (
            ("--target", "heart_rate", "--settle", "label_times=1"),
            "task value: run.settle: nothing says how sure a device is",
        ),
        (("--target", "heart_rate", "--bits", "4", "--secret"), "task value: secret sums"),
        (("--target", "heart_rate", "--method", "fedal", "--public", "32"), "task value: method fedal"),
    ],
)
def test_what_does_not_fit_is_said_before_a_process_starts(
    heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], words: str
) -> None:
    check_refused(heart, tmp_path / "out", more, words, capsys)


# Errors ---------------------------------------------------------------------------------------------------------
RUN = Run(id="r", method="fedavg", classes=("rate", "level"))


def device(name: str, scale: float, newcomer: bool = False) -> dict[str, Any]:
    def sums(error: float) -> dict[str, float]:
        return {
            "samples": 10.0,
            **{f"{kind}:{k}": 10 * error for k in (0, 1) for kind in ("absolute", "error")},
            **{f"squared:{k}": 10 * error**2 for k in (0, 1)},
        }

    test = {"mean": sums(0.5), "local": sums(0.3 * scale), "global": sums(0.2 * scale), "personal": sums(0.1 * scale)}
    kept = {"sums": {"test": test}, "hospital": "h", "samples": 5, "held_out": 10, "newcomer": newcomer}
    return {"device": name, **kept}


def result_of() -> dict[str, Any]:
    devices = [device("a", 1), device("b", 2), device("c", 1.5), device("new", 9, newcomer=True)]
    more = {d["device"]: {"alone": d["sums"]["test"]["local"]} for d in devices}
    found = scores.score_values(devices, RUN, BOTH, more)
    told = {
        "state": "computed",
        "on": "features",
        "chosen": "trees",
        "devices": 3,
        "of": 3,
        "pooled": {"chosen": "trees"},
    }
    return {"values": scores.summarise_values(found, RUN, BOTH), "devices": found, "neighbours": told}


def test_means_over_devices_are_in_each_values_unit() -> None:
    found = result_of()["values"]
    assert found["task"]["names"] == ["rate", "level"] and found["devices"] == 3
    assert found["models"]["personalised"]["rate"]["mae"] == pytest.approx(70 * 0.1 * 1.5)
    assert found["models"]["personalised"]["level"]["rmse"] == pytest.approx(5 * 0.1 * 1.5)
    assert found["models"]["global"]["rate"]["bias"] == pytest.approx(70 * 0.2 * 1.5)
    assert found["newcomers"]["personalised"]["rate"]["mae"] == pytest.approx(63)
    against = found["against"]["alone"]["personalised"]["rate"]
    assert against["mean"] == pytest.approx(-70 * 0.2 * 1.5) and against["high"] < 0 and against["worse"] == 0


def test_tables_say_the_unit_and_who_wins() -> None:
    result = result_of()
    assert tables.verdict(result).startswith("rate: Joining pays: the personal models are off by 10.50 bpm, trees on")
    shown = tables.device_table(result)
    assert "mean absolute error of rate in bpm" in shown and "mean absolute error of level, test samples" in shown
    assert "new *" in shown and "* joined the finished run, and is not in the mean" in shown
    assert "mean of the training targets" in tables.model_table(result)


def test_the_neighbours_find_what_can_be_found() -> None:
    pytest.importorskip("sklearn", reason="neighbours are of scikit-learn")
    parts = {name: tuple((x, RATE.scaled(y[:, None])) for x, y in (draw(80, k), draw(40, k + 9), draw(200, k + 18)))
             for k, name in enumerate("abc")}  # fmt: skip
    written = [device(name, 1) | {"sums": {"test": {}}} for name in parts]
    told, rows = look_for_output_models(RATE, lambda name: parts[name], written, 40, 0, lambda text: None)  # type: ignore[arg-type, return-value]
    assert told["chosen"] == "linear" and told["samples"] == 120
    for found in rows.values():
        for name in ("alone", "alone_linear", "pooled"):
            assert 70 * np.sqrt(found[name]["squared:0"] / 200) == pytest.approx(2, abs=0.4), "the noise of the targets"
    assert look_for_output_models(RATE, lambda name: parts[name], written, 0, 0, print)[0] == {"state": "left out"}  # type: ignore[arg-type, return-value]


def test_lines_of_metrics_get_errors_in_units() -> None:
    line = {"kind": "round", "round": 1, "sums": {"devices": 2.0, "global_mae:0": 0.2, "global_mae:1": 0.4}}
    assert scores.with_errors(line, RUN, BOTH)["errors"] == {"global": {"rate": pytest.approx(7), "level": 1.0}}
    assert scores.with_errors(line, RUN, None) is line


def test_a_neighbour_of_classes_and_one_of_values_do_not_mix() -> None:
    with pytest.raises(UsageError, match="--target a,b: task value"):
        asked_values("a,b", "x,y,z", ("1,2", "3,4"), np.zeros((1, 2)))
