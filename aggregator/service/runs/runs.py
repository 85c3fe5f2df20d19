"""Runs as the service keeps them: what somebody asked for, where it stands, and which changes are possible from there.

    proposed ──> queued        where two people are needed, by the approval of another one
    queued ──> running ──> finished
      ^  │       │  └────> failed        its process has ended before its time
      │  │       ├──────── paused        (wish: pause) its process has ended in good order
      │  └───────┴──────── stopped       (wish: stop)
      └── resume, from paused, failed and stopped

What people do sets a wish or the state `queued`; only the supervisor makes a run running, or notes how it ended. The
run's own memory is in its directory, so whatever the table says, each update counts once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from aggregator.service.administration.terminal import are_one
from aggregator.service.database import audit
from aggregator.service.database.database import Database, Row, runs, schedules
from aggregator.service.database.problems import NotFoundError as NotFoundError
from aggregator.service.database.problems import NotPossibleError as NotPossibleError
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.nodes.configuration.assembly import augmentation_of, method_of, settings_of
from edge_sdk.nodes.configuration.presets import PRESETS, RECOMMENDED, SettingsTable, complete

QUEUED, RUNNING, PAUSED, STOPPED, FINISHED, FAILED = "queued", "running", "paused", "stopped", "finished", "failed"
PROPOSED = "proposed"
ACTIVE = (PROPOSED, QUEUED, RUNNING, PAUSED)
APPROVE = "approve"
PAUSE, STOP = "pause", "stop"
"""Wishes for a run that is running."""
MOST_ROUNDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What somebody asked for; keys as in an aggregator's [run].

    Attributes:
        preset: where settings come from that are not stated: "recommended" (for the model and the method), "plain" (for
            the method alone), "paper" or "stated".
        bundle: sha256 of one of the service's bundles; "": its first.
        hospitals: those that take part; empty: all that are here when it starts, and those that come later.
        devices: those that take part; empty: all of its hospitals that have its bundle.
    """

    method: str = "fedslr"
    rounds: int = 30
    seed: int = 0
    evaluate_every: int = 0
    preset: str = RECOMMENDED
    bundle: str = ""
    hospitals: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    settle: dict[str, Any] = field(default_factory=dict)
    augment: dict[str, Any] = field(default_factory=dict)
    robust: dict[str, Any] = field(default_factory=dict)
    uploads: dict[str, Any] = field(default_factory=dict)
    privacy: dict[str, Any] = field(default_factory=dict)

    def check(self, classes: tuple[str, ...]) -> None:
        """Raises UsageError if no run can be made of it."""
        METHODS.check(self.method)
        if METHODS[self.method].kernels != "plain":
            raise UsageError(
                f"method = {self.method!r}: needs public inputs, split models or several bundles, which the service "
                "does not deal out; `auscult aggregator FILE` runs it"
            )
        if self.preset not in PRESETS:
            raise UsageError(f"preset = {self.preset!r}, expected one of: {', '.join(PRESETS)}")
        if self.rounds > MOST_ROUNDS:
            raise UsageError(f"rounds = {self.rounds}, at most {MOST_ROUNDS}")
        run = self.as_run("check", classes)
        settings_of(run)
        augmentation_of(run)
        method_of(run)

    def as_run(self, id: str, classes: tuple[str, ...]) -> Run:
        """The run with all its settings, before its bundle is known."""
        stated = SettingsTable(**{f.name: getattr(self, f.name) for f in fields(SettingsTable)})
        completed: dict[str, Any] = asdict(complete(self.preset, stated))
        return Run(
            id=id,
            classes=classes,
            seed=self.seed,
            evaluate_every=self.evaluate_every,
            devices=self.devices,
            **completed,
        )


def add_run(
    database: Database,
    wanted: Wanted,
    classes: tuple[str, ...],
    who: str,
    id: str = "",
    cloned: str = "",
    awaits: int = 0,
) -> str:
    """Queues a run, and returns its id: the given one, or one that is made of the method's name.

    Args:
        awaits: approvals of other people that it needs before.

    Raises:
        UsageError: no run can be made of what is wanted, or the id is taken.
    """
    wanted.check(classes)
    with database.transaction() as t:
        return queue_in(t, wanted, who, id, cloned, awaits)


def queue_in(t: Connection, wanted: Wanted, who: str, id: str = "", cloned: str = "", awaits: int = 0) -> str:
    """Queues a checked run within a transaction, and returns its id. Raises UsageError if the id is taken."""
    taken = set(t.execute(sql.select(runs.c.id)).scalars())
    id = checked_name(id, "id") if id else make_id(wanted.method, taken)
    if id in taken:
        raise UsageError(f"id = {id!r}: there is a run of that name already")
    state = PROPOSED if awaits else QUEUED
    row = {"id": id, "place": next_place(t), "state": state, "wish": "", "wanted": asdict(wanted), "awaits": awaits}
    row |= {"hospitals": {}, "cloned": cloned, "by": who, "why": "", "created": time.time()}
    t.execute(runs.insert().values(**row))
    told = {key: value for key, value in {**asdict(wanted), "cloned": cloned}.items() if value}
    audit.note(t, who, "run.queue", id, **told)
    return id


def take_id(table: dict[str, Any]) -> str:
    """The `id` of a body, which is taken out of it; "": none is said. Raises UsageError if it is no text."""
    found = table.pop("id", "")
    if not isinstance(found, str):
        raise UsageError(f"id = {found!r:.40}: expected a text")
    return found


