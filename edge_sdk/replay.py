"""`auscult replay`: recorded traces through real devices, hospitals, a broker and the aggregator, each a process.

A trace file is one device. What runs is what would run in the field: `auscult device`, `auscult hospital` and `auscult
aggregator` with settings files (kept in DIR/config), over a real broker. Devices are one process each up to
`DEVICES_APART`; beyond that they share processes, and a device's peak memory is then its process's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.assembly import method_of, settings_of, unsplit
from edge_sdk.broker import EmbeddedBroker
from edge_sdk.errors import UsageError
from edge_sdk.fleet import Fleet, FleetError, write_toml
from edge_sdk.model import Model
from edge_sdk.run import Run, checked_name
from edge_sdk.traces import Trace, load_folder
from edge_sdk.traces.synth import MARK
from edge_sdk.wire import Wire

DEVICES_APART = 24
AT_THE_END = 300.0
"""Seconds that devices may take after the last round, for what they reach alone."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What to replay, as the command line says it."""

    traces: Path
    out: Path
    hospitals: int = 3
    method: str = "fedslr"
    rounds: int = 30
    seed: int = 0
    broker: str = "embedded"
    insecure: bool = False
    label: str = "activity"
    window: int = 64
    stride: int = 32
    gap: float = 0.5
    held_out: float = 0.3
    evaluate_every: int = 0
    local_only: bool = True
    bundle: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

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
    traces = load_folder(job.traces, label=job.label)
    tree = hospitals_of([checked_name(t.name, "device name (from the file's)") for t in traces], job.hospitals)
    say(f"{len(traces)} devices in {len(tree)} hospitals, {len(traces[0].classes)} classes, {traces[0].rate_hz:.0f} Hz")
    run = checked_run(job, traces)
    job.out.mkdir(parents=True, exist_ok=True)
    bundle = kept(bundle_for(job, traces, say), job.out)
    with contextlib.ExitStack() as stack:
        url = job.broker
        if url == "embedded":
            url = stack.enter_context(EmbeddedBroker()).url
            say(f"embedded broker at {url}")
        fleet = stack.enter_context(Fleet(job.out / "logs"))
        start_all(job, fleet, run, tree, traces, bundle, url)
        lines = follow(job, fleet, progress)
        say("the last round is over; each device finds out what it would have reached alone" if job.local_only else "")
        late = fleet.wait(AT_THE_END)
        if late:
            raise FleetError(f"still running {AT_THE_END:.0f} s after the last round: {', '.join(late)}")
        fleet.check()
    return collected(job, traces, tree, lines, url, time.monotonic() - began)


def checked_run(job: Replay, traces: tuple[Trace, ...]) -> Run:
    """What the aggregator will be given; anything wrong in it is said here, before a process starts."""
    if job.broker != "embedded":
        Wire(insecure=job.insecure).check(job.broker)
    run = Run(
        id=f"replay-{job.method}-{job.seed}",
        method=job.method,
        settings=job.settings,
        rounds=job.rounds,
        seed=job.seed,
        classes=traces[0].classes,
        evaluate_every=job.evaluate_every,
    )
    settings_of(run)
    if method_of(run).splits:
        raise UsageError(unsplit(run))
    return run


def hospitals_of(devices: list[str], count: int) -> dict[str, list[str]]:
    """Devices dealt out like cards, so that hospitals are about equal."""
    count = min(count, len(devices))
    return {f"hospital-{h + 1}": sorted(devices)[h::count] for h in range(count)}


