"""Rollouts: which devices get which version of a model, and how a rollout is taken back.

A rollout is a run in which nothing is trained (edge_sdk/methods/rollout), so it waits in the queue of runs, has a
process of its own that a kill of the service does not harm, and is paused, resumed and stopped as any run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from aggregator.service.database.database import Database, Row, runs
from aggregator.service.models.registry import GLOBAL, Registry
from aggregator.service.runs.rollout_settings import METHOD, is_rollout
from aggregator.service.runs.runs import (
    ACTIVE,
    PAUSED,
    PROPOSED,
    QUEUED,
    STOP,
    STOPPED,
    NoSuchRunError,
    NotPossibleError,
    Wanted,
    change_run,
    find_changes,
    find_run,
    list_runs,
    make_id,
    queue_in,
    take_id,
)
from edge_sdk.errors import UsageError
from edge_sdk.methods.rollout.method import ROLLOUT
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.presets import STATED
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.kernels.rollout import hash_model, read_model


@dataclass(frozen=True, kw_only=True)
class WantedRollout:
    """What somebody asks for; see methods/rollout/plan.py for what the shares mean.

    Attributes:
        to: share of all devices, above 0 up to 1.
        hospitals: only devices of these; empty: of all.
        devices: only these; empty: `to` of all.
    """

    to: float = 1.0
    hospitals: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    canary: int = 1
    growth: float = 2.0
    margin: float = 0.02
    failures: float = 0.1
    judged: int = 20


@dataclass(frozen=True, kw_only=True)
class WantedEvaluation:
    """What somebody asks for who wants to know how good a version is; fields as of `WantedRollout`."""

    to: float = 1.0
    hospitals: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


def add_evaluation(
    database: Database, registry: Registry, model: str, table: Mapping[str, Any], who: str, awaits: int = 0
) -> str:
    """Put an evaluation first in the queue, and return its id: devices try a version and keep what they have.

    Args:
        model, awaits: as of `add_rollout`. table: fields of `WantedEvaluation`, and perhaps `id`.

    Raises:
        UsageError: there is no such model, or something that is asked for cannot be used.
    """
    table = dict(table)
    id, wanted = take_id(table), from_mapping(WantedEvaluation, table, "evaluation")
    bundle, settings = describe_version(registry, model)
    settings |= {"share": wanted.to, "devices": wanted.devices, "only_judge": True}
    id = id or make_id("evaluation", {one["id"] for one in list_runs(database)})
    return insert(database, settings, bundle["sha256"], wanted.hospitals, who, id, awaits)


def describe_version(registry: Registry, model: str) -> tuple[Row, dict[str, Any]]:
    """The row of a model's bundle, and the settings that say which version the model is."""
    row = registry.find(model)
    bundle = row if row["kind"] != GLOBAL else registry.find(row["bundle"])
    return bundle, {"theta": hash_model(find_theta(registry, row, bundle)), "model": row["sha256"]}


def add_rollout(
    database: Database, registry: Registry, model: str, table: Mapping[str, Any], who: str, awaits: int = 0
) -> str:
    """Put a rollout first in the queue, and return its id.

    Args:
        model: the beginning of a model's hash.
        table: fields of `WantedRollout`, and perhaps `id`.
        awaits: approvals of other people that it needs before.

    Raises:
        UsageError: there is no such model, or something that is asked for cannot be used.
    """
    table = dict(table)
    id, wanted = take_id(table), from_mapping(WantedRollout, table, "rollout")
    bundle, settings = describe_version(registry, model)
    settings |= {"share": wanted.to, "devices": wanted.devices}
    settings |= {key: getattr(wanted, key) for key in ("canary", "growth", "margin", "failures", "judged")}
    return insert(database, settings, bundle["sha256"], wanted.hospitals, who, id, awaits)


def find_theta(registry: Registry, row: Row, bundle: Row) -> Any:
    """A version's model, float32 (n,). Raises UsageError if its file is not that of its bundle."""
    file = read_bundle(registry.file.directory / str(bundle["file"]))
    path = registry.file.directory / str(row["file"])
    if row["kind"] != GLOBAL:
        return file.theta0
    try:
        return read_model(path, file.layout)
    except UsageError as error:  # without where this machine keeps it
        raise UsageError(str(error).replace(str(path), row["sha256"][:12])) from None


def add_rollback(database: Database, id: str, who: str) -> str:
    """Take a rollout back: it is stopped if it is under way, and devices that have its version leave it. As with
    stopping a run, one person is enough for that.

    Raises:
        NoSuchRunError: there is no such rollout.
        NotPossibleError: it is one that takes back itself.
    """
    row = find_rollout(database, id)
    if row["wanted"]["settings"].get("undo"):
        raise NotPossibleError(f"rollout {id} takes another one back; roll that version out again in its place")
    if row["wanted"]["settings"].get("only_judge"):
        raise NotPossibleError(f"{id} is an evaluation: no device has taken anything; stop it")
    if row["state"] in (QUEUED, PROPOSED):
        raise NotPossibleError(f"rollout {id} has not begun; stop it")
    if not row["started"] and row["state"] in (
        PAUSED,
        STOPPED,
    ):  # one person would put a run before all others for nothing
        raise NotPossibleError(f"rollout {id} never began: no device has taken anything")
    if find_changes(row, STOP) is not None:
        change_run(database, id, STOP, who)
    hospitals = tuple(row["hospitals"] or row["wanted"]["hospitals"])
    taken = {one["id"] for one in list_runs(database)}
    back = f"{id}-back" if f"{id}-back" not in taken else make_id(f"{id}-back", taken)
    return insert(database, {"undo": id}, row["wanted"]["bundle"], hospitals, who, back, 0)


def insert(
    database: Database,
    settings: dict[str, Any],
    bundle: str,
    hospitals: tuple[str, ...],
    who: str,
    id: str,
    awaits: int,
) -> str:
    """Queue the run of a rollout before all others. Raises UsageError if none can be made of the settings."""
    from_mapping(ROLLOUT.settings, settings, "rollout")
    wanted = Wanted(method=METHOD, rounds=1, preset=STATED, bundle=bundle, hospitals=hospitals, settings=settings)
    with database.transaction() as t:
        lowest = t.execute(sql.select(sql.func.coalesce(sql.func.min(runs.c.place), 0))).scalar_one()
        id = queue_in(t, wanted, who, id, awaits=awaits)
        t.execute(runs.update().where(runs.c.id == id).values(place=lowest - 1))
    return id


def find_rollout(database: Database, id: str) -> Row:
    """The row of a rollout. Raises NoSuchRunError if there is none."""
    row = find_run(database, id)
    if not is_rollout(row):
        raise NoSuchRunError(f"{id} is a run that trains, and no rollout")
    return row


def list_rollouts(database: Database) -> list[Row]:
    """Rollouts, the newest first."""
    return [row for row in list_runs(database) if is_rollout(row)]


def without_rollouts(rows: list[Row]) -> list[Row]:
    """Runs that train."""
    return [row for row in rows if not is_rollout(row)]


def is_active(row: Mapping[str, Any]) -> bool:
    return row["state"] in ACTIVE


def check_model(model: str) -> str:
    """The beginning of a hash that somebody has given. Raises UsageError for an empty one."""
    if not model:
        raise UsageError("which model? Name one by the beginning of its hash")
    return model
