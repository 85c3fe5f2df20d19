"""`auscult replay`: recorded traces, or a data set, through real devices, hospitals, a broker and the aggregator.

Who holds what is said in cohort.py. What runs is what would run in the field: `auscult device`, `auscult hospital` and
`auscult aggregator` with settings files (kept in DIR/config), over a real broker. Devices are one process each up to
`DEVICES_APART`; beyond that they share processes, and a device's peak memory is then its process's.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.data.public_inputs import store_public
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.assembly import family_of, method_of, settings_of
from edge_sdk.nodes.kernels.outputs import check_count
from edge_sdk.nodes.kernels.split import input_shapes
from edge_sdk.nodes.private_table import Private, private_table, takes_private
from edge_sdk.nodes.serve import ALONE
from edge_sdk.replay import datasets
from edge_sdk.replay.broker import EmbeddedBroker
from edge_sdk.replay.bundles import bundles_for
from edge_sdk.replay.cohort import Cohort, Tables, cohort
from edge_sdk.replay.processes import Fleet, FleetError, write_toml
from edge_sdk.wire.options import Wire

DEVICES_APART = 24
PATIENCE, SAY_EVERY = 300.0, 10.0
"""Seconds after the last round in which no device gets on; seconds between two words about how far they are."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What to replay, as the command line says it.

    Attributes:
        data: a folder of traces, or NAME[:PATH] of a data set.
        options: of the data: fields of `cohort.Cutting` for traces, of `cohort.Dealing` for a data set.
        bundle: none: the default for these data. Several, where models may differ: dealt out to devices in turns.
        private: what the aggregator keeps to itself; its samples go to no device.
    """

    data: str | Path
    out: Path
    hospitals: int = 3
    method: str = "fedslr"
    rounds: int = 30
    seed: int = 0
    broker: str = "embedded"
    insecure: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    evaluate_every: int = 0
    local_only: bool = True
    bundle: tuple[Path, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    private: Private | None = None

    def __post_init__(self) -> None:
        if self.hospitals < 1:
            raise UsageError(f"--hospitals {self.hospitals}: at least 1")
        if self.out.exists() and any(self.out.iterdir()):
            raise UsageError(f"--out {self.out}: is not empty; name another directory, or remove it")


Line = Mapping[str, Any]


def replay(job: Replay, progress: Callable[[Line], None], say: Callable[[str], None]) -> dict[str, Any]:
    """Run it all.

    Args:
        progress: called with each line of the aggregator's metrics, as it comes.
        say: called with a sentence about what is going on.

    Returns:
        What `--json` prints; also in DIR/result.json.

    Raises:
        UsageError: something named cannot be used. FleetError: a process has failed.
    """
    began = time.monotonic()
    everybody = cohort(str(job.data), job.hospitals, job.seed, with_private(job), splits(job))
    say(everybody.said)
    run = checked_run(job, everybody)
    family = family_of(run)
    if family.public:
        check_count(run, settings_of(run), 0 if everybody.public is None else len(everybody.public))
    bundles = bundles_for(str(job.data), job.bundle, everybody, job.seed, say, several=bool(family.own_bundles))
    job.out.mkdir(parents=True, exist_ok=True)
    given = parts(job, everybody, kept(bundles, job.out))
    with contextlib.ExitStack() as stack:
        url = job.broker
        if url == "embedded":
            url = stack.enter_context(EmbeddedBroker()).url
            say(f"embedded broker at {url}")
        fleet = stack.enter_context(Fleet(job.out / "logs"))
        start_all(job, fleet, run, everybody, given, url)
        lines = follow(job, fleet, progress, say)
        if job.local_only and not splits(job):
            say("the last round is over; each device finds out what it would have reached alone (--no-local-only: not)")
        settle(fleet, Alone(job.out / "devices", everybody), say)
    return collected(job, everybody, lines, url, time.monotonic() - began)


def checked_run(job: Replay, everybody: Cohort) -> Run:
    """What the aggregator will be given; anything wrong in it is said here, before a process starts."""
    if job.broker != "embedded":
        Wire(insecure=job.insecure).check(job.broker)
    run = Run(
        id=f"replay-{job.method.replace('+', '-')}-{job.seed}",
        method=job.method,
        settings=job.settings,
        rounds=job.rounds,
        seed=job.seed,
        classes=everybody.classes,
        evaluate_every=job.evaluate_every,
    )
    settings_of(run)
    if job.private is not None and not takes_private(method_of(run).env):
        raise UsageError(f"--private: the aggregator of {job.method} has no use for a pretrained model")
    return run


def splits(job: Replay) -> bool:
    """Whether the method trains a split model. No device can do that alone, so there is no local-only baseline."""
    return family_of(Run(id="replay", method=job.method)).divided


PUBLIC, PUBLIC_WINDOWS = 1000, 256
"""Public inputs where the method needs some: of a data set as many as FedAL's paper has, or a fifth of the samples; of
traces so many windows."""


def with_public(job: Replay) -> Mapping[str, Any]:
    """The options of the data; a method that compares outputs has public inputs without asking."""
    if not family_of(Run(id="replay", method=job.method)).public or "public" in job.options:
        return job.options
    if Path(job.data).is_dir():
        return {**job.options, "public": PUBLIC_WINDOWS}
    return {**job.options, "public": min(PUBLIC, len(datasets.load(str(job.data))) // 5)}


def with_private(job: Replay) -> Mapping[str, Any]:
    """The options of the data; what is the aggregator's own is dealt to nobody."""
    options = with_public(job)
    return options if job.private is None or not job.private.reserved else {**options, "reserved": job.private.reserved}


