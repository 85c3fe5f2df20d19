"""Several replays that reconstruct windows in one table: errors and AUROC, and paired differences of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.replay.anomalies.scores import ANOMALIES, difference
from edge_sdk.replay.anomalies.tables import auroc, number, share, titles, verdict

Results = Mapping[str, Mapping[str, Any]]
"""Name of a run -> its result."""
DECIDED = ("global", "personalised", "unseen")
"""Models that the method decides."""


def compare_anomalies(results: Results) -> dict[str, Any]:
    """Compares runs, in JSON's types.

    Returns:
        "runs": for each its "name", "method", "seed", "bytes", "models" (means over devices) and "verdict";
        "differences": for each run but the first, model -> the paired difference of errors to the first run, over the
        devices that both have.
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
        "differences": {name: between(result, results[first]) for name, result in results.items() if name != first},
    }


def between(result: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Model -> the paired difference of errors between two runs, over devices of the same name."""
    others = {d["device"]: d[ANOMALIES] for d in first["devices"] if not d["newcomer"]}
    found = {}
    for model in DECIDED:
        both = [
            {"own": d[ANOMALIES][model], "other": others[d["device"]][model]}
            for d in result["devices"]
            if not d["newcomer"] and model in d[ANOMALIES] and model in others.get(d["device"], {})
        ]
        if both:
            found[model] = difference(both, "own", "other", int(first["seed"]))
    return found


def comparison_table(found: Mapping[str, Any]) -> str:
    """The comparison as text."""
    runs: Sequence[Mapping[str, Any]] = found["runs"]
    wide = max(len(run["name"]) for run in runs)
    title_wide = max(len(run["titles"].get(model, model)) for run in runs for model in run["models"])
    head = ("error", "explained", "AUROC", "found", "alarms")
    lines = [f"{run['name']}: {run['verdict']}" for run in runs if run["verdict"]]
    lines.append(
        f"{'run':{wide}}  {'method':14} {'model':{title_wide}} "
        + " ".join(f"{title:>10}" for title in head)
        + "       MB"
    )
    for run in runs:
        total = sum(run["bytes"].values()) / 1e6
        for model, own in run["models"].items():
            cells = [
                number(own["error"]),
                share(own["explained"]),
                auroc(own),
                share(own["found"]),
                share(own["alarms"]),
            ]
            title = run["titles"].get(model, model)
            row = " ".join(f"{cell:>10}" for cell in cells)
            lines.append(f"{run['name']:{wide}}  {run['method']:14} {title:{title_wide}} {row} {total:>8.1f}")
    lines += ["", f"against {runs[0]['name']}, paired over devices: error [95 %], devices worse"]
    for name, models in found["differences"].items():
        for model, d in models.items():
            ends = f"{number(d['mean'], True)} [{number(d['low'], True)} to {number(d['high'], True)}]"
            lines.append(f"  {name}, {model}: {ends}, {d['worse']} of {d['devices']}")
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
