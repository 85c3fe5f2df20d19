"""Onlookers: nodes that have too few samples for a run as yet, and hear what it comes to.

An onlooker has joined the run and is never ready in it: it belongs to no round and is asked nothing, but the end of the
run reaches it, with the model. What it keeps of the run is in a store of its own, which goes when it takes part after
all, or ends: it then is a node with another disk, and is told all that it has to know anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from edge_sdk.contract.run import Run
from edge_sdk.delivery.storage.database import DiskError
from edge_sdk.delivery.storage.store import Store
from edge_sdk.live.presence.directory import encode_run

if TYPE_CHECKING:
    from edge_sdk.live.membership.membership import Membership

FOLDER = "onlooker"


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


def look_on(membership: Membership, run: Run) -> None:
    """Look on at a run that was refused for want of samples, unless the node has been in it or there is no point."""
    directory = membership.directory
    if (directory.directory / f"{run.id}.db").exists() or (assembly := membership.look_on(run)) is None:
        return
    try:
        store = PassingStore(directory.directory / FOLDER, run.id, directory.durability)
        membership.session = membership.make_session(run, assembly, store)
    except (DiskError, OSError) as error:
        return membership.log.error("%s: cannot look on at run %s: %s", membership.name, run.id, error)
    membership.refused, membership.announced = encode_run(run), False