def kept(bundles: tuple[Path, ...], out: Path) -> tuple[Path, ...]:
    """Copies beside the results: they stay explainable, and nobody changes the files under a run."""
    names = ["model.bundle"] if len(bundles) == 1 else [f"model-{i + 1}.bundle" for i in range(len(bundles))]
    copies = tuple(out / name for name in names)
    for bundle, copy in zip(bundles, copies, strict=True):
        if bundle != copy.resolve():
            shutil.copyfile(bundle, copy)
    return tuple(copy.resolve() for copy in copies)


@dataclass(frozen=True)
class Given:
    """Attributes:
    bundles: node -> its bundle: devices in turns, the others the first.
    companions: hospital -> those of its devices whose bundle is another than the first.
    tables: node -> its [data] table.
    public: file of the public inputs.
    """

    bundles: Mapping[str, Path]
    companions: Mapping[str, Sequence[str]]
    tables: Tables
    public: Path | None


def parts(job: Replay, everybody: Cohort, bundles: tuple[Path, ...]) -> Given:
    """What each node brings along, in files."""
    devices = [d for some in everybody.tree.values() for d in some]
    own = {h: bundles[0] for h in everybody.tree} | {d: bundles[i % len(bundles)] for i, d in enumerate(devices)}
    read = {path: read_bundle(path) for path in bundles}
    found, run = {path: input_shapes(bundle) for path, bundle in read.items()}, read[bundles[0]].sha256
    apart = {h: [d for d in some if read[own[d]].sha256 != run] for h, some in everybody.tree.items()}
    tables, public = everybody.tables(job.out / "data", lambda node: found[own[node]]), None
    if everybody.public is not None:
        public = store_public(job.out / "data" / "public.npz", everybody.public).resolve()
    beside = family_of(Run(id="replay", method=job.method)).companions
    return Given(own, apart if beside else {}, tables, public)


