"""`auscult compare`: several runs in one table, and the paired differences between them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.task_protocol import STEPS
from edge_sdk.replay.circumstances import circumstance_lines, list_unlike
from edge_sdk.replay.metrics.scores import ALONE, IN_USE, LOCAL, POOLED, REFERENCES, members
from edge_sdk.replay.metrics.statistics import compare, title_in
from edge_sdk.replay.over_seeds import device_means, paired, summarise_seeds
from edge_sdk.replay.reports.choices import choice_lines
from edge_sdk.replay.reports.simulated import comparison_lines
from edge_sdk.replay.reports.tables import TITLES, columns_of, difference_columns, spread_columns
from edge_sdk.replay.reports.verdict import OURS, titles_of, verdict
from edge_sdk.replay.values.comparison import compare_values, comparison_text, judged_by

SHARED = (*REFERENCES, POOLED)
"""Models that do not depend on the method, so that differences between runs say nothing of the methods."""


@dataclass(frozen=True)
class FinishedRun:
    """A replay that is over, with one seed or several.

    Attributes:
        name: of its directory.
        results: of the seeds.
    """

    name: str
    results: Sequence[Mapping[str, Any]]

    @property
    def summary(self) -> Mapping[str, Any]:
        """Means over seeds, as `summarise_seeds` makes them."""
        return summarise_seeds(self.results)


def read_run(path: Path) -> FinishedRun:
    """Reads the result of a replay: its directory, or the file result.json in it.

    Raises:
        UsageError: there is none, or it is of another version.
    """
    file = path / "result.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no result of a replay: {error}") from error
    results = found.get("runs", [found]) if isinstance(found, dict) else []
    whole = isinstance(results, list) and all(isinstance(r, dict) for r in results)
    if not results or not whole or not all("statistics" in r and "devices" in r for r in results):
        raise UsageError(f"{file}: no result of a replay, or one of an older version without statistics")
    return FinishedRun(file.resolve().parent.name, results)


def read_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """Reads several results, each called by a name that no other has.

    Raises:
        UsageError: there is none, or it is of another version.
    """
    found = [read_run(path) for path in paths]
    places = [str(path.resolve().parent if path.is_file() else path.resolve()) for path in paths]
    names = tell_apart([run.name for run in found], places)
    return [replace(run, name=name) for run, name in zip(found, names, strict=True)]


def tell_apart(names: Sequence[str], places: Sequence[str]) -> list[str]:
    """Names; for those that occur again, paths of their directories; a path that occurs again has a number."""
    known = [n if names.count(n) == 1 else place for n, place in zip(names, places, strict=True)]
    return [n if i == known.index(n) else f"{n} ({known[: i + 1].count(n)})" for i, n in enumerate(known)]


def compare_runs(runs: Sequence[FinishedRun], group: str = "all") -> dict[str, Any]:
    """Compares runs on one group of devices.

    Returns:
        "runs": for each its "name", "method", "seeds", "bytes" and, in "models", mean and deviation of each metric;
        "differences": for each run but the first, each model that both have and that the method decides, the paired
        difference of accuracies to the first run, over the devices that both have; under "in_use" that of what devices
        predict with, where that has another name in the other run. "unlike": for each run but the first that has other
        models, "only", the names of its own, and "lacks", those that the first one alone has. "circumstances":
        sentences about what else runs have otherwise. Of values: as `values.comparison.compare_values` has it.
    """
    check_alike(runs)
    if "values" in runs[0].results[0]:
        if group != "all":
            raise UsageError(f"{runs[0].name}: its models predict values; --two-classes is for devices with classes")
        return compare_values(runs)
    summaries = [(run, run.summary) for run in runs]
    models = {run.name: [m for m in models_of(s, group) if m not in SHARED] for run, s in summaries}
    first = models[runs[0].name]
    return {
        "group": group,
        "runs": [
            {
                "name": run.name,
                "method": s["method"],
                "seeds": s["seeds"],
                "bytes": s["bytes"],
                "reached": reached_of(run),
                "settled": choice_lines(run.results),
                "models": models_of(s, group),
                "against_local": s["statistics"].get(group, {}).get("against_local", {}),
                f"against_{ALONE}": s["statistics"].get(group, {}).get(f"against_{ALONE}", {}),
                "titles": titles_of(s),
                "verdict": verdict(s),
            }
            for run, s in summaries
        ],
        "differences": {run.name: run_differences(run, runs[0], group) for run in runs[1:]},
        "unlike": {
            name: {"only": [m for m in own if m not in first], "lacks": [m for m in first if m not in own]}
            for name, own in models.items()
            if {*own} != {*first}
        },
        "circumstances": list_unlike({run.name: run.results for run in runs}),
    }


def check_alike(runs: Sequence[FinishedRun]) -> None:
    """Raises UsageError for runs that are judged by different scores."""
    for run in runs[1:]:
        if score_name(run) != (first := score_name(runs[0])):
            raise UsageError(f"{run.name} is judged by {score_name(run)}, {runs[0].name} by {first}")


def score_name(run: FinishedRun) -> str:
    """What the score of a run is called; of values, which they are and their units."""
    one = run.results[0]
    if one.get("labels", {}).get("task", {}).get("kind") == STEPS:
        return f"{title_in(one)} of {STEPS}"
    return judged_by(one["values"]["task"]) if "values" in one else title_in(one)


def models_of(summary: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    """Model -> its metrics on a group of devices."""
    return dict(summary["statistics"].get(group, {}).get("models", {}))


def reached_of(run: FinishedRun) -> list[Mapping[str, Any]] | None:
    """When a simulation has reached which accuracies; None: it is a replay, or has several seeds."""
    told = run.results[0].get("simulation") if len(run.results) == 1 else None
    return None if told is None else list(told["reached"])


def run_differences(run: FinishedRun, first: FinishedRun, group: str) -> dict[str, Any]:
    """Model -> paired difference of accuracies between two runs."""
    ours, theirs = ([members(r["devices"], group) for r in one.results] for one in (run, first))
    known = [{name for d in chain(*one) for name in d["metrics"]} - {*SHARED} for one in (ours, theirs)]
    pairs = {name: (name, name) for name in sorted(known[0] & known[1])}
    own, other = (next((name for name in OURS if name in names), "") for names in known)
    if own and other and own != other:
        pairs[IN_USE] = own, other
    found = {}
    for key, (own, other) in pairs.items():
        values, others = paired(device_means(ours, own), device_means(theirs, other))
        if values:
            found[key] = asdict(compare(values, others))
    return found


# For people -----------------------------------------------------------------------------------------------------
def comparison_table(found: Mapping[str, Any]) -> str:
    """The comparison as text."""
    if "task" in found:
        return "\n".join([comparison_text(found), *(f"  {line}" for line in unlike_lines(found))])
    wide = max(len(run["name"]) for run in found["runs"])
    title = max(26, *(len(run["titles"].get(m, m)) for run in found["runs"] for m in run["models"]))
    titles = columns_of(m for run in found["runs"] for m in run["models"].values()).values()
    names = " ".join(f"{name.replace('accuracy', 'acc.') if ' ' in name else name:>14}" for name in titles)
    compared = "against alone, points [95 %], devices worse by > 1 point"
    lines = [
        *verdict_lines(found),
        f"{'run':{wide}}  {'method':14} {'seeds':>5}  {'model':{title}} {names} {'MB':>8}   {compared}",
    ]
    for run in found["runs"]:
        total = sum(run["bytes"].values()) / 1e6
        for model, metrics in run["models"].items():
            head = f"{run['name']:{wide}}  {run['method']:14} {len(run['seeds']):>5}  "
            head += f"{run['titles'].get(model, model):{title}}"
            difference = difference_columns(against_of(run).get(model))
            lines.append(f"{head} {spread_columns(metrics, 14)} {total:>8.1f}   {difference}".rstrip())
    lines += [f"{run['name']:{wide}}  settled: {line}" for run in found["runs"] for line in run.get("settled", [])]
    return "\n".join([*lines, *difference_lines(found), *comparison_lines(found["runs"])])


def against_of(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Differences of a run's models to a device alone: to the strongest neighbour where it is known, else to local."""
    return dict(run[f"against_{ALONE}"] or run[f"against_{LOCAL}"])


