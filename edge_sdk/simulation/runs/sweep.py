"""Sweeps: one simulation for each combination of some values, in directories that are named after these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import assigned
from edge_sdk.simulation.clients.behaviour import Behaviour, behaviour_of
from edge_sdk.simulation.runs.plan import Simulation

OWN = ("deadline", "quorum", "cohort", "shift")
BEHAVE = "behave."
Values = Mapping[str, Sequence[str]]


def read_sweep(texts: Sequence[str]) -> Values:
    """Key -> its values, of KEY=VALUE,VALUE,...

    Raises:
        UsageError: a text is none of this form, or names a key twice.
    """
    found: dict[str, Sequence[str]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        if not key or not all(values.split(",")):
            raise UsageError(f"--sweep {text}: expected KEY=VALUE,VALUE,...")
        if key in found:
            raise UsageError(f"--sweep {key}: is named twice")
        found[key] = values.split(",")
    return found


def sweep_runs(job: Simulation, values: Values) -> dict[str, Simulation]:
    """Name -> simulation; one without a name where nothing is swept."""
    if not values:
        return {"": job}
    found = {}
    for chosen in product(*values.values()):
        pairs = dict(zip(values, chosen, strict=True))
        name = ",".join(f"{key}={value}" for key, value in pairs.items())
        one = replace(job, replay=replace(job.replay, out=job.replay.out / name))
        for key, value in pairs.items():
            one = with_value(one, key, assigned([f"{key.removeprefix(BEHAVE)}={value}"]))
        found[name] = one
    return found


def with_value(job: Simulation, key: str, assignment: Mapping[str, Any]) -> Simulation:
    """The simulation with another value of one thing."""
    name, value = next(iter(assignment.items()))
    if key.startswith(BEHAVE):
        old = {f: getattr(job.behaviour, f) for f in Behaviour.__dataclass_fields__}
        return replace(job, behaviour=behaviour_of({**old, name: value}, "--sweep behave"))
    if key == "seed":
        return replace(job, replay=replace(job.replay, seed=int(value)))
    if key in OWN:
        return replace(job, **{key: value})
    return replace(job, replay=replace(job.replay, settings={**job.replay.settings, **assignment}))
