"""The report of several seeds as one HTML page: means and spreads over seeds, for the fleet and for each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from edge_sdk.replay.anomalies import page as anomaly_page
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.metrics.scores import ALONE
from edge_sdk.replay.metrics.statistics import shares_in, title_in
from edge_sdk.replay.reports import charts, rows, sections
from edge_sdk.replay.reports.page import COLOURS, KINDS, accuracy_curves, as_json, capital, part_of_rounds, wrap
from edge_sdk.replay.reports.rows import Whisker, over_seeds, spread
from edge_sdk.replay.reports.terminal import Result
from edge_sdk.replay.values.page_of_runs import seeds_sections

Curves = Mapping[str, Sequence[tuple[float, float]]]


def make_seeds_page(found: Result) -> str:
    """The whole page.

    Args:
        found: what `replay_seeds` returns, with the results of all seeds in "runs".
    """
    runs: Sequence[Result] = found["runs"]
    seeds = ", ".join(map(str, found["seeds"]))
    title = escape(f"{found['method']}: {len(runs)} seeds, {len(runs[0]['devices'])} devices, {found['rounds']} rounds")
    lead = f"seeds {seeds}, data {found['data']['name']}, {found['seconds']:.0f} s each; ± is the deviation over seeds"
    parts = [
        sections.verdict_section(found),
        f"<h1>{title}</h1><p class='lead'>{escape(lead)}</p>",
        scores_section(found, runs),
        sections.circumstances_section({**runs[0], **found}),
        links(found["seeds"]),
        as_json({key: value for key, value in found.items() if key != "runs"}),
    ]
    return wrap(title, parts)


def scores_section(found: Result, runs: Sequence[Result]) -> str:
    """Tables and charts, by what the models predict."""
    if "values" in found:
        return seeds_sections(found, runs)
    return anomaly_page.models_section(found) if ANOMALIES in found else share_sections(found, runs)


def share_sections(found: Result, runs: Sequence[Result]) -> str:
    """The table of models, curves and devices: accuracies, or macro-F1 of sets of labels."""
    score = capital(title_in(runs[0]))
    parts = [
        sections.statistics_section(found),
        f"<h2>{score} on {part_of_rounds(runs[0])} samples, mean and range over seeds</h2>{curves(runs)}",
        f"<h2>{score} per device</h2><p class='lead'>On test samples, mean and range over seeds.</p>",
        per_device_chart(runs),
        differences(runs),
    ]
    return "".join(parts)


def curves(runs: Sequence[Result]) -> str:
    """The mean over seeds of each model's score, and the range of them behind it."""
    found = mean_curves(runs)
    means = {name: [(x, i.value) for x, i in points] for name, points in found.items()}
    bands = {name: [(x, i.low, i.high) for x, i in points] for name, points in found.items()}
    return charts.lines(means, "round", title_in(runs[0]), percent=True, colours=COLOURS, bands=bands)


def mean_curves(runs: Sequence[Result]) -> dict[str, list[tuple[float, Whisker]]]:
    """Model -> (round, mean and range over seeds of its accuracy)."""
    every = [accuracy_curves(run) for run in runs]
    return {name: over_seeds([one[name] for one in every if name in one]) for name in every[0]}


def by_device(runs: Sequence[Result], *models: str) -> dict[str, list[Mapping[str, float]]]:
    """Device -> its accuracies in each seed in which it has all of these models."""
    found: dict[str, list[Mapping[str, float]]] = {}
    for d in (d for run in runs for d in run["devices"]):
        if {*models} <= {*shares_in(d)}:
            found.setdefault(d["device"], []).append(shares_in(d))
    return found


def per_device_chart(runs: Sequence[Result]) -> str:
    """A row for each device, with each of its models."""
    names = list(dict.fromkeys(d["device"] for run in runs for d in run["devices"]))
    nothing = Whisker(float("nan"), 0.0, 0.0)
    series: dict[str, list[Whisker]] = {}
    for kind, title in KINDS.items():
        if having := by_device(runs, kind):
            series[title] = [spread([a[kind] for a in having[n]]) if n in having else nothing for n in names]
    return rows.intervals(names, series, title_in(runs[0]), percent=True, colours=COLOURS)


def differences(runs: Sequence[Result]) -> str:
    """What each device gains over training alone, in each seed by the same samples."""
    other = sections.yardstick_of(shares_in(d) for run in runs for d in run["devices"])
    having = by_device(runs, other, "personalised")
    if not having:
        return ""
    found = {name: spread([100 * (a["personalised"] - a[other]) for a in some]) for name, some in having.items()}
    than = "alone, at best" if other == ALONE else "local"
    how = f"Personalised minus {than} on test samples, percentage points, mean and range over seeds"
    return sections.differences_part(found, how)


def links(seeds: Sequence[Any]) -> str:
    """Links to the reports of the single seeds, which lie in folders beside this one."""
    found = ", ".join(f"<a href='seed-{seed}/report.html'>seed {seed}</a>" for seed in seeds)
    return f"<p class='lead'>Each by itself: {found}.</p>"
