"""Sections of the report page: statistics, differences to training alone, recall by class, what was run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite, nan
from typing import Any

from edge_sdk.replay.metrics.scores import ALONE, FLEET, LOCAL
from edge_sdk.replay.metrics.statistics import ACCURACY, difference_interval, score_in, shares_in, title_in
from edge_sdk.replay.over_seeds import mean_over_seeds
from edge_sdk.replay.reports import rows
from edge_sdk.replay.reports.choices import choice_lines
from edge_sdk.replay.reports.rows import Whisker
from edge_sdk.replay.reports.tables import PHRASES, columns_of, interval, shown_groups, with_spread, yardsticks
from edge_sdk.replay.reports.terminal import Result, describe_gradients, format_percent, mark_newcomer, verdict_of
from edge_sdk.replay.reports.verdict import titles_of

BETTER, WORSE = "var(--c2)", "var(--bad)"
HARMED = 0.01
"""A device is marked as harmed if it loses more accuracy than this against training alone."""


def facts(lines: Iterable[tuple[str, str]]) -> str:
    """A table of names and what they are, in two columns that break where the screen is narrow."""
    body = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in lines if value)
    return f"<table class='facts'>{body}</table>"


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """An HTML table that scrolls sideways where the screen is narrow; columns of words are left-aligned."""
    cells = [[str(c) for c in line] for line in lines]
    words = [any(line[i][:1].isalpha() for line in cells) for i in range(len(head))]
    kinds = [" class='text'" if is_text else "" for is_text in words]
    heads = "".join(f"<th{kind}>{escape(h)}</th>" for kind, h in zip(kinds, head, strict=True))
    rows_of = ("".join(f"<td{kind}>{escape(c)}</td>" for kind, c in zip(kinds, line, strict=True)) for line in cells)
    body = "".join(f"<tr>{line}</tr>" for line in rows_of)
    return f"<div class='wide'><table><tr>{heads}</tr>{body}</table></div>"


def verdict_section(result: Result) -> str:
    """The first line of a page: who wins."""
    said = verdict_of(result)
    return f"<p class='verdict'><b>{escape(said)}</b></p>" if said else ""


def statistics_section(result: Result) -> str:
    """For each group of devices, mean metrics on test samples, and paired differences to training alone."""
    parts = []
    titles = titles_of(result)
    for name, group in shown_groups(result.get("statistics", {})).items():
        than = f"against {yardsticks(group)[0][1]}, points [95 %]"
        head = ["", *columns_of(group["models"].values()).values(), than, "worse by > 1 point"]
        lines = [[titles.get(m, m), *statistics_row(group, m, metrics)] for m, metrics in group["models"].items()]
        parts.append(f"<h2>Test samples, {escape(PHRASES[name].format(group['devices']))}</h2>{table(head, lines)}")
    return "".join(parts)


def statistics_row(group: Mapping[str, Any], model: str, metrics: Mapping[str, Any]) -> list[str]:
    """The cells of one model but its name."""
    found = group[f"against_{yardsticks(group)[0][0]}"].get(model)
    harmed = "" if found is None else f"{round(found['worse_by_a_point'] * found['devices'])} of {found['devices']}"
    return [*(with_spread(metrics.get(key)) for key in columns_of([metrics])), interval(found), harmed]


def differences_section(result: Result) -> str:
    """Section with the gain of each device's personalised model over the one that it trains alone."""
    other = yardstick_of([shares_in(d) for d in result["devices"]])
    both = [d for d in result["devices"] if {other, "personalised"} <= {*shares_in(d)}]
    if not both:
        return ""
    found = {mark_newcomer(d): device_difference(d, other) for d in both}
    than = titles_of(result)[other]
    ends = ", with 95 % intervals for so few samples" if score_in(result) == ACCURACY else f" of {title_in(result)}"
    how = f"Personalised minus {than} on test samples, percentage points{ends}"
    return differences_part(found, how)


def yardstick_of(accuracies: Iterable[Mapping[str, float]]) -> str:
    """The model of a device alone that its personal one is compared with: the strongest neighbour where it is known."""
    return ALONE if any(ALONE in found for found in accuracies) else LOCAL


