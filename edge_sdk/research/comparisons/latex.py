"""Tables of results in LaTeX, for a paper: package booktabs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edge_sdk.replay.anomalies.tables import FIGURES_OF_MODELS, signed
from edge_sdk.replay.reports.tables import TITLES, columns_of
from edge_sdk.replay.values.tables import named_units, number, with_unit

ESCAPED = str.maketrans({c: rf"\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"})


def models_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Means over devices and seeds in percent, with the deviation over seeds where there are several.

    Args:
        runs: as `compare_runs` describes them: "name", "models", "titles".
    """
    if "values" in runs[0]:
        return errors_table(runs)
    if any("error" in found for run in runs for found in run["models"].values()):
        return windows_table(runs)
    several, metrics = len(runs) > 1, columns_of(m for run in runs for m in run["models"].values())
    lines = [
        [
            *([run["name"]] if several else []),
            run["titles"].get(model, model),
            *(percent(found.get(k)) for k in metrics),
        ]
        for run in runs
        for model, found in run["models"].items()
    ]
    first = ["run"] if several else []
    return tabular([*first, "model", *metrics.values()], len(first) + 1, lines)


def errors_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Errors of values, means over devices and seeds in their units, with the deviation over seeds."""
    several = len(runs) > 1
    lines = [
        [
            *([run["name"]] if several else []),
            with_unit(value, unit),
            run["titles"].get(model, model),
            *(error(errors[value], key) for key in ERRORS),
        ]
        for run in runs
        for value, unit in named_units(run).items()
        for model, errors in run["values"]["models"].items()
    ]
    first = ["run"] if several else []
    return tabular([*first, "value", "model", *ERRORS.values()], len(first) + 2, lines)


def windows_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Figures of models of windows, means over devices and seeds."""
    several = len(runs) > 1
    lines = [
        [
            *([run["name"]] if several else []),
            run["titles"].get(model, model),
            *(one.cell(found).replace("%", r"\,\%") for one in FIGURES_OF_MODELS),
        ]
        for run in runs
        for model, found in run["models"].items()
    ]
    first = ["run"] if several else []
    return tabular([*first, "model", *(one.title for one in FIGURES_OF_MODELS)], len(first) + 1, lines)


def differences_table(differences: Mapping[str, Mapping[str, Any]], first: str) -> str:
    """Paired differences of runs to the first one, in points, with intervals over devices."""
    if any(isinstance(d.get("than"), float) for models in differences.values() for d in models.values()):
        return window_differences(differences, first)
    if any("mean" not in d for models in differences.values() for d in models.values()):
        return error_differences(differences, first)
    lines = [
        [
            run,
            TITLES.get(model, model),
            points(d["mean"]),
            between(d, points),
            str(d["devices"]),
        ]
        for run, models in differences.items()
        for model, d in models.items()
    ]
    return tabular(["run", "model", f"against {escaped(first)}, points", r"95\,\%", "devices"], 2, lines)


ERRORS = {"mae": "MAE", "rmse": "RMSE", "bias": "bias"}


def error(errors: Mapping[str, Any], key: str) -> str:
    """One of a value's errors, with its deviation over seeds; a sign is a sign of mathematics, and no hyphen."""
    mean, between, deviation = number(errors[key], signed=key == "bias").partition(" ± ")
    return (f"${mean}$" if key == "bias" else mean) + (rf" $\pm$ {deviation}" if between else "")


def error_differences(differences: Mapping[str, Mapping[str, Any]], first: str) -> str:
    """Paired differences of errors to the first run, in the values' units."""
    lines = [
        [
            run,
            TITLES.get(model, model),
            value,
            f"${number(d['mean'], signed=True)}$",
            between(d, lambda end: f"${number(end, signed=True)}$"),
            str(d["devices"]),
        ]
        for run, models in differences.items()
        for model, values in models.items()
        for value, d in values.items()
    ]
    return tabular(["run", "model", "value", f"MAE against {escaped(first)}", r"95\,\%", "devices"], 3, lines)


def window_differences(differences: Mapping[str, Mapping[str, Any]], first: str) -> str:
    """Paired differences of mean errors of windows to the first run."""
    lines = [
        [
            run,
            TITLES.get(model, model),
            f"${signed(d['mean'])}$",
            between(d, lambda end: f"${signed(end)}$"),
            str(d["devices"]),
        ]
        for run, models in differences.items()
        for model, d in models.items()
    ]
    return tabular(["run", "model", f"error against {escaped(first)}", r"95\,\%", "devices"], 2, lines)


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


def between(difference: Mapping[str, float], shown: Callable[[float], str]) -> str:
    """The interval of a difference; a single device has none."""
    return "--" if difference["devices"] == 1 else f"[{shown(difference['low'])}, {shown(difference['high'])}]"
