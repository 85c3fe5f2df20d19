"""Changes of the fleet that wait for the next run: said to whoever makes one, at the moment when it is made."""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.service.database.database import Row
from aggregator.service.fleet.enrolment import HOSPITAL
from aggregator.service.runs.queue import why_fixed, why_fixed_for_devices
from aggregator.service.runs.runs import wanted_of


def describe_waiting(node: Row, running: Iterable[Row]) -> list[str]:
    """Sentences about the running runs that keep the members of their start, though this node comes or leaves.

    Args:
        node: a row of the members, as somebody has changed it just now.
    """
    concerned = [run for run in running if is_concerned(node, run)]
    reasons = [(run["id"], find_reason(node, run)) for run in concerned]
    who = "hospitals" if node["kind"] == HOSPITAL else "devices"
    return [
        f"Run {id} keeps the {who} of its start: {why}. This counts from the next run on." for id, why in reasons if why
    ]


def is_concerned(node: Row, run: Row) -> bool:
    """Says whether a node takes part in a run, or would if it could."""
    if node["kind"] != HOSPITAL:
        return node["parent"] in run["hospitals"]
    named = wanted_of(run).hospitals
    return node["name"] in run["hospitals"] or not named or node["name"] in named


def find_reason(node: Row, run: Row) -> str:
    """Why the members of a run cannot change while it goes on; "": they can."""
    return why_fixed(run) if node["kind"] == HOSPITAL else why_fixed_for_devices(run)