def start_all(job: Replay, fleet: Fleet, run: Run, everybody: Cohort, given: Given, url: str) -> None:
    """Settings files for everybody, then the processes, from the top down."""
    config, common = job.out / "config", {"broker": url, "wire": {"insecure": job.insecure}}
    tables, public = given.tables, {} if given.public is None else {"public": given.public}
    told = {key: value for key, value in asdict(run).items() if key not in ("bundle", "public")}
    hospitals = {name: len(devices) for name, devices in everybody.tree.items()}
    first = {**common, "bundle": given.bundles[next(iter(hospitals))]}
    table = {"name": "cloud", **first, **public, "directory": "../aggregator", "hospitals": hospitals, "run": told}
    table |= {"companions": {h: len(some) for h, some in given.companions.items()}} if given.companions else {}
    table |= {} if job.private is None else {"private": private_table(job.private)}
    fleet.start("aggregator", ["aggregator", "--once", write_toml(config / "aggregator.toml", table)])
    for name, devices in everybody.tree.items():
        table = {"name": name, "aggregator": "cloud", **first, "directory": f"../{name}", "devices": devices}
        table |= {"data": tables[name]} if name in tables else {}
        table |= {"companions": given.companions[name]} if given.companions else {}
        fleet.start(name, ["hospital", "--once", write_toml(config / f"{name}.toml", table)])
    files = []
    for hospital, devices in everybody.tree.items():
        for name in devices:
            table = {"name": name, "hospital": hospital, **common, **public, "directory": f"../devices/{name}"}
            table |= {"bundle": given.bundles[name], "data": tables[name]}
            table |= {"local_only": job.local_only and not splits(job)}
            files.append(write_toml(config / f"{name}.toml", table))
    apart = len(files) <= DEVICES_APART
    shares = [[f] for f in files] if apart else [files[i::DEVICES_APART] for i in range(DEVICES_APART)]
    for i, share in enumerate(shares):
        fleet.start(f"device-{share[0].stem}" if apart else f"devices-{i + 1}", ["device", "--once", *share])


def follow(job: Replay, fleet: Fleet, progress: Callable[[Line], None], say: Callable[[str], None]) -> list[Line]:
    """The aggregator's metrics, line by line, until the run has ended; and what it warns of."""
    lines: list[Line] = []
    warned = 0
    for line in tailed(job.out / "aggregator" / "metrics.jsonl", fleet):
        warnings = fleet.warnings("aggregator")
        for warning in warnings[warned:]:
            say(f"warning: {warning}")
        warned = len(warnings)
        line = {**line, "bytes_so_far": bytes_so_far(job.out)}
        lines.append(line)
        progress(line)
        if line["kind"] == "finished":
            return lines
    raise FleetError("the aggregator ended without finishing the run; see logs/aggregator.log")


def bytes_so_far(out: Path) -> int:
    """On all hops, seen from their lower ends as in `bytes_of`: what is published once for all is received by each.

    The hospitals' ledgers are at most half a second old.
    """
    ledgers = [json.loads(path.read_text()) for path in out.glob("hospital-*/ledger.json")]
    hops = [hop for ledger in ledgers for hop in (ledger["up"], *ledger["down"].values())]
    to_all = sum(ledger["to_all"] * len(ledger["down"]) for ledger in ledgers)
    return int(sum(hop["sent"] + hop["received"] for hop in hops) + to_all)


def tailed(path: Path, fleet: Fleet) -> Iterator[Line]:
    """Lines of a growing file, as long as the aggregator lives."""
    read = 0
    while True:
        fleet.check()
        ended = fleet.running["aggregator"].poll() is not None
        if path.exists():
            with path.open() as file:
                file.seek(read)
                while (text := file.readline()).endswith("\n"):
                    read = file.tell()
                    yield json.loads(text)
        if ended:
            return
        time.sleep(0.05)


class Alone:
    """What devices train alone after the last round, from the notes that they make."""

    def __init__(self, directory: Path, everybody: Cohort) -> None:
        self.files = [directory / d / ALONE for some in everybody.tree.values() for d in some]

    def shares(self) -> list[float]:
        """How much of its rounds each device has done."""
        notes = [json.loads(f.read_text()) if f.exists() else {"rounds": 0, "of": 1} for f in self.files]
        return [n["rounds"] / n["of"] for n in notes]