def device_difference(d: Mapping[str, Any], other: str) -> Whisker:
    """The gain of one device in percentage points, with the interval that its number of test samples leaves."""
    own, alone = shares_in(d)["personalised"], shares_in(d)[other]
    if score_in(d) != ACCURACY:
        return rows.bare(100 * (own - alone))  # a mean of ratios, which has no such interval
    low, high = difference_interval(own, d["held_out"], alone, d["held_out"]) if d["held_out"] else (own - alone,) * 2
    return Whisker(100 * (own - alone), 100 * low, 100 * high)


def differences_part(
    found: Mapping[str, Whisker],
    how: str,
    head: str = "Against training alone, per device",
    other: str = "training alone",
    shared: Sequence[float] = (),
) -> str:
    """The chart of the devices' gains, the smallest first, and who is harmed.

    Args:
        how: what its numbers are.
        head: of the section.
        other: what they gain over.
        shared: values that the axis has as well, so that several charts have one axis.
    """
    order = sorted(found, key=lambda name: found[name].value)
    harmed = [name for name in order if found[name].value < -100 * HARMED]
    than = "alone" if other == "training alone" else f"with {other}"
    words = f"worse off than {than} by more than a point: {', '.join(harmed)}" if harmed else "no device is worse off"
    colours = {"better": BETTER, "worse": WORSE}
    nothing = Whisker(nan, nan, nan)
    series = {
        name: [found[d] if (found[d].value < 0) == (name == "worse") else nothing for d in order] for name in colours
    }
    kept = {name: some for name, some in series.items() if any(isfinite(i.value) for i in some)}
    chart = rows.intervals(order, kept, f"points against {other}", colours=colours, zero=True, shared=shared)
    lead = f"<p class='lead'>{escape(how)}; {escape(words)}.</p>"
    return f"<h2>{escape(head)}</h2>{lead}{chart}"


def recall_section(result: Result, kinds: Mapping[str, str]) -> str:
    """Recall of each class, mean over the devices that have test samples of it."""
    having = [d["recall"] for d in result["devices"] if d.get("recall")]
    models = [m for m in (*kinds, FLEET) if m != FLEET and any(m in recall for recall in having)]
    lines = []
    for name in result.get("classes", []):
        found = {m: [r[m][name] for r in having if name in r.get(m, {})] for m in models}
        if any(found.values()):
            means = [format_percent(sum(values) / len(values)) if values else "-" for values in found.values()]
            lines.append([name, max(map(len, found.values())), *means])
    if not lines:
        return ""
    head = ["class", "devices", *(kinds[m] for m in models)]
    return (
        f"<h2>Recall by class</h2><p class='lead'>Means over the devices that have the class.</p>{table(head, lines)}"
    )


def name_settings(table: Mapping[str, Any], within: str = "") -> list[str]:
    """Settings as key = value; a key in a table has the table's name before it."""
    found = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            found += name_settings(value, f"{within}{key} " if key.startswith("--") else f"{within}{key}.")
        else:
            shown = f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
            found.append(f"{within}{key} = {shown}")
    return found


def circumstances_section(result: Result, head: str = "What was run") -> str:
    """What was run, so that it can be run again."""
    made = result.get("made", {})
    if not made:
        return ""
    given = {
        f"--{key}": result.get(key) for key in ("settle", "augment", "robust", "uploads", "privacy") if result.get(key)
    }
    gradients = mean_over_seeds([one.get("gradients") for one in result.get("runs", [result])])
    lines = [
        ("command", made["command"]),
        ("date", made["date"]),
        ("auscult", made["version"]),
        ("processor", f"{made['processor']}; others round differently" if "processor" in made else ""),
        ("model", ", ".join(made["bundles"])),
        ("data", made.get("data", "")),
        ("computed", "" if gradients is None else describe_gradients(gradients)),
        ("settled", "; ".join(choice_lines(result.get("runs", [result])))),
        ("settings", ", ".join(name_settings({**result["settings"], **given})) or "defaults"),
    ]
    return f"<h2>{escape(head)}</h2>{facts(lines)}"
