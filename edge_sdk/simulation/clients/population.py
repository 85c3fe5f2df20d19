"""Who the clients of a simulation are, and what each of them holds: it is asked for a client when the client is needed.

Three kinds: the devices of a replay, from its files, so that the result is the replay's; and clients in any number,
each of which draws its samples from a data set (drawn.py), or from the windows of a recorded device (bootstrap.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from edge_sdk.contract.run import Run
from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of, unlabelled_of
from edge_sdk.data.patients import Patients, patients_of
from edge_sdk.data.samples import Samples, Stored
from edge_sdk.model.tasks.task import ModelTask, Reconstruction
from edge_sdk.nodes.daemon.device_file import find_normaliser
from edge_sdk.nodes.kernels.labels import listed_of, wants_unlabelled
from edge_sdk.replay.nodes.node_files import NodeFiles

Part = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Inputs (N, ...) and what the network is trained with: class codes (N,), or values or labels (N, K)."""
MOST_KEPT = 1024
"""Clients whose data stay in memory for the next time, at most."""


@dataclass(frozen=True)
class ClientData:
    """The samples of one client.

    Attributes:
        train: to learn from.
        held_out: the test part.
        validation: None: there is no such part.
        unlabelled: inputs without a label, and the stretch of time of each; None: there are none, or they are not used.
        truths: "test" and "validation" -> inputs and what models are judged by at the end (`truths` of the task), where
            that is something else than what they are trained with; empty: it is not.
    """

    train: Part
    held_out: Part
    validation: Part | None
    unlabelled: Part | None = None
    truths: Mapping[str, Part] = field(default_factory=dict)

    def judged_parts(self) -> dict[str, Part]:
        """Name -> samples by which models are judged at the end, of the parts that there are."""
        every: Mapping[str, Part | None] = self.truths or {"test": self.held_out, "validation": self.validation}
        return {name: part for name, part in every.items() if part is not None and len(part[1])}


class Population(Protocol):
    """All clients and what they hold.

    Attributes:
        files: bundles, public inputs and companions, by node.
        tree: hospital -> its clients that train.
        kept: clients whose data stay in memory for the next time; above 0.
    """

    files: NodeFiles
    tree: Mapping[str, tuple[str, ...]]
    kept: int

    def data(self, client: str) -> ClientData:
        """The samples of a client."""

    def patients(self, hospital: str) -> Patients | None:
        """What a hospital holds of its devices' patients, where each sample is divided; else None."""

    def bundle(self, node: str) -> Path:
        """The file of a node's model."""


class StoredPopulation:
    """The devices of a replay, with its files.

    Args:
        files: as `prepare_files` has written them.
        tree: hospital -> its devices that train.
        run: names its outputs, and says whether samples without a label are used.
        task: of the models.
    """

    kept = MOST_KEPT

    def __init__(self, files: NodeFiles, tree: Mapping[str, tuple[str, ...]], run: Run, task: ModelTask) -> None:
        self.files, self.tree, self.run, self.task = files, tree, run, task

    def data(self, client: str) -> ClientData:
        table: Mapping[str, Any] = self.files.tables[client]
        data = Stored(**table) if "samples" in table else Cut(**table)
        normalise = find_normaliser(self.files.bundles[client])
        found = samples_of(data, normalise)
        validation = None if found.validation is None else self.coded(found.validation, client)
        parts = self.coded(found.train, client), self.coded(found.held_out, client), validation
        loose = unlabelled_of(data, normalise) if wants_unlabelled(self.run) else None
        truths = self.truths({"test": found.held_out, "validation": found.validation}, client)
        return ClientData(*parts, None if loose is None else (loose.x, loose.recording), truths)

    def coded(self, samples: Samples, client: str) -> Part:
        known = listed_of(samples, self.task, self.run.classes)
        return known.x, self.task.targets(known.labels, self.run.classes, f"device {client}", known.x)

    def truths(self, parts: Mapping[str, Samples | None], client: str) -> dict[str, Part]:
        """What models are judged by at the end, of a task that needs no labels; of others nothing."""
        task, names = self.task, self.run.classes
        if not isinstance(task, Reconstruction):
            return {}
        there = {name: samples for name, samples in parts.items() if samples is not None}
        return {name: (s.x, task.truths(s.labels, names, f"device {client}", s.x)) for name, s in there.items()}

    def patients(self, hospital: str) -> Patients | None:
        table = self.files.tables.get(hospital)
        return None if table is None else patients_of(table["samples"])

    def bundle(self, node: str) -> Path:
        return self.files.bundles[node]
