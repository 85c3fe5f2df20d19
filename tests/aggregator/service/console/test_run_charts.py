"""Charts of a run's page: curves, and a number where there is one value only."""

from __future__ import annotations

from aggregator.service.console.run_charts import draw_column, draw_density


def rows(*values: float | None) -> list[dict[str, float | None]]:
    return [{"round": n, "harmed": value, "density": value} for n, value in enumerate(values, 1)]


def test_a_value_of_each_round_is_a_curve() -> None:
    assert "<svg" in draw_column(rows(1.0, 2.0), {"harmed": "harmed"}, 1.0, "devices")


def test_what_is_known_when_the_run_is_over_is_a_number() -> None:
    found = draw_column(rows(None, None, 2.0), {"harmed": "harmed"}, 1.0, "devices")
    assert "<svg" not in found and "<b>2</b><span>devices, after round 3</span>" in found
    assert "<b>25.0%</b><span>share that is not zero, after round 2</span>" in draw_density(rows(None, 0.25))
