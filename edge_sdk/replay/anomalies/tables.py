"""Errors and scores of reconstructions and forecasts on a terminal: who wins, a row for each device and each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.model.tasks.forecast import FORECAST
from edge_sdk.replay.anomalies.neighbours import ALONE_DISTANCE, LAST, PCA, RIDGE
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.metrics.scores import ALONE, LOCAL, POOLED
from edge_sdk.replay.neighbours.candidates import NETWORK
from edge_sdk.replay.neighbours.told import COMPUTED
from edge_sdk.replay.reports.tables import TITLES
from edge_sdk.replay.reports.verdict import why_not
from edge_sdk.replay.values.tables import who_wins

Result = Mapping[str, Any]
COLUMNS = {MEAN: "mean", LOCAL: "local", ALONE: "alone", "global": "global", "personalised": "personal"}
"""Model -> its column in the table of devices."""
OURS = {"personalised": "the personal models", "global": "the shared models"}
HEAD = ("error", "explained", "AUROC", "found", "alarms", "alarms a day")
NOTE = (
    "found: abnormal windows above the device's own threshold; alarms: all others above it; AUROC: +- is what the bins "
    "of scores leave open, of all devices' windows together"
)


def titles(result: Result) -> dict[str, str]:
    """Model -> what it is called."""
    told = result.get("neighbours") or {}
    found = {**TITLES, MEAN: "mean training window", LOCAL: "local network"}
    if told.get("state") != COMPUTED:
        return found
    number = f"{told['components']} " if "components" in told else ""  # of several seeds there may be several
    words = {NETWORK: "network", LAST: "last value", RIDGE: "ridge regression", PCA: f"{number}principal components"}
    named = {f"alone_{kind}": f"alone, {said}" for kind, said in words.items() if kind != NETWORK}
    pooled = RIDGE if result[ANOMALIES]["task"]["kind"] == FORECAST else PCA
    chosen = [told["chosen"]] if isinstance(told["chosen"], str) else told["chosen"]
    best = " or ".join(words[kind] for kind in chosen)
    named |= {ALONE_DISTANCE: "alone, distance of features", ALONE: f"alone ({best})"}
    return {**found, **named, POOLED: f"all data in one place ({words[pooled]})"}


def verdict(result: Result) -> str:
    """Who wins, in a sentence on errors and, where something is called abnormal, one on AUROC."""
    told = result.get("neighbours") or {}
    if told.get("state") != COMPUTED:
        return why_not(told) if told else ""
    found = result[ANOMALIES]["against"][ALONE]
    ours = next((name for name in OURS if name in found), None)
    if ours is None:
        return "The strongest neighbour has nothing to be compared with here."
    return " ".join(
        filter(None, (sentence(found[ours], OURS[ours], titles(result)[ALONE]), on_anomalies(result, ours)))
    )


def sentence(d: Mapping[str, Any], ours: str, alone: str) -> str:
    """Who wins by errors, with the interval of the difference over devices."""
    ends = f"{number(d['mean'], True)} [{number(d['low'], True)}, {number(d['high'], True)}]"
    own = f"mean error of {ours} {number(d['error'])}, {alone} {number(d['than'])}"
    return f"{who_wins(d)}: {own} ({ends}; {d['worse']} of {d['devices']} devices worse)."


def on_anomalies(result: Result, ours: str) -> str:
    """What tells abnormal windows apart best, which nothing was chosen by; "": none are known."""
    models = result[ANOMALIES]["models"]
    shown = [m for m in (ours, ALONE, ALONE_DISTANCE) if models.get(m, {}).get("auroc") is not None]
    told = [f"{OURS.get(m) or titles(result)[m]} {models[m]['auroc']:.3f}" for m in shown]
    return f"AUROC, means over devices: {', '.join(told)}." if told else ""


def number(value: float | None, signed: bool = False) -> str:
    """A figure of four digits; "-" where there is none."""
    return "-" if value is None else f"{value:{'+' if signed else ''}.4g}"


def share(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{100 * value:.1f}%"


def device_table(result: Result) -> str:
    """Mean errors of each device, and the AUROC and alarms of the model that it predicts with."""
    head = f"{'device':18} {'hospital':14} {'windows':>8} {'held out':>9} {'abnormal':>9} " + " ".join(
        f"{title:>9}" for title in (*COLUMNS.values(), "AUROC", "alarms")
    )
    rows = [device_line(d["device"] + (" *" if d["newcomer"] else ""), d, d[ANOMALIES]) for d in result["devices"]]
    empty = {"hospital": "", "samples": "", "held_out": ""}
    mean = device_line("mean", empty, result[ANOMALIES]["models"])
    note = ["* joined the finished run, and is not in the mean"] * any(d["newcomer"] for d in result["devices"])
    rule = "-" * len(head)
    return "\n".join([f"mean error of {what_of(result)}, test part", head, rule, *rows, rule, mean, *note])


def what_of(result: Result) -> str:
    """What the models make."""
    return "forecasts" if result[ANOMALIES]["task"]["kind"] == FORECAST else "reconstructed windows"


def device_line(title: str, d: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    used: Mapping[str, Any] = next((figures[m] for m in OURS if m in figures), {})
    cells = [number(figures.get(model, {}).get("error")) for model in COLUMNS]
    cells += [auroc(used), share(used.get("alarms"))]
    counts = [str(d["samples"]), str(d["held_out"]), f"{used['abnormal']:.0f}" if "abnormal" in used else ""]
    head = f"{title:18} {d['hospital']:14} {counts[0]:>8} {counts[1]:>9} {counts[2]:>9} "
    return head + " ".join(f"{cell:>9}" for cell in cells)


def auroc(figures: Mapping[str, Any]) -> str:
    """The area, without what the bins leave open."""
    value = figures.get("auroc")
    return "-" if value is None else f"{value:.3f}"


def model_table(result: Result) -> str:
    """Figures of each model, means over devices."""
    found = result[ANOMALIES]
    columns = " ".join(f"{title:>12}" for title in (*HEAD, "AUROC, all windows"))
    rows = model_rows(result)
    wide = max(len(title) for title, _ in rows)
    lines = [
        f"  {title:{wide}} " + " ".join(f"{cell:>12}" for cell in cells[:-1]) + f"   {cells[-1]}"
        for title, cells in rows
    ]
    head = f"means over {found['devices']} devices"
    return "\n".join([f"{head:{wide + 2}} {columns}   error against alone [95 %]", *lines, NOTE])


def model_rows(result: Result) -> list[tuple[str, Sequence[str]]]:
    """Title of each model, and its cells, as HEAD says; then AUROC of all windows, and the difference in error."""
    found, rows = result[ANOMALIES], list[tuple[str, Sequence[str]]]()
    against = found["against"][ALONE] or found["against"][LOCAL]
    for model, own in found["models"].items():
        together = found["together"][model]
        area = "-" if together["auroc"] is None else f"{together['auroc']:.3f} +- {together['auroc_error']:.3f}"
        d = against.get(model)
        ends = "" if d is None else f"{number(d['mean'], True)} [{number(d['low'], True)} to {number(d['high'], True)}]"
        cells = [number(own["error"]), share(own["explained"]), auroc(own), share(own["found"]), share(own["alarms"])]
        rows.append((titles(result).get(model, model), [*cells, number(own["alarms_per_day"]), f"{area:>18}", ends]))
    return rows