def make_id(method: str, taken: set[str]) -> str:
    """The first of METHOD-1, METHOD-2 ... that is not taken."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", method).strip("-")
    number = 1
    while (id := f"{stem}-{number}") in taken:
        number += 1
    return id


def next_place(t: Connection) -> int:
    """The end of the queue."""
    return int(t.execute(sql.select(sql.func.coalesce(sql.func.max(runs.c.place), 0))).scalar_one()) + 1


def change_run(database: Database, id: str, action: str, who: str) -> None:
    """Lets a person pause, resume, stop or remove a run.

    Raises:
        NotPossibleError: there is no such run, or that is not possible from where it stands.
    """
    with database.transaction() as t:
        change_in(t, id, action, who)


def change_in(t: Connection, id: str, action: str, who: str) -> None:
    """Changes a run within a transaction. Raises NotPossibleError as `change_run`."""
    run = get_run(t, id)
    if action not in DONE:
        raise NotFoundError(f"{action!r}: a run has {', '.join(DONE)}")
    changes = find_changes(run, action)
    if changes is None:
        raise NotPossibleError(f"run {id} is {run['state']}: it cannot be {DONE[action]} now")
    if action == APPROVE and are_one(who, asker := find_asker(t, run)):
        raise NotPossibleError(f"run {id} was asked for by {asker}: somebody else has to approve it")
    if action == "resume":
        changes["place"] = next_place(t)
    if action == "first":
        changes["place"] = t.execute(sql.select(sql.func.min(runs.c.place))).scalar_one() - 1
    t.execute(runs.update().where(runs.c.id == id).values(**changes))
    audit.note(t, who, f"run.{action}", id)


SCHEDULE = "schedule "
"""What stands before a schedule's name where it is the author of a run."""


def find_asker(t: Connection, run: Mapping[str, Any]) -> str:
    """The person who asked for a run, or for the schedule that did. Raises NotPossibleError if that is gone, or was
    changed since: who is behind it now may be another one than who wanted this run."""
    if not run["by"].startswith(SCHEDULE):
        return str(run["by"])
    query = sql.select(schedules.c.by, schedules.c.created).where(schedules.c.name == run["by"].removeprefix(SCHEDULE))
    found = t.execute(query).mappings().first()
    if found is None or found["created"] > run["created"]:
        how = "removed" if found is None else "changed"
        raise NotPossibleError(f"run {run['id']}: its schedule was {how}; stop it, and ask for another one")
    return str(found["by"])


DONE = {"pause": "paused", "resume": "resumed", "stop": "stopped", "first": "put first", APPROVE: "approved"}
"""What people can do with a run -> how an error calls it."""


def find_changes(run: Mapping[str, Any], action: str) -> dict[str, Any] | None:
    """What an action changes in a run's row; None: it is not possible from where the run stands."""
    state = run["state"]
    if action in (PAUSE, STOP) and state == RUNNING:
        return {"wish": action}
    if action == APPROVE and state == PROPOSED:
        return {"state": QUEUED, "awaits": 0}
    if action == STOP and state in (PROPOSED, QUEUED, PAUSED):
        return {"state": STOPPED, "ended": time.time()}
    if action == PAUSE and state == QUEUED:
        return {"state": PAUSED}
    if action == "resume" and state == RUNNING and run["wish"]:
        return {"wish": ""}
    if action == "resume" and state in (PAUSED, STOPPED, FAILED):
        return {"state": PROPOSED if run["awaits"] else QUEUED, "wish": "", "why": "", "ended": None}
    if action == "first" and state == QUEUED:
        return {}
    return None


def list_actions(run: Mapping[str, Any]) -> list[str]:
    """What people can do with a run from where it stands."""
    return [action for action in DONE if find_changes(run, action) is not None]


def get_run(t: Connection, id: str) -> Row:
    """The row of a run.

    Raises:
        NotFoundError: there is none.
    """
    found = t.execute(sql.select(runs).where(runs.c.id == id)).mappings().first()
    if found is None:
        raise NotFoundError(f"run {id!r}: there is none of that name")
    return dict(found)


def find_run(database: Database, id: str) -> Row:
    """The row of a run. Raises NotFoundError if there is none."""
    with database.engine.connect() as t:
        return get_run(t, id)


def list_runs(database: Database, *states: str) -> list[Row]:
    """Runs, the newest first; `states`: only those that stand there."""
    query = sql.select(runs).order_by(runs.c.created.desc())
    return database.read(query if not states else query.where(runs.c.state.in_(states)))


def find_over(database: Database, ids: Collection[str]) -> set[str]:
    """Those of some runs that have ended; one that was never asked for here has not."""
    ended = sql.select(runs).where(runs.c.id.in_(ids), runs.c.state.not_in(ACTIVE))
    return {row["id"] for row in database.read(ended)} if ids else set()


def list_queue(database: Database) -> list[Row]:
    """Queued runs, the next one first."""
    return database.read(sql.select(runs).where(runs.c.state == QUEUED).order_by(runs.c.place))


def wanted_of(row: Mapping[str, Any]) -> Wanted:
    """What was asked for, from a run's row."""
    table = dict(row["wanted"])
    return Wanted(**table | {key: tuple(table.get(key, ())) for key in ("hospitals", "devices")})
