"""Several runs of values side by side: their errors, and paired differences of these to the first run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.circumstances import circumstance_lines, list_unlike
from edge_sdk.replay.errors.tables import OURS, with_interval
from edge_sdk.replay.metrics.scores import IN_USE, POOLED, REFERENCES
from edge_sdk.replay.values.scores import absolute_errors, devices_in, differences, models_in
from edge_sdk.replay.values.tables import model_table, named_units, signed, titles, verdict, with_unit

Found = Mapping[str, Any]
SHARED = (MEAN, *REFERENCES, POOLED)
"""Models that do not depend on the method."""


class ValueRun(Protocol):
    """A run of values that is over, with one seed or several."""

    @property
    def name(self) -> str:
        """Name that no other run has."""

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """Results of its seeds."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Means over seeds."""


def judged_by(task: Mapping[str, Any]) -> str:
    """By what models of a task are judged, in words."""
    named = zip(task["names"], task["units"], strict=True)
    return f"errors of {', '.join(with_unit(name, unit) for name, unit in named)}"


def compare_values(runs: Sequence[ValueRun]) -> dict[str, Any]:
    """Compares runs over the devices that trained.

    Returns:
        "task": names and units. "runs": for each its "name", "method", "seeds", "bytes", "verdict", "titles" and, in
        "values", what `summarise_value_seeds` says. "differences": for each run but the first, each model that both
        have and the method decides, value -> how much larger its mean absolute error is than in the first run, paired
        over devices; under "in_use" that of what devices predict with, where that has another name in the other run.
        "unlike", "circumstances": as `comparison.compare_runs` has them.
    """
    models = {run.name: [m for m in models_in(run.results) if m not in SHARED] for run in runs}
    first = models[runs[0].name]
    summaries = [(run, run.summary) for run in runs]
    return {
        "task": summaries[0][1]["values"]["task"],
        "runs": [
            {
                "name": run.name,
                **{key: summary[key] for key in ("method", "seeds", "bytes", "values", "neighbours")},
                "verdict": verdict(summary),
                "titles": titles(summary),
            }
            for run, summary in summaries
        ],
        "differences": {run.name: run_differences(run, runs[0], models[run.name], first) for run in runs[1:]},
        "unlike": {
            name: {"only": [m for m in own if m not in first], "lacks": [m for m in first if m not in own]}
            for name, own in models.items()
            if {*own} != {*first}
        },
        "circumstances": list_unlike({run.name: run.results for run in runs}),
    }


def run_differences(run: ValueRun, first: ValueRun, own: Sequence[str], theirs: Sequence[str]) -> dict[str, Any]:
    """Model -> value -> difference of its errors between two runs."""
    pairs = {name: (name, name) for name in own if name in theirs}
    used = [next((name for name in OURS if name in names), "") for names in (own, theirs)]
    if all(used) and used[0] != used[1]:
        pairs[IN_USE] = used[0], used[1]
    ours, others = devices_in(run.results), devices_in(first.results)
    found: dict[str, Any] = {}
    for key, (model, other) in pairs.items():
        for value in first.results[0]["values"]["task"]["names"]:
            if d := differences(absolute_errors(ours, model, value), absolute_errors(others, other, value)):
                found.setdefault(key, {})[value] = d
    return found


# For people -----------------------------------------------------------------------------------------------------
def comparison_text(found: Found) -> str:
    """The comparison as text: a table of errors for each run, and the differences to the first."""
    parts = [f"{run['name']}: {run['verdict']}" for run in found["runs"] if run["verdict"]]
    parts = [*circumstance_lines(found), *parts]
    for run in found["runs"]:
        total = sum(run["bytes"].values()) / 1e6
        seeds = f"{len(run['seeds'])} seeds" if len(run["seeds"]) > 1 else "1 seed"
        parts.append(f"\n{run['name']}: {run['method']}, {seeds}, {total:.1f} MB\n{model_table(run)}")
    return "\n".join([*parts, *difference_lines(found)])


def difference_lines(found: Found) -> list[str]:
    """A line for each run, model and value: its difference to the first run."""
    lines = [f"  {', '.join(row[:3])}: {row[3]}, {row[4]} devices worse" for row in difference_rows(found)]
    head = f"MAE against {found['runs'][0]['name']}, paired over devices [95 %]"
    return ["", head, *lines] if lines else []


def difference_rows(found: Found) -> list[list[str]]:
    """Rows of run, model, value, difference with its interval, and devices that are worse."""
    units, named = named_units({"values": found}), found["runs"][0]["titles"]
    return [
        [run, named.get(model, model), value, difference(d, units[value]), f"{d['worse']} of {d['devices']}"]
        for run, models in found["differences"].items()
        for model, values in models.items()
        for value, d in values.items()
    ]


def difference(d: Mapping[str, float], unit: str) -> str:
    """A difference with its interval, in the unit."""
    return f"{with_interval(d, signed)} {unit}".rstrip()
