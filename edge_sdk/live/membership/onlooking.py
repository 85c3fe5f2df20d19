"""Onlookers: nodes that have too few samples for a run as yet, and hear what it comes to.

An onlooker has joined the run and is never ready in it: it belongs to no round and is asked nothing, but the end of the
run reaches it, with the model. What it keeps of the run is in a store of its own, which goes when it takes part after
all, or ends: it then is a node with another disk, and is told all that it has to know anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING

from edge_sdk.atomic import ASIDE
from edge_sdk.contract.run import Run
from edge_sdk.delivery.storage.database import DiskError
from edge_sdk.delivery.storage.store import Store
from edge_sdk.errors import UsageError
from edge_sdk.live.membership.offers import assemble_offered
from edge_sdk.live.presence.directory import NodeDirectory

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly
    from edge_sdk.delivery.session import Session

FOLDER = f"onlooker{ASIDE}"
"""Left out of backups, by its ending: it may go while one is made, and nobody needs it again."""


class PassingStore(Store):
    """A store whose folder goes with it, and which begins anew after a kill."""

    def __init__(self, folder: Path, run: str, durability: str):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        super().__init__(folder / f"{run}.db", durability)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def drop(self) -> None:
        super().drop()
        shutil.rmtree(self.folder, ignore_errors=True)


def look_on(
    directory: NodeDirectory,
    run: Run,
    assemble: Callable[[Run], Assembly | None],
    make_session: Callable[[Run, Assembly, Store], Session],
    log: Logger,
) -> Session | None:
    """The session of an onlooker at a run; None: the node has been in that run, there is no point, or no way."""
    if (directory.directory / f"{run.id}.db").exists():
        return None
    try:
        assembly = assemble_offered(run, lambda run: None, assemble, log.name, log)
        if assembly is None:
            return None
        store = PassingStore(directory.directory / FOLDER, run.id, directory.durability)
        return make_session(run, assembly, store)
    except (UsageError, DiskError, OSError) as error:
        log.error("cannot look on at run %s: %s", run.id, error)
        return None
