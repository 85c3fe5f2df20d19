"""Tables of results in LaTeX, for a paper: package booktabs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.replay.reports.tables import METRICS, TITLES

ESCAPED = str.maketrans({c: rf"\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"})
HEADS = {"accuracy": "accuracy", "macro_f1": "macro-F1", "balanced_accuracy": "balanced accuracy"}


def models_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Means over devices and seeds in percent, with the deviation over seeds where there are several.

    Args:
        runs: as `compare_runs` describes them: "name", "models", "titles".
    """
    several = len(runs) > 1
    lines = [
        [
            *([run["name"]] if several else []),
            run["titles"].get(model, model),
            *(percent(found.get(k)) for k in METRICS),
        ]
        for run in runs
        for model, found in run["models"].items()
    ]
    first = ["run"] if several else []
    return tabular([*first, "model", *(HEADS[key] for key in METRICS)], len(first) + 1, lines)


def differences_table(differences: Mapping[str, Mapping[str, Any]], first: str) -> str:
    """Paired differences of runs to the first one, in points, with intervals over devices."""
    lines = [
        [
            run,
            TITLES.get(model, model),
            points(d["mean"]),
            f"[{points(d['low'])}, {points(d['high'])}]",
            str(d["devices"]),
        ]
        for run, models in differences.items()
        for model, d in models.items()
    ]
    return tabular(["run", "model", f"against {escaped(first)}, points", r"95\,\%", "devices"], 2, lines)


def tabular(head: Sequence[str], texts: int, lines: Sequence[Sequence[str]]) -> str:
    """A table whose first columns are texts."""
    columns = "l" * texts + "r" * (len(head) - texts)
    cells = [list(head), *([*map(escaped, line[:texts]), *line[texts:]] for line in lines)]
    rows = [" & ".join(line) + r" \\" for line in cells]
    body = [r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}"])


def escaped(text: str) -> str:
    """A text as LaTeX wants it."""
    return text.replace("\\", "/").translate(ESCAPED)


def percent(value: Any) -> str:
    """A share, or its mean and deviation, in percent."""
    if value is None:
        return "--"
    found = value if isinstance(value, Mapping) else {"mean": value, "sd": 0.0}
    return f"{100 * found['mean']:.1f}" + (rf" $\pm$ {100 * found['sd']:.1f}" if found["sd"] else "")


def points(value: float) -> str:
    """A difference in percentage points."""
    return f"${100 * value:+.1f}$"


def between(difference: Mapping[str, float]) -> str:
    """The interval of a difference, in points."""
    return f"[{points(difference['low'])}, {points(difference['high'])}]"
