"""The files that each node of a replay is started with, and the start: bundles, data, settings, one process each."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.contract.run import Run
from edge_sdk.data.public_inputs import store_public
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.split_model import input_shapes
from edge_sdk.nodes.configuration.around import is_secret
from edge_sdk.nodes.configuration.assembly import family_of
from edge_sdk.nodes.configuration.deadlines import NONE, deadline_of
from edge_sdk.nodes.configuration.presets import STATED
from edge_sdk.nodes.configuration.private_table import private_table
from edge_sdk.nodes.daemon.settings_files import RunTable
from edge_sdk.nodes.policy.allow import CLASSES
from edge_sdk.nodes.secrets.mask_keys import make_key
from edge_sdk.replay.cohorts.cohort import Cohort, Tables
from edge_sdk.replay.nodes.emulated import EmulatedFleet
from edge_sdk.replay.nodes.processes import NodeProcesses
from edge_sdk.replay.planning.plan import Replay, is_split, members_of
from edge_sdk.replay.planning.toml_files import write_toml

FOR_NEWCOMERS = 3600.0
"""Seconds for which hospitals wait for newcomers: until these have started, however busy the machine is."""
CLOUD = "cloud"
"""Name of the aggregator. Its draws depend on it, as those of every node on its name."""
OPEN_SCORES: dict[str, Any] = {"scores": CLASSES, "scores_of": 1}
"""[allow] of all nodes: who replays has all the data before him, and no score tells him anything of them."""
DEVICES_APART = 24
"""Up to so many devices have a process each; more of them share so many processes."""


@dataclass(frozen=True)
class NodeFiles:
    """What the nodes are given, by their names.

    Attributes:
        bundles: node -> its bundle: devices in turns, hospitals the first.
        companions: hospital -> those of its devices whose bundle is another than the first; empty where the method has
            no companions.
        tables: node -> its [data] table.
        public: file of the public inputs; None: there are none.
        masks: node -> its [masks] table, in a run with secret sums.
    """

    bundles: Mapping[str, Path]
    companions: Mapping[str, Sequence[str]]
    tables: Tables
    public: Path | None
    masks: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)


def copy_bundles(bundles: tuple[Path, ...], out: Path) -> tuple[Path, ...]:
    """Copies the bundles beside the results: these stay explainable, and nobody changes the files under a run."""
    names = ["model.bundle"] if len(bundles) == 1 else [f"model-{i + 1}.bundle" for i in range(len(bundles))]
    copies = tuple(out / name for name in names)
    for bundle, copy in zip(bundles, copies, strict=True):
        if bundle != copy.resolve():
            shutil.copyfile(bundle, copy)
    return tuple(copy.resolve() for copy in copies)


def prepare_files(job: Replay, run: Run, cohort: Cohort, bundles: tuple[Path, ...]) -> NodeFiles:
    """Deals out the bundles, and writes the files of samples, patients and public inputs."""
    own = {h: bundles[0] for h in cohort.tree} | {d: bundles[i % len(bundles)] for i, d in enumerate(cohort.devices)}
    read = {path: read_bundle(path) for path in bundles}
    found, first = {path: input_shapes(bundle) for path, bundle in read.items()}, read[bundles[0]].sha256
    others = {h: [d for d in some if read[own[d]].sha256 != first] for h, some in cohort.tree.items()}
    tables, public = cohort.tables(job.out / "data", lambda node: found[own[node]]), None
    if cohort.public is not None:
        public = store_public(job.out / "data" / "public.npz", cohort.public).resolve()
    masks = make_mask_keys(job.out / "masks", cohort.devices, tuple(cohort.tree)) if is_secret(run) else {}
    return NodeFiles(own, others if family_of(run).companions else {}, tables, public, masks)


def make_mask_keys(folder: Path, devices: Sequence[str], hospitals: Sequence[str] = ()) -> dict[str, dict[str, Path]]:
    """Makes a pair of keys for the aggregator, each hospital and each device, where they are not there yet; returns the
    [masks] tables of all of them.

    Raises:
        UsageError: the library for it is not installed.
    """
    folder, public = folder.resolve(), {}
    folder.mkdir(exist_ok=True, mode=0o700)
    for name in (CLOUD, *hospitals, *devices):
        key, written = folder / f"{name}.key", folder / f"{name}.pub"
        if not written.exists():
            write_text(written, f"{name} {make_key(key)}\n")
        public[name] = written.read_text()
    write_text(folder / "devices.pub", "".join(public[name] for name in devices))
    write_text(folder / "hospitals.pub", "".join(public[name] for name in hospitals))
    common = {"aggregator": folder / f"{CLOUD}.pub", "peers": folder / "devices.pub"}
    tables = {name: {"key": folder / f"{name}.key", **common} for name in devices}
    tables |= {name: {"key": folder / f"{name}.key", "hospitals": folder / "hospitals.pub"} for name in hospitals}
    return tables | {CLOUD: {"key": folder / f"{CLOUD}.key", "devices": folder / "devices.pub"}}


def start_nodes(
    job: Replay, run: Run, cohort: Cohort, files: NodeFiles, url: str, nodes: NodeProcesses, fleet: EmulatedFleet
) -> None:
    """Writes everybody's settings file into DIR/config, then starts the processes of all but newcomers, from the top
    down."""
    config, common = job.out / "config", {"broker": url, "wire": {"insecure": job.insecure}}
    top = write_toml(config / "aggregator.toml", aggregator_table(job, run, cohort, files) | common)
    nodes.start("aggregator", ["aggregator", "--once", top])
    for name in cohort.tree:
        file = write_toml(config / f"{name}.toml", hospital_table(job, name, cohort, files) | common)
        nodes.start(name, ["hospital", "--once", file])
    written = {
        name: write_toml(config / f"{name}.toml", device_table(job, name, hospital, files) | common | fleet.table(name))
        for hospital, devices in cohort.tree.items()
        for name in devices
    }
    start_devices(nodes, [file for name, file in written.items() if name not in job.newcomers], fleet)


def start_newcomers(job: Replay, nodes: NodeProcesses, fleet: EmulatedFleet) -> None:
    """Starts the devices that join when the run is over. Their hospitals keep the last words for them for a while."""
    for name in job.newcomers:
        nodes.start(f"device-{name}", ["device", "--once", job.out / "config" / f"{name}.toml"])
        fleet.confine(nodes, name)


def start_devices(nodes: NodeProcesses, files: Sequence[Path], fleet: EmulatedFleet) -> None:
    """Starts the devices of these settings files, in one process each or several in one."""
    if len(files) <= DEVICES_APART or fleet.boards:
        for file in files:
            nodes.start(f"device-{file.stem}", ["device", "--once", file])
            fleet.confine(nodes, file.stem)
        return
    for i in range(DEVICES_APART):
        nodes.start(f"devices-{i + 1}", ["device", "--once", *files[i::DEVICES_APART]])


def aggregator_table(job: Replay, run: Run, cohort: Cohort, files: NodeFiles) -> dict[str, Any]:
    """The aggregator's settings, but for how to reach the broker."""
    table: dict[str, Any] = {"name": CLOUD, "bundle": files.bundles[next(iter(cohort.tree))], "public": files.public}
    table |= {"directory": "../aggregator", "hospitals": {h: len(d) for h, d in members_of(job, cohort).items()}}
    table["settings"] = STATED  # what is recommended is in `run` already
    table |= {"run": run_table(run), "deadline": NONE}
    if files.companions:
        table["companions"] = {h: len(some) for h, some in files.companions.items()}
    if files.masks:
        table["masks"] = files.masks[CLOUD]
    if job.private is not None:
        table["private"] = private_table(job.private)
    return table