def settle(fleet: Fleet, alone: Alone, say: Callable[[str], None]) -> None:
    """Until all processes have ended; they may take their time as long as any of them gets on.

    Raises:
        FleetError: nothing has moved for PATIENCE seconds.
    """
    before: tuple[list[float], int] | None = None
    moved = said = time.monotonic()
    while running := fleet.unfinished():
        fleet.check()
        now, shares = time.monotonic(), alone.shares()
        if before != (shares, len(running)):
            before, moved = (shares, len(running)), now
        elif now - moved > PATIENCE:
            raise FleetError(f"nothing has moved for {PATIENCE:.0f} s; still running: {', '.join(running)}")
        if any(shares) and now - said > SAY_EVERY:
            done = sum(share == 1 for share in shares)
            say(f"alone {sum(shares) / len(shares):>6.0%}   {done} of {len(shares)} devices are done")
            said = now
        time.sleep(0.2)
    fleet.check()


def collected(job: Replay, everybody: Cohort, lines: list[Line], url: str, seconds: float) -> dict[str, Any]:
    """Everything that the nodes have written, as one object."""
    names = sorted(d for devices in everybody.tree.values() for d in devices)
    devices = [json.loads((job.out / "devices" / name / "result.json").read_text()) for name in names]
    hospitals = {h: json.loads((job.out / h / "ledger.json").read_text()) for h in everybody.tree}
    top = json.loads((job.out / "aggregator" / "result.json").read_text())
    files = [name for name in ("metrics.jsonl", "model.npz") if (job.out / "aggregator" / name).exists()]
    for name in files:
        shutil.copyfile(job.out / "aggregator" / name, job.out / name)
    kinds = {key for d in devices for key in d["accuracy"]}
    return {
        "method": job.method,
        "rounds": job.rounds,
        "seed": job.seed,
        "hospitals": len(everybody.tree),
        "data": {"name": str(job.data), "generated": everybody.generated, **job.options},
        "accuracy": {
            NAMES.get(k, k): mean([d["accuracy"][k] for d in devices if k in d["accuracy"]]) for k in sorted(kinds)
        },
        "auc": {NAMES.get(k, k): v for k, v in aucs(lines).items()},
        "devices": [{**d, "accuracy": {NAMES.get(k, k): v for k, v in d["accuracy"].items()}} for d in devices],
        "bytes": bytes_of(devices, hospitals),
        "seconds": round(seconds, 1),
        "memory": {"device_peak_mb": max(d["peak_memory_mb"] for d in devices)},
        "density": mean([d["density"] for d in devices if d["density"] is not None]),
        "model": {"file": str(job.out / "model.npz") if "model.npz" in files else "", **top["model"]},
        "settings": dict(job.settings),
        "broker": "embedded" if job.broker == "embedded" else url,
        "curve": lines,
    }


NAMES = {"personal": "personalised"}


def aucs(lines: list[Line]) -> dict[str, float]:
    """Area under the ROC curve of each model over the held-out samples of all devices, where it is defined."""
    last: Line = next((line for line in reversed(lines) if line.get("final")), {})
    return dict(last.get("auc", {}))


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def bytes_of(devices: list[Any], hospitals: Mapping[str, Any]) -> dict[str, int]:
    """What crossed each hop, seen from its lower end: what a device's radio and a hospital's line have carried."""
    return {
        "device_to_hospital": sum(d["bytes"]["sent"] for d in devices),
        "hospital_to_device": sum(d["bytes"]["received"] for d in devices),
        "hospital_to_aggregator": sum(h["up"]["sent"] for h in hospitals.values()),
        "aggregator_to_hospital": sum(h["up"]["received"] for h in hospitals.values()),
    }
