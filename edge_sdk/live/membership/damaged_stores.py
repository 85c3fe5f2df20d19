"""Stores that turn out to be damaged: they are put aside for a person to look at."""

from __future__ import annotations

from logging import Logger
from typing import Protocol

from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.storage.checksums import StoreDamaged
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.announcer import Announcer
from edge_sdk.live.presence.directory import NodeDirectory


class Keeping(Protocol):
    """A membership, as far as its stores go."""

    name: str
    directory: NodeDirectory
    announcer: Announcer
    counters: Counters
    log: Logger


def put_aside(membership: Keeping, run: str, why: StoreDamaged) -> None:
    """Give a damaged store up, as a disk that is lost: parent and children notice that by the epoch.

    The root has nobody who would tell it how far the run was, so there a person has to decide.

    Raises:
        UsageError: this node is the root.
    """
    directory, announcer = membership.directory, membership.announcer
    if announcer.parent is None:
        raise UsageError(
            f"{directory.directory / run}.db is damaged ({why}); put a copy of it back that is whole, or move "
            f"{run}.db, {run}.db-wal and {run}.bodies away to begin the run anew"
        ) from None
    aside = directory.put_aside(run)
    membership.counters.count("store_damaged")
    membership.log.error("%s: the store of run %s is damaged and now in %s: %s", membership.name, run, aside, why)
