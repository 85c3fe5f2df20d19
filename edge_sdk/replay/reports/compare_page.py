"""Several replays in one HTML page: metrics, curves and devices of each, and paired differences to the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from edge_sdk.replay.comparison import FinishedRun, against_of, compare_runs, unlike_lines, verdict_lines
from edge_sdk.replay.metrics.scores import POOLED, REFERENCES, members
from edge_sdk.replay.metrics.statistics import title_in
from edge_sdk.replay.over_seeds import device_means, paired
from edge_sdk.replay.reports import charts, rows, sections, seeds_page
from edge_sdk.replay.reports.page import KINDS, wrap
from edge_sdk.replay.reports.rows import Whisker, run_colours, spread
from edge_sdk.replay.reports.tables import TITLES, columns_of, interval, with_spread
from edge_sdk.replay.values.page_of_runs import comparison_sections

SHARED = (*REFERENCES, POOLED)
"""Models that do not depend on the method, so that their devices are drawn for no run."""


def make_compare_page(runs: Sequence[FinishedRun], group: str = "all") -> str:
    """The whole page. `group`: of devices, for the tables."""
    found = compare_runs(runs, group)
    title = escape(f"{len(runs)} runs: {', '.join(run.name for run in runs)}")
    lead = "Means over devices and, where a run has several, over seeds (± deviation)."
    parts = [
        *(f"<p class='verdict'><b>{escape(line)}</b></p>" for line in verdict_lines(found)),
        f"<h1>{title}</h1><p class='lead'>{lead}</p>",
        *run_sections(found, runs, [kind for kind in KINDS if kind not in SHARED], group),
        *(circumstances(run) for run in runs),
    ]
    return wrap(title, parts)


def run_sections(
    found: Mapping[str, Any], runs: Sequence[FinishedRun], kinds: Sequence[str], group: str = "all"
) -> list[str]:
    """Tables of all runs and of their differences, and a chart of each model; of values the same with errors."""
    if "task" in found:
        unlike = "".join(f"<p>{escape(line)}</p>" for line in unlike_lines(found))
        return [comparison_sections(found, runs), unlike]
    charted = (model_section(runs, kind, group) for kind in kinds)
    return [metrics_table(found), differences_table(found), *charted]


# Tables ---------------------------------------------------------------------------------------------------------
def metrics_table(found: Mapping[str, Any]) -> str:
    first, *others = columns_of(m for run in found["runs"] for m in run["models"].values()).values()
    head = ["run", "model", first, "against alone, points [95 %]", "worse by > 1 point", *others]
    head += ["MB", "method", "seeds"]  # what matters first: a phone shows three columns
    lines = [metrics_row(run, model) for run in found["runs"] for model in run["models"]]
    return f"<h2>Test samples</h2>{sections.table(head, lines)}"


def metrics_row(run: Mapping[str, Any], model: str) -> list[object]:
    metrics, gain = run["models"][model], against_of(run).get(model)
    harmed = "" if gain is None else f"{round(gain['worse_by_a_point'] * gain['devices'])} of {gain['devices']}"
    accuracy, *others = (with_spread(metrics.get(key)) for key in columns_of([metrics]))
    head: list[object] = [run["name"], run["titles"].get(model, model), accuracy, interval(gain), harmed]
    total = sum(run["bytes"].values()) / 1e6
    return [*head, *others, f"{total:.1f}", run["method"], len(run["seeds"])]


def differences_table(found: Mapping[str, Any]) -> str:
    """Each run's paired differences to the first, over the devices that both have."""
    lines = [
        [run, TITLES.get(model, model), interval(d), f"{round(d['worse_by_a_point'] * d['devices'])} of {d['devices']}"]
        for run, models in found["differences"].items()
        for model, d in models.items()
    ]
    unlike = "".join(f"<p>{escape(line)}</p>" for line in unlike_lines(found))
    if not lines:
        return unlike
    head = ["run", "model", "points [95 %]", "devices worse by > 1 point"]
    table = sections.table(head, lines)
    return f"<h2>Against {escape(found['runs'][0]['name'])}, paired over devices</h2>{table}{unlike}"


# Charts ---------------------------------------------------------------------------------------------------------
def model_section(runs: Sequence[FinishedRun], kind: str, group: str) -> str:
    """Curves and devices of one model in all runs that have it, and what devices gain over the first of these."""
    having = [run for run in runs if accuracies(run, kind)]
    if not having:
        return ""
    colours, title = run_colours(run.name for run in runs), KINDS[kind]
    means, bands = curves(having, title)
    score = title_in(having[0].results[0])
    drawn = charts.lines(means, "round", score, percent=True, colours=colours, bands=bands) if means else ""
    head = f"<h2>{title[0].upper()}{title[1:]}: {score} in rounds, and per device on test samples</h2>"
    return head + drawn + per_device(having, kind, colours) + "".join(gains(having, kind, group))


def accuracies(run: FinishedRun, kind: str, group: str = "") -> dict[str, float]:
    """Device -> accuracy of its model, mean over seeds. `group`: of devices; "": all that there are."""
    devices = [members(r["devices"], group) if group else r["devices"] for r in run.results]
    return device_means(devices, kind)


def curves(runs: Sequence[FinishedRun], title: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run -> mean over seeds of a model's curve; and their range."""
    found = {run.name: seeds_page.mean_curves(run.results).get(title, []) for run in runs}
    means = {name: [(x, i.value) for x, i in points] for name, points in found.items() if points}
    return means, {name: [(x, i.low, i.high) for x, i in found[name]] for name in means}


def per_device(runs: Sequence[FinishedRun], kind: str, colours: Mapping[str, str]) -> str:
    """A row for each device, with a dot for each run and the range over its seeds."""
    every = {run.name: seeds_page.by_device(run.results, kind) for run in runs}
    names = list(dict.fromkeys(device for found in every.values() for device in found))
    nothing = Whisker(float("nan"), 0.0, 0.0)
    series = {
        run: [spread([a[kind] for a in found[d]]) if d in found else nothing for d in names]
        for run, found in every.items()
    }
    return rows.intervals(names, series, title_in(runs[0].results[0]), percent=True, colours=colours)


def gains(runs: Sequence[FinishedRun], kind: str, group: str) -> list[str]:
    """For each run but the first, what each device of a group gains over it, the smallest first; one axis for all."""
    first = accuracies(runs[0], kind, group)
    every, found = [], []
    for run in runs[1:]:
        ours = accuracies(run, kind, group)
        both = [d for d in ours if d in first]
        values, others = paired(ours, first)
        points = {d: rows.bare(100 * (a - b)) for d, a, b in zip(both, values, others, strict=True)}
        if points:
            every.append((run, points))
    shared = [i.value for _, points in every for i in points.values()]
    for run, points in every:
        head = f"{run.name} against {runs[0].name}, per device"
        single = all(len(one.results) == 1 for one in (run, runs[0]))
        how = "Percentage points on test samples" + (", of one seed, so without an interval" if single else "")
        found.append(sections.differences_part(points, how, head, runs[0].name, shared))
    return found


def circumstances(run: FinishedRun) -> str:
    """What was run, of one run; its seeds differ in nothing else."""
    return sections.circumstances_section({**run.results[0], "runs": run.results}, f"What was run: {run.name}")