def verdict_lines(found: Mapping[str, Any]) -> list[str]:
    """What runs have otherwise; then a sentence for each run: does joining pay?"""
    told = [f"{run['name']}: {run['verdict']}" for run in found["runs"] if run["verdict"]]
    return [*circumstance_lines(found), *told]


def difference_lines(found: Mapping[str, Any]) -> list[str]:
    """A line for each run and model: its difference to the first run."""
    lines = [
        f"  {name}, {TITLES.get(model, model)}: {difference_columns(d)}"
        for name, models in found["differences"].items()
        for model, d in models.items()
    ]
    head = f"against {found['runs'][0]['name']}, paired over devices: points [95 %], devices worse by > 1 point"
    return [*(["", head, *lines] if lines else []), *(f"  {line}" for line in unlike_lines(found))]


def unlike_lines(found: Mapping[str, Any]) -> list[str]:
    """A line for each run that has other models than the first one: which were compared with nothing."""
    first = found["runs"][0]["name"]
    lines = []
    for name, unlike in found["unlike"].items():
        parts = ((name, unlike["only"]), (first, unlike["lacks"]))
        told = [f"{run} alone has {', '.join(TITLES.get(m, m) for m in own)}" for run, own in parts if own]
        lines.append(f"{'; '.join(told)}: compared with nothing of that name")
    return lines
