"""Which devices of a hospital a training is for, as far as the service knows, and whether two trainings have some in
common. What it does not know it takes for common; the hospital looks again by itself
(nodes/hospital/device_assignment.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aggregator.service.database.database import Row
from aggregator.service.runs.rollout_settings import is_rollout
from aggregator.service.runs.runs import wanted_of
from edge_sdk.nodes.policy.lanes import list_trainings


@dataclass(frozen=True)
class PresentFleet:
    """Hospitals as a run may find them.

    Attributes:
        present: those that can take part now, with the number of their devices.
        barred: those that may not, since somebody has suspended or removed them.
        labels: hospital -> the sum of the labels that its devices were given, of those that tell it.
        evaluations: hospital -> rollouts and evaluations that may go on there beside a training.
        trainings: hospital -> trainings that may go on there side by side, if more than one.
        bundles: hospital -> sha256 of a bundle -> its devices that have it, where some have another one.
        devices: hospital -> names of its devices, of those that tell them.
        first_bundle: sha256 of the bundle of runs that name none.
        knows_others: says of a hospital that it has not heard yet which devices belong to it now.
    """

    present: Mapping[str, int]
    barred: frozenset[str] = frozenset()
    labels: Mapping[str, int] = field(default_factory=dict)
    evaluations: Mapping[str, int] = field(default_factory=dict)
    trainings: Mapping[str, int] = field(default_factory=dict)
    bundles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    devices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    first_bundle: str = ""
    knows_others: Callable[[str], bool] = lambda hospital: False


def count_devices(run: Row, hospital: str, fleet: PresentFleet) -> int:
    """The number of a hospital's devices that a run is for; 0: none, or nothing was heard of the hospital."""
    wanted, present = wanted_of(run), fleet.present.get(hospital, 0)
    if is_rollout(run) or not present:
        return present
    if wanted.devices:
        return len({*wanted.devices} & fleet.devices.get(hospital, frozenset()))
    return fleet.bundles.get(hospital, {}).get(wanted.bundle or fleet.first_bundle, present)


def list_lanes(hospitals: Iterable[str], fleet: PresentFleet) -> list[int]:
    """Numbers of the lanes that a training may have at all these hospitals."""
    return list_trainings(min((fleet.trainings.get(name, 1) for name in hospitals), default=1), 0)


def has_room(run: Row, hospital: str, fleet: PresentFleet) -> bool:
    """A hospital has the lane in which a run goes on."""
    return is_rollout(run) or run["beside"] in list_lanes([hospital], fleet)


def has_common(a: Row, b: Row, hospital: str, fleet: PresentFleet) -> bool:
    """Two trainings may have a device of a hospital in common, or it has no room for both of them."""
    if is_rollout(a) or is_rollout(b) or fleet.trainings.get(hospital, 1) < 2:
        return True
    one, other = wanted_of(a), wanted_of(b)
    if one.devices and other.devices:
        return bool({*one.devices} & {*other.devices})
    bundles = {wanted.bundle or fleet.first_bundle for wanted in (one, other)}
    return len(bundles) == 1 or not bundles <= fleet.bundles.get(hospital, {}).keys()


def find_rivals(run: Row, hospitals: Iterable[str], others: Sequence[Row], fleet: PresentFleet) -> dict[str, str]:
    """Hospital -> the first run before this one that has, or waits for, the same lane or a device of it."""
    found: dict[str, str] = {}
    for other in others:
        for name in other["hospitals"] if trains(run) == trains(other) else ():
            if name in {*hospitals} and name not in found and is_rival(run, other, name, fleet):
                found[name] = other["id"]
    return found


def trains(run: Row) -> bool:
    """A run is in a lane of trainings: it is one, or a rollout for which its hospitals have no other lane."""
    return not (is_rollout(run) and run["beside"])


def is_rival(run: Row, other: Row, hospital: str, fleet: PresentFleet) -> bool:
    """Two runs cannot go on at once at a hospital."""
    if not trains(run):
        return bool(run["beside"] == other["beside"])
    return has_common(run, other, hospital, fleet)


def describe_absent(run: Row, hospitals: Sequence[str], fleet: PresentFleet) -> str:
    """For which hospitals a run waits that cannot take part, and why, as a sentence."""
    id, wanted, names = run["id"], wanted_of(run), ", ".join(hospitals)
    if any(name not in fleet.present for name in hospitals):
        return f"{id} waits for {names}, of which nothing has been heard yet"
    if wanted.devices:
        some = ", ".join(wanted.devices[:5]) + ", ..." * (len(wanted.devices) > 5)
        return f'{id} waits for {some}: {names} told of none of them (only hospitals with reports = "names" do)'
    return f"{id} waits for devices with its bundle: {names} told of none"
