"""Charts of a run's page: curves, and a number where there is one value only."""

from __future__ import annotations

from typing import Any

from aggregator.aggregator import errors_in_units
from aggregator.service.console.run_charts import draw_column, draw_density, draw_errors, list_charts
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.reports import errors_to_words
from edge_sdk.model.tasks.step_values import StepValues
from edge_sdk.model.tasks.task import OneClass, Values


def rows(*values: float | None) -> list[dict[str, float | None]]:
    return [{"round": n, "harmed": value, "density": value} for n, value in enumerate(values, 1)]


def test_a_value_of_each_round_is_a_curve() -> None:
    assert "<svg" in draw_column(rows(1.0, 2.0), {"harmed": "harmed"}, 1.0, "devices")


def test_what_is_known_when_the_run_is_over_is_a_number() -> None:
    found = draw_column(rows(None, None, 2.0), {"harmed": "harmed"}, 1.0, "devices")
    assert "<svg" not in found and "<b>2</b><span>devices, after round 3</span>" in found
    assert "<b>25.0%</b><span>share that is not zero, after round 2</span>" in draw_density(rows(None, 0.25))


SUMS = {"devices": 2.0, "global_mae:0": 0.2, "personal_mae:0": 0.1, "global_absolute:0": 9.0}
HOPS = dict.fromkeys(("device_up", "device_down", "hospital_up", "hospital_down"))


def lines(name: str, rounds: int = 3) -> list[dict[str, Any]]:
    """Lines of metrics as an aggregator writes them of a run of one value."""
    task = StepValues(("bpm",), (name,), (40.0,), (180.0,), 8)
    told = errors_in_units(task, SUMS, Run(id="r", method="fedavg"))
    return [{"kind": "round", "round": r + 1, "sums": SUMS, **told} for r in range(rounds)]


def test_a_run_of_values_has_errors_in_their_units_in_place_of_accuracies() -> None:
    found = lines("heart_rate")
    assert found[0]["errors"] == {"global": {"heart_rate": 7.0}, "personal": {"heart_rate": 3.5}}
    charts = list_charts(found, [], HOPS)
    assert charts[0].title == "Mean absolute error of heart_rate in bpm, held-out samples" and "<svg" in charts[0].svg
    assert not any("ccuracy" in chart.title for chart in charts)
    named = Run(id="r", method="fedavg", classes=("rate",))
    assert errors_in_units(Values(("bpm",)), SUMS, named)["errors"]["global"] == {"rate": 0.1}
    assert not errors_in_units(OneClass(2), SUMS, named) and not errors_in_units(Values(("",)), {"devices": 2.0}, named)
    assert not draw_errors([{"kind": "round", "round": 1, "sums": {"devices": 2.0}}])


def test_names_of_values_are_no_html() -> None:
    for rounds in (1, 3):
        told = [one | {"errors": {"global": one["errors"]["global"]}} for one in lines("<b>x", rounds)]
        svg = draw_errors(told)[0].svg
        assert "<b>x" not in svg and "&lt;b&gt;x" in svg


def test_the_log_of_a_run_has_errors_in_their_units() -> None:
    assert errors_to_words(lines("heart_rate")[0]) == " (global 7 bpm, personal 3.5 bpm)"
    two = {"errors": {"global": {"high": 6.0, "low": 1.25}}, "units": ["mmHg", ""]}
    assert errors_to_words(two) == " (global high 6 mmHg, global low 1.25)" and errors_to_words({"round": 1}) == ""


def test_a_chart_says_that_a_spread_is_drawn_where_there_is_one() -> None:
    """Hospitals of few devices send no squares, of which it is made."""
    sums = {"samples": 9.0, "devices": 3.0, "global_correct": 6.0, "global_accuracy": 2.0}
    for more, said in (({}, False), ({"global_accuracy_squared": 1.5}, True)):
        found = [{"kind": "round", "round": n, "sums": sums | more} for n in (1, 2)]
        assert ("shaded" in list_charts(found, [], HOPS)[0].note) is said
