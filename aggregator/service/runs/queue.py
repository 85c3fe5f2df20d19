"""Which queued runs can begin now, and for what or whom the others wait.

Runs go on side by side where no device is in two of them: where they have no hospital in common, or only hospitals
that have room for several trainings, in which they are for other devices (device_overlap.py). Rollouts and evaluations
go on beside a training where all their hospitals have a lane for them. The queue's order holds among runs that want
the same devices, or the same lane of the same hospital: one that waits keeps these from those behind it, so nothing
overtakes it for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from aggregator.service.database.database import Row
from aggregator.service.runs.device_overlap import (
    PresentFleet,
    count_devices,
    describe_absent,
    find_rivals,
    has_room,
    list_lanes,
)
from aggregator.service.runs.rollout_settings import is_rollout
from aggregator.service.runs.runs import wanted_of
from edge_sdk.nodes.configuration.assembly import fixes_hospitals, fixes_members
from edge_sdk.nodes.policy.lanes import ROLLOUTS
from edge_sdk.wire.topics import MOST_LANES

Taken = dict[int, dict[str, str]]
"""Number of a lane -> hospital -> the run that has it, or waits for it."""


@dataclass
class LineUp:
    """What follows from a look at the queue.

    Attributes:
        begin: runs that can begin now, each in its lane, with its hospitals and the number of their devices.
        waits: run -> what it waits for, as a sentence.
        stuck: those of them that need somebody: what they wait for does not come by itself.
    """

    begin: list[tuple[Row, dict[str, int]]] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    stuck: list[str] = field(default_factory=list)


def line_up(queue: Iterable[Row], running: Sequence[Row], fleet: PresentFleet, most: int) -> LineUp:
    """Look at queued runs, the next one first. `most`: runs that may go on at once."""
    found = LineUp()
    before = list(running)
    taken = list_taken(running)
    places = most - len(running)
    for run in queue:
        id, sizes = run["id"], find_hospitals(run, fleet)
        run = {**run, "beside": choose_lane(run, sizes, taken, fleet)}
        ahead = taken[run["beside"]] | find_rivals(run, sizes, before, fleet)
        why, somebody = find_hindrance(run, sizes, ahead, fleet)
        if not why and places < 1:
            why = f"{id} waits until one of {len(running) + len(found.begin)} runs has ended: more do not go on at once"
        if why:
            found.waits[id] = why
            found.stuck += [id] * somebody
        else:
            found.begin.append((run, sizes))
            places -= 1
        before.append({**run, "hospitals": sizes})  # also one that waits: its turn is before those behind it
        for hospital in sizes if is_rollout(run) or not why else ():
            taken[run["beside"]].setdefault(hospital, id)
    return found


def list_taken(running: Iterable[Row]) -> Taken:
    """The lanes of hospitals that runs work in."""
    taken: Taken = {lane: {} for lane in range(MOST_LANES + 1)}
    for run in running:
        taken[run["beside"]] |= dict.fromkeys(run["hospitals"], run["id"])
    return taken


def choose_lane(run: Row, names: Iterable[str], taken: Taken, fleet: PresentFleet) -> int:
    """Number of the lane for a run at its hospitals; 0: the main one.

    A run that has begun stays where it is. A training is for the first one that is free at all its hospitals. A rollout
    is for the first lane beside the main one, an evaluation for the last one that is free, where all hospitals have it.
    """
    if run["hospitals"]:
        return int(run["beside"])
    if not is_rollout(run):
        return next((lane for lane in list_lanes(names, fleet) if not taken[lane].keys() & {*names}), 0)
    there = min((fleet.evaluations.get(name, 0) for name in names), default=0)
    if not there or not run["wanted"]["settings"].get("only_judge"):
        return min(there, ROLLOUTS)
    return next((lane for lane in range(there, 0, -1) if not taken[lane].keys() & {*names}), there)


def find_hospitals(run: Row, fleet: PresentFleet) -> dict[str, int]:
    """The hospitals of a run with the number of their devices; 0: it is not known. One that has begun goes on with
    those that it had, but for the barred ones where its method can do without these."""
    if run["hospitals"]:
        left = {name: size for name, size in run["hospitals"].items() if name not in fleet.barred}
        return dict(run["hospitals"]) if not left or why_fixed(run) else left
    named = wanted_of(run).hospitals
    sizes = {name: count_devices(run, name, fleet) for name in named or fleet.present}
    return sizes if named else {name: size for name, size in sizes.items() if size}


def find_members(
    run: Row, fleet: PresentFleet, taken: Mapping[str, str], reserved: frozenset[str] = frozenset()
) -> dict[str, int]:
    """The hospitals of a run that goes on, as they should be now: without the barred ones, and with those that have
    come since, if it was asked for with these or with all. Empty: nobody is left.

    Args:
        taken: hospital -> another run in which it works.
        reserved: hospitals that queued runs have named: none of them joins a run that is for all.
    """
    if why_fixed(run):
        return dict(run["hospitals"])
    stay = {name: size for name, size in run["hospitals"].items() if name not in fleet.barred}
    named = wanted_of(run).hospitals
    free = [name for name in named or fleet.present if name in fleet.present and name not in run["hospitals"]]
    come = [name for name in free if name not in taken and (named or name not in reserved)]
    sizes = {name: count_devices(run, name, fleet) for name in come if has_room(run, name, fleet)}
    return stay | {name: size for name, size in sizes.items() if size}


def list_reserved(queue: Iterable[Row], fleet: PresentFleet) -> frozenset[str]:
    """Hospitals that queued runs wait for by name, or had when they were paused; not those of runs beside others."""
    named = [(run, (*wanted_of(run).hospitals, *run["hospitals"])) for run in queue]
    nobody = list_taken(())
    return frozenset(name for run, names in named if not choose_lane(run, names, nobody, fleet) for name in names)


def why_fixed(run: Row) -> str:
    """Why the hospitals of a run cannot change while it goes on; "": they can."""
    return find_reasons(json.dumps(run["wanted"], sort_keys=True))[0]


def why_fixed_for_devices(run: Row) -> str:
    """Why the devices of a run cannot change while it goes on; "": they can."""
    return find_reasons(json.dumps(run["wanted"], sort_keys=True))[1]


@lru_cache(maxsize=256)
def find_reasons(wanted: str) -> tuple[str, str]:
    """Looks up both reasons for what was asked for, as JSON; kept, since runs are looked at four times in a second."""
    run = wanted_of({"wanted": json.loads(wanted)}).as_run("looked-at", ("a", "b"))
    return fixes_hospitals(run), fixes_members(run)


def find_hindrance(
    run: Row, sizes: Mapping[str, int], taken: Mapping[str, str], fleet: PresentFleet
) -> tuple[str, bool]:
    """Why a run cannot begin now, as a sentence or "", and whether that needs somebody."""
    id = run["id"]
    if locked := sorted({*sizes} & fleet.barred):
        return f"{id} waits for {', '.join(locked)}: approve it again, or stop the run", True
    if missing := sorted(name for name, size in sizes.items() if not size):
        return describe_absent(run, missing, fleet), True
    if not sizes and fleet.present:
        return describe_absent(run, sorted(fleet.present), fleet), True
    if not sizes:
        return f"{id} waits for a hospital: none has reported itself, and the settings name none", True
    if why := describe_overlap(id, sizes, taken):
        return why, False
    changing = sorted(name for name in sizes if fleet.knows_others(name)) if why_fixed_for_devices(run) else []
    return (f"{id} waits until {', '.join(changing)} has heard which devices belong to it" if changing else ""), False


def describe_overlap(id: str, names: Iterable[str], taken: Mapping[str, str]) -> str:
    """For which runs one waits and why, such as "b waits for run a: north is in both"; "": for none."""
    shared: dict[str, list[str]] = {}
    for name in sorted(names):
        if name in taken:
            shared.setdefault(taken[name], []).append(name)
    verbs = {other: "is" if len(names) == 1 else "are" for other, names in shared.items()}
    parts = [f"run {other}: {', '.join(names)} {verbs[other]} in both" for other, names in shared.items()]
    return f"{id} waits for {'; '.join(parts)}" if parts else ""
