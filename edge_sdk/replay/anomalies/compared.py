"""Several replays that reconstruct windows in one table: errors and AUROC, and paired differences of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.replay.anomalies.scores import ANOMALIES, against
from edge_sdk.replay.anomalies.tables import FIGURES_OF_MODELS, signed, titles, verdict
from edge_sdk.replay.circumstances import circumstance_lines, list_unlike
from edge_sdk.replay.errors.tables import with_interval

Results = Mapping[str, Mapping[str, Any]]
"""Name of a run -> its result."""


def compare_anomalies(results: Results) -> dict[str, Any]:
    """Compares runs, in JSON's types.

    Returns:
        "runs": for each its "name", "method", "seed", "bytes", "models" (means over devices) and "verdict";
        "differences": for each run but the first, model -> the paired difference of errors to the first run, over the
        devices that both have; "circumstances": sentences about what else they have otherwise.
    """
    first = next(iter(results))
    return {
        "kind": ANOMALIES,
        "runs": [
            {
                "name": name,
                **{key: result[key] for key in ("method", "seed", "bytes")},
                "models": result[ANOMALIES]["models"],
                "titles": titles(result),
                "verdict": verdict(result),
            }
            for name, result in results.items()
        ],
        "differences": {
            name: against(result["devices"], results[first]["devices"], "")
            for name, result in results.items()
            if name != first
        },
        "circumstances": list_unlike({name: [result] for name, result in results.items()}),
    }


def comparison_table(found: Mapping[str, Any]) -> str:
    """The comparison as text."""
    runs: Sequence[Mapping[str, Any]] = found["runs"]
    wide = max(len(run["name"]) for run in runs)
    title_wide = max(len(run["titles"].get(model, model)) for run in runs for model in run["models"])
    columns = FIGURES_OF_MODELS[:5]
    lines = [*circumstance_lines(found), *(f"{run['name']}: {run['verdict']}" for run in runs if run["verdict"])]
    lines.append(
        f"{'run':{wide}}  {'method':14} {'model':{title_wide}} "
        + " ".join(f"{one.title:>10}" for one in columns)
        + "       MB"
    )
    for run in runs:
        total = sum(run["bytes"].values()) / 1e6
        for model, own in run["models"].items():
            title = run["titles"].get(model, model)
            row = " ".join(f"{one.cell(own):>10}" for one in columns)
            lines.append(f"{run['name']:{wide}}  {run['method']:14} {title:{title_wide}} {row} {total:>8.1f}")
    lines += ["", f"against {runs[0]['name']}, paired over devices: error [95 %], devices worse"]
    for name, models in found["differences"].items():
        for model, d in models.items():
            lines.append(f"  {name}, {model}: {with_interval(d, signed)}, {d['worse']} of {d['devices']}")
    return "\n".join(lines)


def check_comparable(results: Results) -> bool:
    """Do all of these reconstruct windows? False: none does.

    Raises:
        UsageError: some do, or a page or group is asked for that such runs do not have.
    """
    kinds = {name: ANOMALIES in result for name, result in results.items()}
    if any(kinds.values()) and not all(kinds.values()):
        one, other = (next(name for name, own in kinds.items() if own == kind) for kind in (True, False))
        raise UsageError(
            f"{one} is judged by errors of reconstructed windows, {other} is not: compare runs of one kind"
        )
    return all(kinds.values())
