"""The table of a run's rounds: what its page shows as curves, its CSV and the API have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aggregator.service.runs.run_metrics import Line, accuracies_of, errors_of
from edge_sdk.methods.shared.aggregation.scores import UNTOLD
from edge_sdk.methods.shared.evaluation.reports import accuracy_spreads, mean_loss, mean_macro_f1, share_name

MODELS = ("global", "personal", "local")
EVALUATE = "Evaluate"
"""Kind of the question of an evaluation, as deadlines and phases name it."""
TABLE = (
    *("round", "devices", "untold", "loss"),
    *("global", "global_spread", "personal", "personal_spread", "local", "local_spread"),
    *("harmed", "density", "rank", "sent_parameters"),
    *("seconds", "training", "evaluation", "aggregator", "bytes_down", "bytes_up"),
    *("score", *(f"{model}_macro_f1" for model in MODELS), *(f"{model}_error" for model in MODELS), "units"),
)
"""Columns of the table of rounds, and of its CSV.

    untold              devices that are counted, and whose hospital has too few to tell scores
    global, ...         mean accuracy over devices of the models that the round started from; with _spread its standard
                        deviation between them
    harmed, density     of the evaluation after the round: devices whose personal model is worse than the global one,
                        and mean share of a personal component that is not zero
    rank                mean over the layers of the global model, where it travels in factors
    seconds             from the end of the round before: `training` and `evaluation`, for which hospitals were waited
                        for, and `aggregator`, the rest
    bytes_down, _up     between aggregator and hospitals
    score               what the means under `global` and so on are: "accuracy", of sets of labels "exact match", of
                        classes of steps "steps right"; "" where there are none, as of values, which have errors
    global_macro_f1, ...   mean macro-F1 over devices of these models, of sets of labels and classes of steps
    global_error, ...   text: mean absolute error over devices of these models, of values; of several one after the
                        other, and so `units`
"""


def tabulate(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """A row for each round."""
    rows: list[dict[str, Any]] = []
    before: Line | None = None
    phases: Counter[str] = Counter()
    for line in lines:
        phases.update({kind: seconds for kind, seconds in line.get("phases", {}).items()})
        if line["kind"] == "evaluation" and rows and rows[-1]["round"] == line["round"]:
            rows[-1] |= describe_evaluation(line.get("sums", {}))
        if line["kind"] != "round":
            continue
        rows.append(describe_round(line, before, phases))
        before, phases = line, Counter()
    return rows


def describe_round(line: Line, before: Line | None, phases: Mapping[str, float]) -> dict[str, Any]:
    """The row of a round. `phases`: of all lines since the round before."""
    totals, earlier = line.get("bytes", {}), {} if before is None else before.get("bytes", {})
    sums, ranks = line.get("sums", {}), line.get("ranks", {})
    means, spreads = accuracies_of(line), accuracy_spreads(sums)
    row: dict[str, Any] = {"round": line["round"], "devices": line["devices"], "untold": int(sums.get(UNTOLD, 0))}
    row |= {"loss": mean_loss(line), "harmed": None, "density": None}
    for model in MODELS:
        row |= {model: means.get(model), f"{model}_spread": spreads.get(model) if model in means else None}
    row |= {"rank": sum(ranks.values()) / len(ranks) if ranks else None, "sent_parameters": line.get("sent_parameters")}
    row |= divide_time(None if before is None else line["time"] - before["time"], phases)
    row |= {"bytes_down": totals.get("bytes_out", 0) - earlier.get("bytes_out", 0)}
    row |= {"bytes_up": totals.get("bytes_in", 0) - earlier.get("bytes_in", 0)}
    f1, errors = mean_macro_f1(sums), errors_of(line)
    row |= {
        f"{m}_error": " ".join("nan" if e is None else f"{e:.4g}" for e in errors.get(m, {}).values()) for m in MODELS
    }
    row |= {"units": " ".join(line.get("units", ())) if errors else ""}
    return row | {"score": share_name(line) if means else "", **{f"{m}_macro_f1": f1.get(m) for m in MODELS}}


def describe_evaluation(sums: Mapping[str, float]) -> dict[str, Any]:
    """What only an evaluation tells."""
    devices = sums.get("devices", 0)
    if not devices or "personal_harmed" not in sums:
        return {}
    return {"harmed": round(sums["personal_harmed"]), "density": sums["personal_density"] / devices}


def divide_time(seconds: float | None, phases: Mapping[str, float]) -> dict[str, float | None]:
    """The time of a round, and its parts where the lines have them."""
    if not phases:
        return {"seconds": seconds, "training": None, "evaluation": None, "aggregator": None}
    evaluation = phases.get(EVALUATE, 0.0)
    training = sum(phases.values()) - evaluation
    rest = None if seconds is None else max(0.0, seconds - training - evaluation)
    return {"seconds": seconds, "training": training, "evaluation": evaluation, "aggregator": rest}
