"""The report of a replay on a terminal: a line per round, a table per device, the figures under it."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from edge_sdk.contract.environment.gradients import PHASES, ROUNDS
from edge_sdk.methods.shared.evaluation.reports import mean_accuracies, mean_loss
from edge_sdk.methods.shared.evaluation.spent import PrivacySpent, to_words
from edge_sdk.model.tasks.task_protocol import LABELS
from edge_sdk.replay.anomalies import tables as anomalies
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.metrics.scores import ALONE
from edge_sdk.replay.metrics.statistics import ACCURACY, score_in, shares_in, title_in
from edge_sdk.replay.reports.choices import choice_lines
from edge_sdk.replay.reports.tables import TITLES
from edge_sdk.replay.reports.verdict import empty_rounds, lost_layers, verdict
from edge_sdk.replay.values import tables as values

Result = Mapping[str, Any]

HEADER = f"{'round':>6} {'devices':>8} {'loss':>8} {'global':>8} {'personal':>9} {'MB':>8} {'seconds':>8}"


PERSONAL = "personalised"
MOST_DEVICES = 40
"""Devices of a simulation that are shown in a table; a replay shows all."""

NEWCOMERS_NOTE = "* joined the finished run, and is not in the mean"

DENSE = 0.95
"""A component with at least this share of entries that are not zero is not called sparse."""
OF_TASK: Mapping[str, ModuleType] = {"values": values, ANOMALIES: anomalies}
"""Key of a result -> the module with its `verdict`, `device_table` and `model_table`."""


def tables_of(result: Result) -> ModuleType | None:
    """The tables of what is no class; None: the models predict classes or sets of labels."""
    return next((room for key, room in OF_TASK.items() if key in result), None)


def verdict_of(result: Result) -> str:
    """Who wins, whatever the models predict, and first of all whether anything was learned; "": nothing is known."""
    own = tables_of(result)
    found = own.verdict(result) if own else verdict(result)
    every = [result, *result.get("runs", ())]
    return " ".join(filter(None, [empty_rounds(every), lost_layers(every), found]))


def round_line(line: Mapping[str, Any], began: float) -> str:
    """Formats one line of metrics. `began` is the time of the replay's start, seconds since the epoch."""
    found = {model: format_percent(share, 0) for model, share in mean_accuracies(line["sums"]).items()}
    found |= {model: format_percent(f1, 0) for model, f1 in line.get("macro_f1", {}).items()}
    found |= {model: f"{next(iter(errors.values())):.4g}" for model, errors in line.get("errors", {}).items()}
    name = line["round"] if line["kind"] == "round" else "end" if line.get("final") else "all"
    devices = line.get("devices", line["sums"].get("devices", 0))
    reached = f"{found.get('global', '-'):>8} {found.get('personal', '-'):>9}"
    spent = f"{line['bytes_so_far'] / 1e6:>8.1f} {line['time'] - began:>8.1f}"
    return f"{name:>6} {devices:>8.0f} {format_number(mean_loss(line), 8)} {reached} {spent}"


def format_number(value: float | None, width: int) -> str:
    return f"{value:>{width}.4f}" if value is not None else f"{'-':>{width}}"


def format_percent(value: float | None, width: int = 0) -> str:
    text = f"{100 * value:.1f}%" if value is not None else "-"
    return f"{text:>{width}}"


def device_table(result: Result) -> str:
    """The table of accuracies, a row for each device, and their mean. Columns are as wide as the longest name."""
    devices = result["devices"]
    wide = max([14, *(len(mark_newcomer(d)) for d in devices)]), max([12, *(len(d["hospital"]) for d in devices)])
    kinds = " ".join(f"{name.replace(PERSONAL, 'personal'):>{width}}" for name, width in columns_of(result).items())
    head = format_row(wide, "device", "hospital", "samples", "held out", kinds_of_labels(result), kinds)
    rows = [device_row(wide, d, columns_of(result)) for d in devices]
    rule = "-" * len(head)
    note = [NEWCOMERS_NOTE] * any(d.get("newcomer") for d in devices)
    mean = format_row(wide, "mean", "", "", "", "", format_accuracies(shares_in(result), columns_of(result)))
    title = [] if score_in(result) == ACCURACY else [f"{title_in(result)}, test samples"]
    return "\n".join([*title, head, rule, *rows, rule, mean, *note])


