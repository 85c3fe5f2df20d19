"""What the doctor finds: one line for each check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge_sdk.errors import AuscultError


@dataclass(frozen=True)
class Finding:
    """The answer of one check.

    Attributes:
        what: name of the check.
        good: False: a node would fail here. None: there was nothing to check.
        detail: for people.
        remedy: what to do, where something is wrong.
    """

    what: str
    good: bool | None
    detail: str
    remedy: str = ""


def run_check(what: str, check: Callable[[], Finding]) -> Finding:
    """Runs one check; an error that it raises is a finding."""
    try:
        return check()
    except (AuscultError, OSError) as error:
        return Finding(what, False, str(error))


def print_findings(findings: list[Finding]) -> None:
    """Prints one line for each finding, and one below it for what to do."""
    marks = {True: "ok  ", False: "FAIL", None: "-   "}
    for f in findings:
        print(f"{marks[f.good]} {f.what:12} {f.detail}")
        if f.remedy:
            print(f"     -> {f.remedy}")
