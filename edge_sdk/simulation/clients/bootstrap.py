"""Clients in any number from a folder of traces: each bootstraps its training windows from one recorded device.

Client i has the device i modulo their number; fewer clients than devices have some of these, drawn. Of every class, or
set of labels, a client has as many training windows as its device, drawn with replacement from the device's training
part, in blocks of neighbouring windows: these overlap, and single ones would hide how alike they are (the block
bootstrap of Carlstein, 1986, over each recording by itself). Held-out and validation windows are the device's own, and
so are those without a label, in runs that use them. All clients of a device resample the same training part, so no
held-out window is in anyone's.

In memory are the windows of the devices. A client is a vector of row numbers, a function of the seed and of its own
number, made when it is asked; its copy of the windows goes again when others are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.data.cut import Cut
from edge_sdk.data.cutting import as_samples, cut_parts
from edge_sdk.data.data_table import unlabelled_of
from edge_sdk.data.traces.windows import Windows
from edge_sdk.model.tasks.task import ModelTask
from edge_sdk.nodes.daemon.device_file import find_normaliser
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.datasets.table import Rows
from edge_sdk.replay.nodes.node_files import NodeFiles
from edge_sdk.simulation.clients.numbered import NumberedClients, Shape, Tree, number_of
from edge_sdk.simulation.clients.population import MOST_KEPT, ClientData, Part

WHOSE, RESAMPLED = 43, 44
"""Purposes of random streams."""
BLOCK = 8
"""Neighbouring windows of a recording that are drawn together, at most."""
KEPT_BYTES = 256 * 2**20
"""Bytes of clients' copies of windows that stay in memory for the next time."""


@dataclass(frozen=True)
class RecordedDevice:
    """The windows of a recorded device.

    Attributes:
        data: its samples, in the parts that a replay gives it.
        blocks: code of a class or of a set of labels -> int64 (B, 2), first training window and end (exclusive) of each
            of its blocks.
    """

    data: ClientData
    blocks: Mapping[int, Rows]


class BootstrappedClients(NumberedClients):
    """A population of clients that have the windows of recorded devices.

    Args:
        folder: the recorded devices, as a replay has them.
        tree: hospital -> its clients.
        seed: of all draws.
    """

    def __init__(self, folder: Cohort, tree: Tree, seed: int) -> None:
        super().__init__(tree, seed)
        self.folder = folder
        self.recorded = choose_devices(folder.devices, sum(map(len, tree.values())), seed)
        self.tables = folder.tables(Path(), lambda node: folder.shapes)
        self.read: dict[tuple[str, Path], RecordedDevice] = {}

    @property
    def cohort(self) -> Cohort:
        clients = sum(map(len, self.tree.values()))
        summary = f"{clients} clients in {len(self.tree)} hospitals, bootstrapped from {len(self.recorded)} of "
        summary += f"{len(self.folder.devices)} recorded devices"
        return replace(self.folder, summary=summary, tree=self.tree, tables=lambda *_: {})

    def use(self, files: NodeFiles, bundles: Sequence[Path], shapes: Mapping[str, Shape]) -> None:
        """Reads the devices, too, for what their windows take decides how many copies of them may stay in memory."""
        super().use(files, bundles, shapes)
        largest = max(self.device(i, bundles[0]).data.train[0].nbytes for i in range(len(self.recorded)))
        self.kept = max(1, min(MOST_KEPT, KEPT_BYTES // largest))

    def device(self, number: int, bundle: Path) -> RecordedDevice:
        """The device of a client, as the client's model wants its windows; read once."""
        name = self.recorded[number % len(self.recorded)]
        if (name, bundle) not in self.read:
            table: Mapping[str, Any] = self.tables[name]
            cut, normalise = Cut(**table), find_normaliser(bundle)
            loose = unlabelled_of(cut, normalise) if self.unlabelled else None
            made = make_device(cut_parts(cut, normalise), self.folder.classes, self.task)
            own = None if loose is None else (loose.x, loose.recording)
            self.read[name, bundle] = replace(made, data=replace(made.data, unlabelled=own))
        return self.read[name, bundle]

    def data(self, client: str) -> ClientData:
        number = number_of(client)
        device = self.device(number, self.bundle(client))
        rows = resample(device.blocks, np.random.default_rng([self.seed, RESAMPLED, number]))
        x, y = device.data.train
        return replace(device.data, train=(x[rows], y[rows]))


def choose_devices(devices: tuple[str, ...], clients: int, seed: int) -> tuple[str, ...]:
    """The recorded devices that clients have, sorted: all, or as many as there are clients, drawn."""
    names = sorted(devices)
    if clients >= len(names):
        return tuple(names)
    return tuple(names[i] for i in np.sort(np.random.default_rng([seed, WHOSE]).permutation(len(names))[:clients]))


def make_device(
    parts: tuple[Windows, Windows, Windows | None], names: tuple[str, ...], task: ModelTask
) -> RecordedDevice:
    """A device's windows with what a network is trained with, and the blocks of those to train on.

    Args:
        parts: to train on, held out, for validation.
        names: of the run's classes, values or labels.
    """

    def coded(windows: Windows) -> Part:
        samples = as_samples(windows)
        return samples.x, task.targets(samples.labels, names, f"device {windows.name}", samples.x)

    train, held_out, validation = parts
    data = ClientData(coded(train), coded(held_out), None if validation is None else coded(validation))
    return RecordedDevice(data, find_blocks(train.recording, train.codes))


def find_blocks(recording: Rows, y: Rows, most: int = BLOCK) -> dict[int, Rows]:
    """Cuts windows into blocks of neighbours.

    Args:
        recording: (N,), which recording each window is of; in time order, and each recording is of one class.
        y: (N,), codes of classes or of sets of labels; of values they are all alike.
        most: windows in a block; the last one of a recording may have fewer.

    Returns:
        Code -> int64 (B, 2), first window and end (exclusive) of each block.
    """
    edges = [0, *(np.flatnonzero(np.diff(recording)) + 1).tolist(), len(recording)]
    bounds = [(i, min(i + most, end)) for begin, end in pairwise(edges) for i in range(begin, end, most)]
    found = np.array(bounds, np.int64).reshape(-1, 2)
    return {int(code): found[y[found[:, 0]] == code] for code in np.unique(y)}


def resample(blocks: Mapping[int, Rows], random: np.random.Generator) -> Rows:
    """Draws blocks with replacement until each class has as many windows as before, the last block cut where it has to
    be; returns the numbers (N,) of the windows."""
    parts = []
    for code in sorted(blocks):
        own = blocks[code]
        count = int(np.diff(own).sum())
        drawn = own[random.integers(len(own), size=count)]  # a block has a window at least, so this is enough
        used = int(np.searchsorted(np.cumsum(np.diff(drawn)), count)) + 1
        parts.append(np.concatenate([np.arange(begin, end) for begin, end in drawn[:used]])[:count])
    return np.concatenate(parts)