def kinds_of_labels(result: Result) -> str:
    """What is counted of a device's samples: their classes, or the sets of labels that they have."""
    return "sets" if result.get("labels", {}).get("task", {}).get("kind") == LABELS else "classes"


def columns_of(result: Result) -> dict[str, int]:
    """The models in the table of devices, and how wide their columns are."""
    return {"local": 8, **({ALONE: 8} if ALONE in shares_in(result) else {}), "global": 8, PERSONAL: 9}


def device_row(wide: tuple[int, int], d: Mapping[str, Any], widths: Mapping[str, int]) -> str:
    """The row of one device. `wide`: of the columns of names. `widths`: of those of models."""
    accuracies = format_accuracies(shares_in(d), widths)
    return format_row(wide, mark_newcomer(d), d["hospital"], d["samples"], d["held_out"], d["classes"], accuracies)


def mark_newcomer(d: Mapping[str, Any]) -> str:
    return f"{d['device']} *" if d.get("newcomer") else str(d["device"])


def format_row(
    wide: tuple[int, int], device: str, hospital: str, samples: object, held_out: object, classes: object, rest: str
) -> str:
    return f"{device:{wide[0]}} {hospital:{wide[1]}} {samples!s:>8} {held_out!s:>9} {classes!s:>8} {rest}"


def format_accuracies(accuracy: Mapping[str, float], widths: Mapping[str, int]) -> str:
    own = {"personalised": accuracy["companion"], **accuracy} if "companion" in accuracy else accuracy
    return " ".join(format_percent(own.get(kind), width) for kind, width in widths.items())


def summary(result: Result) -> str:
    """The figures under the table: bytes, gradients, AUC, sizes, ranks, memory and time."""
    model, full = result["model"], result["model"]["full_ranks"]
    lines = [
        f"bytes    {hop.replace('_to_', ' -> '):24} {format_size(count):>10}" for hop, count in result["bytes"].items()
    ]
    if "companion" in shares_in(result):
        lines.append(
            f"{f'companions, mean {title_in(result)}':<25} {format_percent(shares_in(result)['companion'], 18)}"
        )
    if "unseen" in shares_in(result):
        lines.append(f"{f'never trained, {title_in(result)}':<24} {format_percent(shares_in(result)['unseen'], 18)}")
    if result.get("gradients"):
        lines.append(f"compute  {describe_gradients(result['gradients'])}")
    lines += [f"AUC      {TITLES.get(kind, kind):24} {area:>10.3f}" for kind, area in result["auc"].items()]
    lines += [f"settled  {line}" for line in choice_lines([result])]
    if model["parameters"]:
        lines += [f"model    {model['parameters']} parameters, of which {model['parameters_sent']} travel down"]
    else:
        lines += ["model    each device's own"]
    if any(rank < full[name] for name, rank in model["ranks"].items()):
        lines += [f"rank     {', '.join(f'{name} {rank}/{full[name]}' for name, rank in model['ranks'].items())}"]
    if result["density"] is not None and result["density"] < DENSE:
        lines.append(f"personal {format_percent(result['density'])} of the personal components' entries are not zero")
    if spent := result.get("privacy", {}).get("spent"):
        lines.append(f"privacy  {to_words(PrivacySpent(**spent))}")
    lines += simulation_lines(result) if "simulation" in result else replay_lines(result)
    return "\n".join(lines)


def describe_gradients(found: Mapping[str, float]) -> str:
    """Gradients of single samples that a device has computed on average."""
    after = f", {found[PHASES]:,.0f} after them" if found[PHASES] else ""
    return f"{found[ROUNDS]:,.0f} gradients per device in rounds{after}"


def replay_lines(result: Result) -> list[str]:
    """What a replay has taken."""
    memory = f"device   peak memory {result['memory']['device_peak_mb']:.0f} MB"
    return [memory, f"replay   {result['seconds']:.0f} s"]


def simulation_lines(result: Result) -> list[str]:
    """What a simulation has taken, and the virtual clock at its end."""
    told = result["simulation"]
    lines = [f"process  peak memory {told['peak_memory_mb']:.0f} MB, {told['ranks']} of them"]
    lines.append(
        f"clients  {told['answers']} answers, {told['answers_per_second']:.0f} a second; {told['records']} records"
    )
    if recorded := told.get("recorded"):
        lines.append(f"origin   clients are bootstrapped from {len(recorded)} recorded devices")
    return [*lines, f"clock    {told['clock'] / 3600:.2f} h, simulated in {result['seconds']:.0f} s"]


def format_size(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
