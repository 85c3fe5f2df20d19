"""Results as a part of a page, for a notebook: sentence, table and curves, light and dark, without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from edge_sdk.replay.anomalies.compared import comparison_table
from edge_sdk.replay.anomalies.page import models_section
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.comparison import SHARED, FinishedRun, verdict_lines
from edge_sdk.replay.metrics.statistics import title_in
from edge_sdk.replay.reports import compare_page, sections, seeds_page
from edge_sdk.replay.reports.page import STYLE, capital, part_of_rounds
from edge_sdk.replay.values.page_of_runs import seeds_sections
from edge_sdk.research.comparisons.alike import compare_results, is_of_windows

DRAWN = ("personalised", "companion", "global")
"""Models of a comparison that have curves."""
BOX = "&{font:14px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);padding:.8rem 1rem;border-radius:8px}"
LAST = "&>style+h2{margin-top:0}&.auscult .text{text-align:left}& tr{background:none!important}"
TABLE = "&.auscult table{margin:0;border:0;color:inherit;font:inherit;table-layout:auto}"
"""A notebook has rules for tables, which must not hold here."""
NARROW = "@media(max-width:700px){.wide td:first-child{white-space:normal;min-width:8em}}"


def show_results(run: FinishedRun) -> str:
    """Runs with one method: who wins, the table of models, curves in rounds, a row for each device."""
    first, summary = run.results[0], run.summary
    devices, seeds = len(first["devices"]), len(run.results)
    told = f"{run.name}: {devices} devices, {first['rounds']} rounds, {seeds} seed{'s' * (seeds > 1)}"
    head = [f"<h2>{escape(told)}</h2>", sections.verdict_section(summary)]
    if ANOMALIES in summary:
        return wrap([*head, models_section(summary)])
    if "values" in summary:
        return wrap([*head, seeds_sections(summary, run.results)])
    title = f"{capital(title_in(first))} on {part_of_rounds(first)} samples"
    parts = [
        *head,
        sections.statistics_section(summary),
        f"<div class='two'><div><h2>{title}</h2>{seeds_page.curves(run.results)}",
        f"</div><div><h2>Each device, on test samples</h2>{seeds_page.per_device_chart(run.results)}</div></div>",
    ]
    return wrap(parts)


def show_comparison(runs: Sequence[FinishedRun]) -> str:
    """Several methods: who wins, the table of all, differences to the first one, curves and devices of each model."""
    found = without_repeats(compare_results(runs))
    if is_of_windows(found):
        names = escape(", ".join(run.name for run in runs))
        return wrap([f"<h2>{names}</h2>", f"<pre>{escape(comparison_table(found))}</pre>"])
    parts = [
        f"<h2>{escape(', '.join(run.name for run in runs))}</h2>",
        *(f"<p class='verdict'><b>{escape(line)}</b></p>" for line in verdict_lines(found)),
        *compare_page.run_sections(found, runs, DRAWN),
    ]
    return wrap(parts)


def without_repeats(found: Mapping[str, Any]) -> dict[str, Any]:
    """A comparison in which what several runs say alike stands once: models that no method decides, and verdicts."""
    if "task" in found or is_of_windows(found):
        return dict(found)
    seen: list[tuple[str, Any]] = []
    kept: list[dict[str, Any]] = []
    for run in found["runs"]:
        own = {k: v for k, v in run["models"].items() if k not in SHARED or (k, v) not in seen}
        seen += [*run["models"].items()]
        told = "" if any(run["verdict"] == other["verdict"] for other in kept) else run["verdict"]
        kept.append({**run, "models": own, "verdict": told})
    return {**found, "runs": kept}


def wrap(parts: Sequence[str]) -> str:
    """The parts with the style of reports, which holds for them alone."""
    return f"<div class='auscult'><style>.auscult{{{own_style()}}}</style>{''.join(parts)}</div>"


def own_style() -> str:
    """The rules of a report's page, as nested rules of one element."""
    variables, _, rest = STYLE.partition("body{")
    rules = rest.partition("h2{")[2].partition("@media print")[0]
    return f"{variables.replace(':root', '&')}{BOX}h2{{{rules}{LAST}{TABLE}{NARROW}".replace("\n", "")