def bundle_for(job: Replay, traces: tuple[Trace, ...], say: Callable[[str], None]) -> Path:
    """The bundle that was named, the one that ships if it fits these traces, or one compiled for them."""
    channels, classes = len(traces[0].channels), len(traces[0].classes)
    shape = (channels, job.window)
    if job.bundle is not None:
        check_fit(job.bundle, shape, classes)
        return job.bundle.resolve()
    shipped = shipped_bundle("wrist.bundle")
    if shipped is not None:
        with contextlib.suppress(UsageError):
            check_fit(shipped, shape, classes)
            return shipped
    say(f"compiling a model for {channels} channels, {job.window} samples and {classes} classes")
    path = job.out / "model.bundle"
    command = [sys.executable, "-m", "models", "compile", "wrist", "-o", str(path), "--seed", str(job.seed)]
    command += ["--input", f"{channels},{job.window}", "--classes", str(classes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"no model could be compiled for these traces:\n{done.stderr.strip() or done.stdout.strip()}")
    return path.resolve()


def kept(bundle: Path, out: Path) -> Path:
    """A copy beside the results: they stay explainable, and nobody changes the file under a run."""
    copy = out / "model.bundle"
    if bundle != copy.resolve():
        shutil.copyfile(bundle, copy)
    return copy.resolve()


def shipped_bundle(name: str) -> Path | None:
    """A bundle that comes with the `models` package, if that is installed. Found by its path: nothing is imported."""
    spec = importlib.util.find_spec("models")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / "bundles" / name
    return path if path.is_file() else None


def check_fit(path: Path, shape: tuple[int, ...], classes: int) -> None:
    model = Model(path, check=False)
    found, known = model.input_shape, model.classes
    if found != shape or known < classes:
        raise UsageError(
            f"{path}: its input is {found} and it tells {known} classes apart; these traces need {shape} and {classes}"
        )


def start_all(
    job: Replay,
    fleet: Fleet,
    run: Run,
    tree: Mapping[str, list[str]],
    traces: tuple[Trace, ...],
    bundle: Path,
    url: str,
) -> None:
    """Settings files for everybody, then the processes, from the top down."""
    config, common = job.out / "config", {"broker": url, "bundle": bundle, "wire": {"insecure": job.insecure}}
    told = {key: value for key, value in asdict(run).items() if key != "bundle"}
    hospitals = {name: len(devices) for name, devices in tree.items()}
    table = {"name": "cloud", **common, "directory": "../aggregator", "hospitals": hospitals, "run": told}
    fleet.start("aggregator", ["aggregator", "--once", write_toml(config / "aggregator.toml", table)])
    for name, devices in tree.items():
        table = {"name": name, "aggregator": "cloud", **common, "directory": f"../{name}", "devices": devices}
        fleet.start(name, ["hospital", "--once", write_toml(config / f"{name}.toml", table)])
    files = [write_toml(config / f"{t.name}.toml", device_table(job, t, tree, common)) for t in traces]
    apart = len(files) <= DEVICES_APART
    shares = [[f] for f in files] if apart else [files[i::DEVICES_APART] for i in range(DEVICES_APART)]
    for i, share in enumerate(shares):
        fleet.start(f"device-{share[0].stem}" if apart else f"devices-{i + 1}", ["device", "--once", *share])


def device_table(job: Replay, trace: Trace, tree: Mapping[str, list[str]], common: Mapping[str, Any]) -> dict[str, Any]:
    hospital = next(h for h, devices in tree.items() if trace.name in devices)
    data = {"trace": (job.traces / f"{trace.name}.csv").resolve(), "label": job.label, "window": job.window}
    data |= {"stride": job.stride, "gap": job.gap, "held_out": job.held_out}
    directory = f"../devices/{trace.name}"
    return {
        "name": trace.name,
        "hospital": hospital,
        **common,
        "directory": directory,
        "local_only": job.local_only,
        "data": data,
    }


def follow(job: Replay, fleet: Fleet, progress: Callable[[Line], None]) -> list[Line]:
    """The aggregator's metrics, line by line, until the run has ended."""
    lines: list[Line] = []
    for line in tailed(job.out / "aggregator" / "metrics.jsonl", fleet):
        line = {**line, "bytes_so_far": bytes_so_far(job.out, line)}
        lines.append(line)
        progress(line)
        if line["kind"] == "finished":
            return lines
    raise FleetError("the aggregator ended without finishing the run; see logs/aggregator.log")


def bytes_so_far(out: Path, line: Line) -> int:
    """On all hops. The hospitals' ledgers are at most half a second old."""
    total = line["bytes"].get("bytes_in", 0) + line["bytes"].get("bytes_out", 0)
    for path in out.glob("hospital-*/ledger.json"):
        ledger = json.loads(path.read_text())
        total += sum(d["sent"] + d["received"] for d in ledger["down"].values())
    return int(total)


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


def collected(
    job: Replay, traces: tuple[Trace, ...], tree: Mapping[str, list[str]], lines: list[Line], url: str, seconds: float
) -> dict[str, Any]:
    """Everything that the nodes have written, as one object."""
    devices = [json.loads((job.out / "devices" / t.name / "result.json").read_text()) for t in traces]
    hospitals = {h: json.loads((job.out / h / "ledger.json").read_text()) for h in tree}
    top = json.loads((job.out / "aggregator" / "result.json").read_text())
    for name in ("metrics.jsonl", "model.npz"):
        shutil.copyfile(job.out / "aggregator" / name, job.out / name)
    kinds = {key for d in devices for key in d["accuracy"]}
    return {
        "method": job.method,
        "rounds": job.rounds,
        "seed": job.seed,
        "hospitals": len(tree),
        "traces": {"directory": str(job.traces), "generated": is_generated(job.traces)},
        "accuracy": {
            NAMES.get(k, k): mean([d["accuracy"][k] for d in devices if k in d["accuracy"]]) for k in sorted(kinds)
        },
        "devices": [{**d, "accuracy": {NAMES.get(k, k): v for k, v in d["accuracy"].items()}} for d in devices],
        "bytes": bytes_of(devices, hospitals),
        "seconds": round(seconds, 1),
        "memory": {"device_peak_mb": max(d["peak_memory_mb"] for d in devices)},
        "density": mean([d["density"] for d in devices if d["density"] is not None]),
        "model": {"file": str(job.out / "model.npz"), **top["model"]},
        "settings": dict(job.settings),
        "broker": "embedded" if job.broker == "embedded" else url,
        "curve": lines,
    }


NAMES = {"personal": "personalised"}


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


def is_generated(directory: Path) -> bool:
    """Whether these traces say of themselves that they are synthetic."""
    return (directory / MARK).is_file()