def run_table(run: Run) -> dict[str, Any]:
    """The [run] table of a run: a replay waits for everybody, so that a repetition is the same to the bit."""
    known = {f.name for f in fields(RunTable)}
    return {key: value for key, value in asdict(run).items() if key in known} | {"deadline": str(deadline_of(run))}


def hospital_table(job: Replay, name: str, cohort: Cohort, files: NodeFiles) -> dict[str, Any]:
    """A hospital's settings, but for how to reach the broker."""
    table = {"name": name, "aggregator": CLOUD, "bundle": files.bundles[name], "directory": f"../{name}"}
    table |= {
        "allow": OPEN_SCORES,
        "devices": cohort.tree[name],
        "data": files.tables.get(name),
        "companions": files.companions.get(name),
        "masks": files.masks.get(name),
    }
    if job.newcomers:
        table |= {"wait_for": len(members_of(job, cohort)[name]), "last_words": FOR_NEWCOMERS}
    return table


def device_table(job: Replay, name: str, hospital: str, files: NodeFiles) -> dict[str, Any]:
    """A device's settings, but for how to reach the broker."""
    table = {"name": name, "hospital": hospital, "bundle": files.bundles[name], "directory": f"../devices/{name}"}
    table |= {
        "allow": OPEN_SCORES,
        "public": files.public,
        "data": files.tables[name],
        "local_only": job.local_only and not is_split(job),
    }
    table["masks"] = files.masks.get(name)
    return table
