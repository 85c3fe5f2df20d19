"""Clients that are numbers: their names, their hospitals, and the models that are dealt out to them in turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edge_sdk.data.patients import Patients
from edge_sdk.errors import UsageError
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.nodes.node_files import NodeFiles
from edge_sdk.simulation.clients.population import MOST_KEPT, ClientData

CLIENT = "c"
Shape = tuple[int, ...]
Tree = Mapping[str, tuple[str, ...]]


class NumberedClients(ABC):
    """A population of any number of clients, whose samples are functions of the seed and of the client's number.

    Args:
        tree: hospital -> its clients, as `make_tree` makes it.
        seed: of all draws.
    """

    recorded: tuple[str, ...] = ()
    """Recorded devices that clients are bootstrapped from; none: they draw from a data set."""
    kept: int = MOST_KEPT
    unlabelled: bool = False
    """The run uses samples without a label."""

    def __init__(self, tree: Tree, seed: int) -> None:
        self.tree, self.seed = tree, seed
        self.shapes: Mapping[str, Shape] = {}
        self.order: Sequence[Path] = ()
        self.files = NodeFiles({}, {}, {}, None)

    @property
    @abstractmethod
    def cohort(self) -> Cohort:
        """The clients in the form in which a replay plans its run."""

    @abstractmethod
    def data(self, client: str) -> ClientData:
        """The samples of a client, made anew."""

    def patients(self, hospital: str) -> Patients | None:
        """What a hospital holds of its devices' patients, where each sample is divided; else None."""
        return None

    def use(self, files: NodeFiles, bundles: Sequence[Path], shapes: Mapping[str, Shape]) -> None:
        """Tells the population which models its clients have, in turns, and which shapes these want."""
        self.files, self.order, self.shapes = files, bundles, shapes

    def bundle(self, node: str) -> Path:
        return self.order[number_of(node) % len(self.order)] if node.startswith(CLIENT) else self.order[0]


def number_of(client: str) -> int:
    return int(client[len(CLIENT) :])


def make_tree(clients: int, hospitals: int) -> dict[str, tuple[str, ...]]:
    """So many clients, dealt out evenly. Names sort as their numbers do.

    Raises:
        UsageError: there are fewer clients than hospitals.
    """
    if not 0 < hospitals <= clients:
        raise UsageError(f"--clients {clients} --hospitals {hospitals}: each hospital has at least one client")
    wide, tall = len(str(clients - 1)), len(str(hospitals))
    ends = np.linspace(0, clients, hospitals + 1).round().astype(int).tolist()
    return {
        f"hospital-{h + 1:0{tall}}": tuple(f"{CLIENT}{i:0{wide}}" for i in range(ends[h], ends[h + 1]))
        for h in range(hospitals)
    }
