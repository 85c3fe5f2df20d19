"""From a run that is over to its neighbours: which samples they are given, and whether there can be any."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import Run
from edge_sdk.data.augment import Augment
from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of
from edge_sdk.data.samples import Samples, SplitSamples, Stored
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import load_model
from edge_sdk.model.tasks.task import class_codes
from edge_sdk.nodes.daemon.device_file import find_normaliser
from edge_sdk.replay.neighbours import fitted
from edge_sdk.replay.neighbours.features import kind_of_features
from edge_sdk.replay.neighbours.find import Question, find_neighbours
from edge_sdk.replay.neighbours.holders import MOST_POOLED, Holder, Part, draw_devices, pool_samples
from edge_sdk.replay.neighbours.network import is_classifier
from edge_sdk.replay.neighbours.rows import describe_neighbours, find_own_network, rows_of
from edge_sdk.replay.neighbours.told import COMPUTED, LEFT_OUT, MISSING, UNDEFINED
from edge_sdk.replay.nodes.node_files import NodeFiles

Parts = tuple[Part, Part, Part]
"""Training, validation and test samples."""
Say = Callable[[str], None]
ORDER = 4
"""Purpose of the random stream."""
WHOLE = "no neighbour is defined here: "


@dataclass(frozen=True)
class NeighbourSource:
    """What neighbours are given of a run.

    Attributes:
        parts: device -> its samples, in the parts that it had.
        written: what the devices that were judged have written at the end.
        fleet: devices that trained.
        bundle: of the run's network.
        classes: how many.
        how: augmentation.
        split: each sample is divided between a device and its hospital.
        alone: nobody has trained the network alone, so it is done here.
    """

    parts: Callable[[str], Parts]
    written: Sequence[Mapping[str, Any]]
    fleet: Sequence[str]
    bundle: Path
    classes: int
    how: Augment = field(default_factory=Augment)
    split: bool = False
    alone: bool = False


Seen = Mapping[str, Any]
"""In JSON's types: "told", see told.py, and "rows", device -> model -> confusion matrix on its test samples."""


def look_round(source: NeighbourSource, most: int, seed: int, say: Say) -> Seen:
    """The neighbours of a run, or why there are none.

    Args:
        most: devices that are judged, drawn where there are more; 0: none.
    """
    if not most:
        return {"told": {"state": LEFT_OUT}, "rows": {}}
    if not fitted.is_installed():
        return {"told": {"state": MISSING}, "rows": {}}
    if source.split:
        return undefined("each sample is divided between a device and its hospital")
    names = [str(d["device"]) for d in source.written]
    trained = [name for name in source.fleet if name in {*names}]
    drawn = {*draw_devices(trained, most, seed), *draw_devices([n for n in names if n not in {*trained}], most, seed)}
    holders = [hold(source, name, name not in {*trained}) for name in names if name in drawn]
    model = load_model(source.bundle)
    if why := find_reason(model, holders, source.classes):
        return undefined(why)
    what = "by their best model, and all data in one place (--no-neighbours: not)"
    say(f"the strongest neighbour: what {len(holders)} devices reach alone {what}")
    began = time.monotonic()
    own = [d for d in source.written if d["device"] in drawn and d["device"] in {*trained}]
    network = find_own_network(own)
    asked = Question(
        holders=holders,
        pool=pool_of(source, seed),
        classes=source.classes,
        how=source.how,
        seed=seed,
        model=model,
        alone=source.alone and network is None,
    )
    found = find_neighbours(asked, say)
    told = describe_neighbours(found, network, len(names), time.monotonic() - began)
    return {"told": {**told, "state": COMPUTED}, "rows": rows_of(found, network, source.written, source.classes)}


def undefined(why: str) -> Seen:
    return {"told": {"state": UNDEFINED, "why": why}, "rows": {}}


def hold(source: NeighbourSource, name: str, newcomer: bool) -> Holder:
    return Holder(name, *source.parts(name), newcomer=newcomer)


def find_reason(model: Model, holders: Sequence[Holder], classes: int) -> str:
    """Why samples like these have no neighbour; "": they have one."""
    first = holders[0].train[0] if holders else np.zeros((0, 1), np.float32)
    if not any(not h.newcomer for h in holders):
        return "no device that trained was judged"
    if first.dtype.names is not None:
        return f"a sample has several inputs, {', '.join(first.dtype.names)}"
    if len({h.train[0].shape[1:] for h in holders}) > 1:
        return "devices have samples of different shapes"
    if model.classes and classes == 1:
        return "all samples are of one class"
    if not model.classes or not classes:
        return "the samples are not in classes"
    if not kind_of_features(first) and not is_classifier(model, first, classes):
        return f"samples of {first.dtype} {first.shape[1:]} have no features, and the network does not take them"
    return ""


def pool_of(source: NeighbourSource, seed: int) -> Part:
    """The training samples of all devices that trained; where there are many, of some, drawn."""
    order = np.random.default_rng([seed, ORDER]).permutation(len(source.fleet))
    found, count = list[Part](), 0
    for i in order:
        if count < MOST_POOLED:
            found.append(source.parts(source.fleet[i])[0])
            count += len(found[-1][1])
    return pool_samples(found, seed)


# The samples of nodes that have files ---------------------------------------------------------------------------
def read_parts(files: NodeFiles, run: Run, name: str) -> Parts:
    """The samples that a device's settings name, with the codes of the run's classes."""
    found = read_samples_of(files, name)
    return three_parts(found.train, found.validation, found.held_out, run.classes, f"device {name}")


def read_samples_of(files: NodeFiles, name: str) -> SplitSamples:
    """The samples that a device's settings name."""
    table: Mapping[str, Any] = files.tables[name]
    data = Stored(**table) if "samples" in table else Cut(**table)
    return samples_of(data, find_normaliser(files.bundles[name]))


def three_parts(train: Samples, chosen: Samples | None, test: Samples, classes: tuple[str, ...], whose: str) -> Parts:
    """Samples with the codes of a run's classes."""
    validation = Samples(train.x[:0], ()) if chosen is None else chosen
    first, second, third = ((part.x, class_codes(part.labels, classes, whose)) for part in (train, validation, test))
    return first, second, third
