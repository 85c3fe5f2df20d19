"""Says which model is in use, by one person or, where the settings want that, by two: one asks, another approves."""

from __future__ import annotations

import time
from collections.abc import Mapping

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from aggregator.service.administration.terminal import are_one
from aggregator.service.database import audit
from aggregator.service.database.database import Database, models, proposals
from aggregator.service.models.registry import GLOBAL, Registry
from aggregator.service.runs.runs import NotPossibleError
from edge_sdk.errors import UsageError


def promote(registry: Registry, sha256: str, who: str, awaits: int = 0) -> None:
    """Declare a global model the one that is in use.

    Args:
        sha256: the beginning of its hash.
        awaits: approvals of another person that this needs: 0, or 1, with which it is only asked for.

    Raises:
        UsageError: it is no global model.
        NotPossibleError: somebody has asked for that already.
    """
    row = registry.find(sha256)
    if row["kind"] != GLOBAL:
        raise UsageError(f"model {row['name']}: is a bundle that nobody has trained; promote a run's global model")
    with registry.database.transaction() as t:
        if not awaits:
            return declare_in_use(t, row, who)
        if (asker := find_asker(t, row["sha256"])) is not None:
            raise NotPossibleError(f"model {row['name']}: {asker} has asked for that; somebody else approves it")
        t.execute(proposals.insert().values(sha256=row["sha256"], by=who, created=time.time()))
        audit.note(t, who, "model.propose", row["name"], sha256=row["sha256"])


def approve(registry: Registry, sha256: str, who: str) -> None:
    """Let a model be the one in use that somebody else has proposed.

    Raises:
        NotPossibleError: nobody has proposed it, or this person has.
    """
    row = registry.find(sha256)
    with registry.database.transaction() as t:
        asker = find_asker(t, row["sha256"])
        if asker is None:
            raise NotPossibleError(f"model {row['name']}: nobody has asked for its promotion")
        if are_one(asker, who):
            raise NotPossibleError(f"model {row['name']} was proposed by {asker}: somebody else has to approve it")
        declare_in_use(t, row, who)


def deny(registry: Registry, sha256: str, who: str) -> None:
    """Take a proposal off the list; also one's own. Raises NotPossibleError if there is none."""
    row = registry.find(sha256)
    with registry.database.transaction() as t:
        if find_asker(t, row["sha256"]) is None:
            raise NotPossibleError(f"model {row['name']}: nobody has asked for its promotion")
        t.execute(proposals.delete().where(proposals.c.sha256 == row["sha256"]))
        audit.note(t, who, "model.deny", row["name"], sha256=row["sha256"])


def declare_in_use(t: Connection, row: Mapping[str, str], who: str) -> None:
    t.execute(proposals.delete().where(proposals.c.sha256 == row["sha256"]))
    t.execute(models.update().where(models.c.sha256 == row["sha256"]).values(promoted=time.time()))
    audit.note(t, who, "model.promote", row["name"], sha256=row["sha256"])


def find_asker(t: Connection, sha256: str) -> str | None:
    """Who has proposed a model; None: nobody."""
    return t.execute(sql.select(proposals.c.by).where(proposals.c.sha256 == sha256)).scalar()


def list_proposals(database: Database) -> dict[str, str]:
    """Hash of a model that was proposed -> who has done that."""
    return {row["sha256"]: row["by"] for row in database.read(sql.select(proposals).order_by(proposals.c.created))}
