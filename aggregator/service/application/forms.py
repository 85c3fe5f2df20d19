"""What people ask for in a form or as JSON, as a run that can be queued."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from aggregator.service.application import setting_boxes
from aggregator.service.application.setting_boxes import TABLES, read_tables
from aggregator.service.runs.run_metrics import ERROR
from aggregator.service.runs.runs import Wanted
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.evaluation.reports import ACCURACY, RIGHT_STEPS
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.replay.planning.toml_files import as_toml

log = logging.getLogger("auscult.service")
WHOLE = re.compile("-?[0-9]{1,18}")
COUNTS = ("rounds", "seed", "evaluate_every")
LEVELS = 32
"""Tables and lists within each other that a body may have: what copies or shows them goes down into each."""


def read_form(form: Mapping[str, Any], hospitals: list[str]) -> Wanted:
    """A run from the fields of the form for a new one.

    Args:
        hospitals: those that were ticked.

    Raises:
        UsageError: something in it cannot be read; the run itself is checked later.
    """
    table: dict[str, Any] = {name: str(form.get(name, "")).strip() for name in ("method", "preset", "bundle")}
    for name in COUNTS:
        text = str(form.get(name, "")).strip() or "0"
        if not WHOLE.fullmatch(text):
            raise UsageError(f"{name} = {text[:40]!r}: expected a whole number")
        table[name] = int(text)
    table |= read_tables(form, table["method"])
    devices = str(form.get("devices", "")).replace(",", " ").split()
    return from_table(table | {"hospitals": hospitals, "devices": devices})


def from_table(table: Mapping[str, Any]) -> Wanted:
    """A run from JSON or a form.

    Raises:
        UsageError: a key that there is not, or a value of another type.
    """
    check_values(table)
    return from_mapping(Wanted, table, "run")


def read_json(body: bytes) -> dict[str, Any]:
    """An object from a request's body; none is an empty one.

    Raises:
        UsageError: it is no object.
    """
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError("the body is no JSON object")
    check_values(found)
    return found


def check_values(found: Any) -> None:
    """Raises UsageError for half a character or a NUL, which JSON can name, and no file or database can keep; and for
    more than LEVELS tables and lists within each other."""
    rest = [(found, 0)]
    while rest:
        part, level = rest.pop()
        if level > LEVELS:
            raise UsageError(f"the body has more than {LEVELS} tables or lists within each other")
        if isinstance(part, str) and ("\0" in part or any("\ud800" <= c <= "\udfff" for c in part)):
            raise UsageError(f"the body holds what is no text: {part[:40]!a}")
        inner = [*part.keys(), *part.values()] if isinstance(part, Mapping) else part
        if isinstance(inner, list | tuple):
            rest += [(one, level + 1) for one in inner]


def to_fields(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A run as the fields of the form."""
    fields = {key: value for key, value in wanted.items() if key not in TABLES}
    fields["devices"] = " ".join(wanted.get("devices", ()))
    return fields | setting_boxes.to_fields(wanted)


def to_asked(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A run as its page shows what was asked for: its tables as lines."""
    return to_fields(wanted) | {name: to_lines(wanted.get(name, {})) for name in TABLES}


def to_lines(table: Mapping[str, Any]) -> str:
    """A table as lines of TOML."""
    return "\n".join(f"{key} = {to_value(value)}" for key, value in as_toml(table).items())


def to_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {to_value(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def list_methods() -> list[tuple[str, str]]:
    """Methods that the service can run, with a line about each. A plug-in that cannot be loaded is left out."""
    return [(name, METHODS[name].summary) for name in METHODS if is_plain(name)]


def is_plain(name: str) -> bool:
    """True for a method whose devices share one whole model; False also for one that cannot be loaded."""
    try:
        return METHODS[name].kernels == "plain"
    except UsageError as error:
        log.warning("%s", error)
        return False


def explain_personal(method: str, score: str = ACCURACY) -> str:
    """What the accuracies of a run's models are of, for people. `score`: what they are called."""
    shown = "Accuracies are means over devices, on samples that were held out there."
    if score != ACCURACY:
        shown = (
            "Macro-F1 is the mean F1 over labels, exact match the share of samples whose set is right in every label; "
            "both are means over devices, on samples that were held out there."
        )
    if score == RIGHT_STEPS:
        shown = (
            "Macro-F1 is the mean F1 over classes, steps right the share of steps whose class is told; both are means "
            "over devices, on samples that were held out there."
        )
    if score == ERROR:
        shown = (
            "Errors are means over devices of mean absolute errors in the values' units, on samples that were held out "
            "there."
        )
    try:
        personal = METHODS[method].personal
    except (KeyError, UsageError):  # of an earlier run, by a plug-in that is not installed any more
        return shown
    if not personal:
        return f"{shown} {method} has no personal models: one is there only after a settling phase."
    return f"{shown} Personalised is {personal}."
