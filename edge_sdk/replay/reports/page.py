"""The report of a replay as one self-contained HTML page: no network, no library, light and dark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from html import escape
from math import isfinite, nan
from typing import Any

from edge_sdk.algebra.metrics.label_sets import F1
from edge_sdk.methods.shared.evaluation.reports import device_means, device_spreads, mean_loss
from edge_sdk.replay.anomalies import page as anomaly_page
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.labels.tables import labels_section
from edge_sdk.replay.metrics.scores import ALONE, ALONE_LINEAR, ALONE_NETWORK, ALONE_TREES, MIXED, POOLED
from edge_sdk.replay.metrics.statistics import ACCURACY, MACRO_F1, score_in, shares_in, title_in, wilson
from edge_sdk.replay.reports import charts, rows, sections, simulated
from edge_sdk.replay.reports.boards import boards_section
from edge_sdk.replay.reports.rows import Whisker, bare
from edge_sdk.replay.reports.tables import TITLES
from edge_sdk.replay.reports.terminal import (
    NEWCOMERS_NOTE,
    Result,
    format_percent,
    format_size,
    kinds_of_labels,
    mark_newcomer,
)
from edge_sdk.replay.values import page as value_page

STYLE = """
:root{--fg:#1c2733;--bg:#fff;--soft:#66788a;--rule:#dde4ea;--c0:#1f77b4;--c1:#d9822b;--c2:#2a9d63;
--c3:#8e5bb5;--c4:#b5485d;--c5:#66788a;--c6:#0f8b8d;--bad:#c0392b}
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#11161c;--soft:#93a4b5;--rule:#2b3641;
--c0:#5aa9e6;--c1:#f0a45d;--c2:#5cc994;--c3:#b795d6;--c4:#de8a9a;--c5:#93a4b5;--c6:#4fc4c6;--bad:#ef7b6c}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:1080px;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .4rem}p.lead{color:var(--soft);margin:.2rem 0 1.2rem}
.tiles{display:flex;gap:.8rem;flex-wrap:wrap}
.tile{border:1px solid var(--rule);border-radius:8px;padding:.6rem 1rem;min-width:8rem}
.tile b{display:block;font-size:1.5rem;font-weight:600}.tile span{color:var(--soft);font-size:.85rem}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:1rem}
.wide{overflow-x:auto}.wide td{white-space:nowrap}td.bad{color:var(--bad);font-weight:600}
figure{margin:0}svg{width:100%;height:auto}.rows svg{max-width:640px}.plot svg{max-width:720px}.zero{stroke:var(--soft)}
svg text{font-size:13px;fill:var(--soft)}.grid{stroke:var(--rule)}
.legend{margin:.2rem 0;font-size:.85rem;color:var(--soft)}
.legend span{white-space:nowrap}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .35em 0 .9em}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{text-align:right;padding:.28rem .6rem;border-bottom:1px solid var(--rule)}th{color:var(--soft);font-weight:500}
th:first-child,td:first-child,.text{text-align:left}tr.mean td{font-weight:600;border-top:2px solid var(--rule)}
.verdict{margin:0 0 1rem}
.note{border-left:3px solid var(--c1);padding:.3rem .8rem;margin:1rem 0}.none{color:var(--soft)}
details{margin-top:2rem}pre{white-space:pre-wrap;font-size:.8rem;color:var(--soft)}
.facts{table-layout:fixed}.facts td{text-align:left;overflow-wrap:anywhere}.facts td:first-child{width:6.5em}
@media(max-width:700px){.plot svg text{font-size:19px}}
@media print{body{max-width:none;margin:0}details{display:none}.two{grid-template-columns:1fr 1fr}
.plot svg text{font-size:20px}}
"""

RARE = {"companion": "companion", "unseen": "never trained", MIXED: TITLES[MIXED], ALONE: "alone, at best"}
"""Models that not all results have: of a device with another architecture; of one that did not train and only adapts;
of settling, which mixes it into the personalised one; the strongest neighbour."""
KINDS = {"local": "local only", "global": "global model", "personalised": "personalised", **RARE}
TABLED = {name: TITLES[name] for name in (ALONE_NETWORK, ALONE_LINEAR, ALONE_TREES, POOLED)}
"""Neighbours that stand in tables only."""
COLOURS = {name: f"var(--c{i})" for i, name in enumerate(KINDS.values())}
"""One colour for each model on the whole page."""
DEVICES = "<h2>Accuracy per device</h2><p class='lead'>On test samples, with 95 % intervals for so few of them.</p>"
HOPS = {
    "device_to_hospital": "device up",
    "hospital_to_device": "device down",
    "hospital_to_aggregator": "hospital up",
    "aggregator_to_hospital": "hospital down",
}


def make_page(result: Result) -> str:
    """The whole page."""
    sizes = {"device": len(result["devices"]), "hospital": result["hospitals"], "round": result["rounds"]}
    counts = ", ".join(count_of(size, noun) for noun, size in sizes.items())
    title = escape(f"{result['method']}: {counts}")
    parts = [
        sections.verdict_section(result),
        f"<h1>{title}</h1><p class='lead'>{escape(circumstances(result))}</p>",
        generated_note(result),
        tiles(result),
        sections.statistics_section(result),
        labels_section(result),
        curves(result),
        simulated.section(result),
        section_of_devices(result)(result),
        sections.differences_section(result),
        boards_section(result),
        sections.recall_section(result, KINDS),
        layers(result),
        sections.circumstances_section(result),
        as_json(result),
    ]
    return wrap(title, parts)


def section_of_devices(result: Result) -> Callable[[Result], str]:
    """What makes the section on devices, by what the models predict."""
    if "values" in result:
        return value_page.errors_section
    return anomaly_page.anomalies_section if ANOMALIES in result else devices_section


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def devices_section(result: Result) -> str:
    """The chart and the table of devices."""
    head = DEVICES if score_in(result) == ACCURACY else f"<h2>{capital(title_in(result))} per device, test samples</h2>"
    return head + per_device_chart(result) + html_table(result)


def count_of(size: int, noun: str) -> str:
    """A number with its noun."""
    return f"{size} {noun}" if size == 1 else f"{size} {noun}s"


def wrap(title: str, parts: Iterable[str]) -> str:
    """A page of these parts. `title`: as HTML has it."""
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{title}</title>"
    body = f"<head>{head}<style>{STYLE}</style></head><body>{''.join(parts)}</body>"
    return f"<!doctype html><html lang='en'>{body}</html>\n"


def circumstances(result: Result) -> str:
    data, broker = result["data"]["name"], result["broker"]
    return f"seed {result['seed']}, data {data}, broker {broker}, {result['seconds']:.0f} s"


def generated_note(result: Result) -> str:
    if not result["data"]["generated"]:
        return ""
    words = "the figures tell that the system works, not how well it would do on people's own"
    return f"<p class='note'>These data were <b>generated</b>, not recorded: {words}.</p>"


def tiles(result: Result) -> str:
    accuracy, count = shares_in(result), result["bytes"]
    named = "" if score_in(result) == ACCURACY else f"{title_in(result)}, "
    found = [(format_percent(accuracy[kind]), f"{named}{name}") for kind, name in KINDS.items() if kind in accuracy]
    found += [(f"{area:.3f}", f"AUC, {KINDS.get(kind, kind)}") for kind, area in result["auc"].items()]
    if spent := result.get("privacy", {}).get("spent"):
        found.append((f"{spent['epsilon']:.3g}", f"epsilon, at delta {spent['delta']:g}"))
    found += [
        (format_size(count["device_to_hospital"]), "up from the devices"),
        (format_size(count["hospital_to_device"]), "down to the devices"),
        (f"{result['memory']['device_peak_mb']:.0f} MB", "peak memory of a device"),
    ]
    boxes = (f"<div class='tile'><b>{value}</b><span>{name}</span></div>" for value, name in found)
    return f"<div class='tiles'>{''.join(boxes)}</div>"


def curves(result: Result) -> str:
    """The charts of accuracy, loss and traffic, side by side."""
    accuracy = {} if {"values", ANOMALIES} & {*result} else score_curves(result)
    charted = accuracy | {
        "Training loss": charts.lines({"loss": per_round(result, mean_loss)}, "round", "loss"),
        "Parameters that travel down": charts.lines({"sent": per_round(result, sent)}, "round", "parameters"),
        "MB per hop": hops(result),
    }
    cells = (f"<div><h2>{name}</h2>{chart}</div>" for name, chart in charted.items())
    return f"<div class='two'>{''.join(cells)}</div>"


def score_curves(result: Result) -> dict[str, str]:
    """The chart of accuracy or macro-F1 over rounds, under its heading."""
    curves, bands = accuracy_curves(result), accuracy_bands(result)
    chart = charts.lines(curves, "round", title_in(result), percent=True, colours=COLOURS, bands=bands)
    of = f"{capital(title_in(result))} on {part_of_rounds(result)} samples"
    return {f"{of}, mean and standard deviation over devices": chart}


def part_of_rounds(result: Result) -> str:
    """Name of the samples by which rounds are judged."""
    return "validation" if any(d.get("validation") is not None for d in result["devices"]) else "held-out"


def accuracy_curves(result: Result) -> dict[str, list[tuple[float, float]]]:
    """Mean accuracy over devices of the models as each round found them. Where all devices were asked, their answers
    replace the scores that came with uploads."""
    return {name: [(r, mean) for r, mean, _ in points] for name, points in accuracy_points(result).items()}


def accuracy_bands(result: Result) -> dict[str, list[tuple[float, float, float]]]:
    """A standard deviation over devices to both sides of these, within 0 and 1."""
    return {
        name: [(r, max(0.0, mean - spread), min(1.0, mean + spread)) for r, mean, spread in points]
        for name, points in accuracy_points(result).items()
    }


def accuracy_points(result: Result) -> dict[str, list[tuple[float, float, float]]]:
    """Model -> (round, mean, standard deviation over devices; 0 in runs of before, which have none)."""
    lines = {starting_round(line): line["sums"] for line in result["curve"] if "sums" in line}
    of = F1 if score_in(result) == MACRO_F1 else "accuracy"
    found = {r: (device_means(sums, f"_{of}"), device_spreads(sums, of)) for r, sums in sorted(lines.items())}
    names = {"global": "global model", "personal": "personalised", "local": KINDS[MIXED]}
    return {
        name: [(r, means[key], spreads.get(key, 0.0)) for r, (means, spreads) in found.items() if key in means]
        for key, name in names.items()
    }


def starting_round(line: Mapping[str, Any]) -> int:
    """The number of rounds that a model of this line has seen: scores on uploads are of the model before the round."""
    return int(line["round"]) - (1 if line["kind"] == "round" else 0)


def per_round(result: Result, figure: Any) -> list[tuple[float, float]]:
    rounds = [line for line in result["curve"] if line["kind"] == "round"]
    return [(line["round"], figure(line)) for line in rounds if figure(line) is not None]


def sent(line: Mapping[str, Any]) -> int | None:
    """Parameters of the global model that travel down after a round: fewer, the lower the ranks of its layers."""
    return line.get("sent_parameters")


def hops(result: Result) -> str:
    return charts.bars(list(HOPS.values()), {"MB": [result["bytes"][hop] / 1e6 for hop in HOPS]}, "MB")


def per_device_chart(result: Result) -> str:
    """A row for each device: the accuracy of each of its models, with the interval that its test samples leave."""
    devices, kinds = result["devices"], [kind for kind in KINDS if kind in shares_in(result)]
    values = {KINDS[kind]: [device_interval(d, kind) for d in devices] for kind in kinds}
    return rows.intervals([mark_newcomer(d) for d in devices], values, title_in(result), percent=True, colours=COLOURS)


def device_interval(d: Mapping[str, Any], kind: str) -> Whisker:
    share = shares_in(d).get(kind, nan)
    if score_in(d) != ACCURACY:
        return bare(share)  # a mean of ratios, which has no such interval
    return Whisker(share, *wilson(share, d["held_out"])) if isfinite(share) and d["held_out"] else bare(share)


def html_table(result: Result) -> str:
    always = {*KINDS} - {*RARE}
    kinds = {k: name for k, name in (KINDS | TABLED).items() if k in shares_in(result) or k in always}
    head = ["device", "hospital", "samples", "held out", kinds_of_labels(result), *kinds.values()]
    head += ["density of p", "peak MB", "CPU s"]
    lines = [device_row(d, kinds) for d in result["devices"]]
    mean = row(
        ["mean", "", "", "", "", *each(shares_in(result), kinds), format_percent(result["density"]), "", ""], "mean"
    )
    body = "".join([*lines, mean])
    note = f"<p class='lead'>{NEWCOMERS_NOTE}.</p>" * any(d.get("newcomer") for d in result["devices"])
    return f"<div class='wide'><table><tr>{''.join(f'<th>{h}</th>' for h in head)}</tr>{body}</table></div>{note}"


def device_row(d: Mapping[str, Any], kinds: Iterable[str]) -> str:
    cells = [mark_newcomer(d), d["hospital"], d["samples"], d["held_out"], d["classes"], *each(shares_in(d), kinds)]
    return row([*cells, format_percent(d["density"]), f"{d['peak_memory_mb']:.0f}", f"{d['cpu_seconds']:.1f}"])


def each(accuracy: Mapping[str, float], kinds: Iterable[str]) -> list[str]:
    return [format_percent(accuracy.get(kind)) for kind in kinds]


def row(cells: Iterable[Any], kind: str = "") -> str:
    return f"<tr class='{kind}'>{''.join(f'<td>{escape(str(c))}</td>' for c in cells)}</tr>"


def layers(result: Result) -> str:
    model = result["model"]
    if not model["ranks"]:
        return ""
    lines = "".join(row([name, rank, model["full_ranks"][name]]) for name, rank in model["ranks"].items())
    lead = f"{model['parameters']} parameters, of which {model['parameters_sent']} travel on the down-link"
    head = "<tr><th>layer</th><th>rank</th><th>full rank</th></tr>"
    return f"<h2>Rank per layer of the global model</h2><p class='lead'>{lead}</p><table>{head}{lines}</table>"


def as_json(result: Result) -> str:
    told = json.dumps({key: value for key, value in result.items() if key != "curve"}, indent=1)
    return f"<details><summary>Settings and figures as JSON</summary><pre>{escape(told)}</pre></details>"
