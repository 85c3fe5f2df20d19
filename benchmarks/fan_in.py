"""One hospital with thousands of devices that are connected over a real mosquitto: rounds, memory, processors, disk.

    python benchmarks/fan_in.py [--devices 10000] [--rounds 3] [--hospitals 1] [--crowds 2] [--out FILE]
    python benchmarks/fan_in.py --devices 200 --processes

Broker, aggregator and hospitals are the real ones, each a process; devices are scripted (light_devices.py), in
`--crowds` processes of many connections for each hospital. With `--hospitals 2` the devices are split by the prefix of
their names. With `--processes` the devices are real ones that train, each a process with 50 samples; their memory is
what each has for itself, and once what they share. `--cohort K`: devices that are asked in a round (all). The model is
an MLP of 2114 parameters (`--inputs`, `--bundle`). CPU seconds are of a round: the mean over all rounds but the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.light_devices import name_of
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.model.bundle import read_bundle
from edge_sdk.replay.nodes.broker import Mosquitto
from edge_sdk.replay.planning.bundles import compile_network

HERE = Path(__file__).parent
SAMPLES = 50
"""Of a device that trains."""
MOST = 8000
"""Parameters of a model that travels in one piece."""
TICK = os.sysconf("SC_CLK_TCK")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hospitals", type=int, default=1)
    parser.add_argument("--crowds", type=int, default=2)
    parser.add_argument("--processes", action="store_true", help="devices are processes of their own")
    parser.add_argument("--cohort", type=int, default=0)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which it is given up")
    parser.add_argument("--inputs", type=int, default=30, help="of that MLP: more inputs, more parameters")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="file for the JSON object")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bundle is None:
        args.bundle = compile_network("mlp", ["--input", str(args.inputs), "--classes", "2"], 3, lambda text: None)
    if (count := read_bundle(args.bundle).manifest["parameters"]) > MOST:
        parser.error(f"--bundle: {count} parameters; scripted devices take no chunks: at most {MOST}")
    if args.serve:
        serve(args, *args.serve)
        return
    found = measure(args)
    if args.out is not None:
        args.out.write_text(json.dumps(found))
    print(json.dumps(found) if args.json else table(found))


def run_of(args: argparse.Namespace) -> Run:
    settings = {"weighting": "uniform", "participation": float(args.cohort or 1)}
    bundle = read_bundle(args.bundle)
    classes = tuple(f"class {i}" for i in range(int(bundle.manifest["classes"])))
    return Run(
        id="fan-in", method="fedavg", settings=settings, rounds=args.rounds, bundle=bundle.sha256, classes=classes
    )


def hospitals_of(args: argparse.Namespace) -> dict[str, int]:
    """Hospital -> number of its devices."""
    share = args.devices // args.hospitals
    return {f"h{i + 1}": share for i in range(args.hospitals)}


# Nodes as processes ---------------------------------------------------------------------------------------------
def serve(args: argparse.Namespace, name: str, place: str) -> None:
    """Plays the aggregator or a hospital until the run is over; place: URL of the broker, and a directory."""
    url, _, directory = place.partition(" ")
    sizes, run = hospitals_of(args), run_of(args)
    given: dict[str, Any] = {"broker": url, "bundle": args.bundle, "directory": Path(directory) / name}
    if name == "cloud":
        from aggregator.aggregator import Aggregator
        from aggregator.options import HospitalList, Process

        hospitals, process = HospitalList(sizes, deadline="none"), Process(device="cpu")
        cloud = Aggregator("cloud", run=run, hospitals=hospitals, process=process, **given)
        cloud.on_event = tell
        cloud.run(until=cloud.finished.is_set)
    elif name not in sizes:
        serve_device(args, name, given)
    else:
        from edge_sdk.nodes.hospital.hospital import Hospital

        devices = [name_of(name, i) for i in range(sizes[name])]
        hospital = Hospital(name, aggregator="cloud", devices=devices, **given)
        hospital.run(until=hospital.finished.is_set)


def serve_device(args: argparse.Namespace, name: str, given: dict[str, Any]) -> None:
    """Plays a device with samples of its own, drawn at random."""
    import numpy as np

    from edge_sdk.data.samples import label_samples
    from edge_sdk.nodes.device.device import Device

    manifest, run = read_bundle(args.bundle).manifest, run_of(args)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    x = random.standard_normal((SAMPLES, *manifest["inputs"][0]["shape"])).astype(np.float32)
    samples = label_samples(x, random.integers(0, len(run.classes), SAMPLES), run.classes)
    device = Device(name, hospital=name.rpartition("-")[0], **given)
    device.train_on(samples)
    print("open", flush=True)
    device.run(until=device.finished.is_set)


def tell(event: Any) -> None:
    if isinstance(event, Progress):
        print(json.dumps({"round": event.round, "count": event.devices, "at": time.monotonic()}), flush=True)


def start(args: argparse.Namespace, *command: str) -> subprocess.Popen[str]:
    sizes = [f"--{name}={getattr(args, name)}" for name in ("devices", "rounds", "hospitals", "cohort", "bundle")]
    return subprocess.Popen(
        [sys.executable, __file__, *sizes, "--serve", *command], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def start_crowds(args: argparse.Namespace, port: int) -> list[subprocess.Popen[str]]:
    """The scripted devices of all hospitals; returns when all are connected."""
    run, found = json.dumps(asdict(run_of(args))), []
    for hospital, count in hospitals_of(args).items():
        for i in range(args.crowds):
            first, last = (count * k // args.crowds for k in (i, i + 1))
            place = [str(port), str(first), str(last - first), str(args.bundle), run, hospital]
            command = [sys.executable, str(HERE / "light_devices.py"), *place]
            found.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT))
    return wait_for(found)


def start_devices(args: argparse.Namespace, place: str) -> list[subprocess.Popen[str]]:
    """The devices of all hospitals, each as a process; returns when all are about to connect."""
    names = [name_of(hospital, i) for hospital, count in hospitals_of(args).items() for i in range(count)]
    return wait_for([start(args, name, place) for name in names])


def wait_for(processes: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """The processes, once each has said that it is ready."""
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "open\n":
            raise RuntimeError("a process of devices has ended")
    return processes


# Measuring ------------------------------------------------------------------------------------------------------
def measure(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as base, Mosquitto() as broker:
        place = f"{broker.url} {base}"
        assert broker.process is not None
        began = time.monotonic()
        crowds = start_devices(args, place) if args.processes else []
        nodes = {name: start(args, name, place) for name in ("cloud", *hospitals_of(args))}
        if not args.processes:
            time.sleep(5)
            began = time.monotonic()
            crowds = start_crowds(args, broker.port)
        opened = time.monotonic()
        watched = {"broker": [child_of(broker.process.pid)], **{name: [p.pid] for name, p in nodes.items()}}
        if args.processes:
            watched["devices"] = [p.pid for p in crowds]
        else:
            watched |= {f"crowd {i}": [p.pid] for i, p in enumerate(crowds)}
        end = threading.Timer(args.limit, lambda: [p.kill() for p in nodes.values()])
        end.start()
        try:
            rounds = follow(nodes["cloud"], lambda: {name: look(pids) for name, pids in watched.items()}, Path(base))
        finally:
            end.cancel()
            for process in (*nodes.values(), *crowds):
                process.kill()
                process.wait()
    return summarise(args, rounds, opened - began, opened)


def follow(cloud: subprocess.Popen[str], gauges: Callable[[], dict[str, Any]], base: Path) -> list[dict[str, Any]]:
    """A line for each round: when it ended, who answered, and what each process had taken by then."""
    assert cloud.stdout is not None
    found = []
    for line in cloud.stdout:
        disk = {one.name: size_of(one) for one in base.iterdir() if "-" not in one.name}
        found.append({**json.loads(line), "gauges": gauges(), "disk": disk})
    return found


def look(pids: list[int]) -> dict[str, float]:
    """CPU seconds of processes, and their resident MB, with pages of files that all have counted once."""
    ticks, own, shared = 0, 0, 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        resident, of_files = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
        ticks += int(words[11]) + int(words[12])
        own, shared = own + resident - of_files, max(shared, of_files)
    return {"cpu": ticks / TICK, "mb": (own + shared) * os.sysconf("SC_PAGE_SIZE") / 2**20}


def size_of(directory: Path) -> int:
    """Bytes of all files in a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def child_of(pid: int) -> int:
    """The process that another one has started: the broker under its guard."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def summarise(args: argparse.Namespace, rounds: list[dict[str, Any]], took: float, opened: float) -> dict[str, Any]:
    if len(rounds) < 2:
        raise RuntimeError(f"{len(rounds)} rounds within {args.limit:g} s; two are needed")
    first, last, count = rounds[0], rounds[-1], len(rounds) - 1
    names = list(first["gauges"])
    cpu = {n: (last["gauges"][n]["cpu"] - first["gauges"][n]["cpu"]) / count for n in names}
    return {
        "devices": args.devices,
        "hospitals": args.hospitals,
        "asked": [r["count"] for r in rounds],
        "connecting": took,
        "first_round": first["at"] - opened,
        "seconds": (last["at"] - first["at"]) / count,
        "cpu": {name: round(value, 3) for name, value in cpu.items()},
        "mb": {name: round(last["gauges"][name]["mb"], 1) for name in names},
        "disk": {name: [r["disk"].get(name, 0) for r in rounds] for name in last["disk"]},
        "parameters": int(read_bundle(args.bundle).manifest["parameters"]),
        "load": os.getloadavg()[0],
    }


def table(found: dict[str, Any]) -> str:
    asked = found["asked"][-1]
    lines = [
        f"{found['devices']} devices in {found['hospitals']} hospitals, {asked} answers a round, "
        f"{found['parameters']} parameters; load {found['load']:.0f}",
        f"connected in {found['connecting']:.1f} s, first round after {found['first_round']:.1f} s, "
        f"then {found['seconds']:.2f} s a round, {asked / found['seconds']:.0f} answers a second",
        f"{'':10} {'CPU s a round':>14} {'ms an answer':>13} {'MB':>8} {'disk, MB':>9}",
    ]
    for name, cpu in found["cpu"].items():
        disk = found["disk"].get(name)
        size = "" if disk is None else f"{disk[-1] / 1e6:.1f}"
        lines.append(f"{name:10} {cpu:>14.2f} {1e3 * cpu / asked:>13.3f} {found['mb'][name]:>8.0f} {size:>9}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
