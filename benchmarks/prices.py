"""What a fleet costs: coefficients from measured runs of fan_in.py, checked against runs that they were not fitted on.

    python benchmarks/fan_in.py --devices 300 --out a.json             (and others, with other --devices and --inputs)
    python benchmarks/prices.py --fit a.json b.json c.json --check d.json [--devices 1000000] [--hospitals 1000] ...

CPU seconds of an answer, in each process, are base + each * n + float * P for n devices that a hospital asks and P
parameters, by least squares with no coefficient below 0; the memory of a hospital and of its broker, and the disk of a
hospital, likewise, for all of it and not for an answer. Bytes are those of the packets themselves, which are made here.
A round asks `--cohort` devices of each hospital. Money: `--gb` for a GB that leaves a site, `--core` for a core hour.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks.light_devices import name_of, publish
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.profile import find_profile
from edge_sdk.methods.fedavg import FedavgModel
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Message, pack_frame

Measured = Mapping[str, Any]
BUSY = 0.5
"""Share of a core that a node may need in a round that is to keep its pace."""
LARGEST = 2**62


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fit", type=Path, nargs="+", required=True, help="files of fan_in.py --out")
    parser.add_argument("--check", type=Path, nargs="*", default=[], help="others, which are predicted")
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--hospitals", type=int, default=1000)
    parser.add_argument("--cohort", type=int, help="devices of a hospital in a round (all)")
    parser.add_argument("--parameters", type=int, default=36_358)
    parser.add_argument("--seconds", type=float, default=600.0, help="that a round may take")
    parser.add_argument("--gb", type=float, default=0.08, help="price of a GB that leaves a site")
    parser.add_argument("--core", type=float, default=0.04, help="price of a core hour")
    parser.add_argument("--board", default="raspberry-pi-4", help="profile whose watts price a device's seconds")
    parser.add_argument("--training", type=float, default=1.0, help="core seconds of a device's round on that board")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    fitted, checks = ([json.loads(path.read_text()) for path in paths] for paths in (args.fit, args.check))
    model = fit(fitted)
    found = {"model": model, "checks": [check(model, one) for one in checks], "fleet": price(model, args)}
    print(json.dumps(found) if args.json else table(found, args))


# The model ------------------------------------------------------------------------------------------------------
def roles(one: Measured, key: str) -> dict[str, float]:
    """What a result says of broker, aggregator, a hospital and a scripted device, of one each."""
    found = one[key]
    hospitals = [value for name, value in found.items() if name.startswith("h")]
    return {"broker": found["broker"], "cloud": found["cloud"], "hospital": sum(hospitals) / len(hospitals)}


def targets(one: Measured) -> dict[str, float]:
    """Figures that the model predicts."""
    asked = one["asked"][-1]
    cpu, mb = roles(one, "cpu"), roles(one, "mb")
    disks = [sizes[-1] for name, sizes in one["disk"].items() if name.startswith("h")]
    return {
        "broker, CPU ms an answer": 1e3 * cpu["broker"] / asked,
        "hospital, CPU ms an answer": 1e3 * cpu["hospital"] * one["hospitals"] / asked,
        "broker, MB": mb["broker"],
        "hospital, MB": mb["hospital"],
        "hospital, disk MB": sum(disks) / len(disks) / 1e6,
    }


def inputs(one: Measured) -> list[float]:
    return [1.0, one["asked"][-1] / one["hospitals"] / 1e3, one["parameters"] / 1e3]


def fit(measured: Sequence[Measured]) -> dict[str, list[float]]:
    """Figure -> base, for each thousand devices of a hospital, for each thousand parameters.

    Raises:
        UsageError: fewer than three runs.
    """
    if len(measured) < 3:
        raise UsageError(f"{len(measured)} runs: three coefficients take three, with other --devices and --inputs")
    x, every = np.array([inputs(one) for one in measured]), [targets(one) for one in measured]
    return {name: least_squares(x, np.array([one[name] for one in every])) for name in every[0]}


def least_squares(x: np.ndarray, y: np.ndarray) -> list[float]:
    """argmin |x c - y| over c >= 0: of all choices of which coefficients are zero, the best that is allowed."""
    best, found = float(y @ y), np.zeros(x.shape[1])
    for count in range(1, x.shape[1] + 1):
        for some in combinations(range(x.shape[1]), count):
            c = np.linalg.lstsq(x[:, some], y, rcond=None)[0]
            error = float(np.sum((x[:, some] @ c - y) ** 2))
            if (c >= 0).all() and error < best:
                best, found = error, np.zeros(x.shape[1])
                found[list(some)] = c
    return [float(value) for value in found]


def predict(model: Mapping[str, Sequence[float]], devices: float, parameters: float) -> dict[str, float]:
    """The figures of a hospital that asks so many devices."""
    x = (1.0, devices / 1e3, parameters / 1e3)
    return {name: float(np.dot(c, x)) for name, c in model.items()}


def check(model: Mapping[str, Sequence[float]], one: Measured) -> dict[str, Any]:
    """What is predicted and what was measured, of a run that was not fitted."""
    predicted = predict(model, one["asked"][-1] / one["hospitals"], one["parameters"])
    measured = targets(one)
    return {
        "devices": one["devices"],
        "parameters": one["parameters"],
        "figures": {name: [predicted[name], measured[name]] for name in measured},
    }


# A fleet --------------------------------------------------------------------------------------------------------
def packet_bytes(parameters: int) -> tuple[int, int]:
    """Bytes of a question to a device, and of its answer, with MQTT's header; at most: models travel as floats."""
    layout, theta = layout_of(("all", (parameters,), "bias")), np.zeros(parameters, np.float32)
    run = Run(id="r" * 16, method="fedavg")
    codec = make_assembly(run, "device", make_env(run, layout, theta)).messages
    down, up = FedavgModel(lowrank.dense(layout, theta), 1, 1), Sum(theta, 1.0, 1, {"loss": 0.5})
    device, numbers = name_of("hospital-001", 1), (LARGEST, 2**20, 2**20)
    acks = (("hospital-001", LARGEST, 2**20),)
    frames = [
        Message(run.id, who, *numbers, some, LARGEST, asks, codec.encode(message))
        for who, some, asks, message in (("hospital-001", (), True, down), (device, acks, False, up))
    ]
    topic = topics.upward("hospital-001", device, topics.MESSAGES)
    question, answer = (len(publish(topic, pack_frame(frame))) for frame in frames)
    return question, answer


def price(model: Mapping[str, Sequence[float]], args: argparse.Namespace) -> dict[str, float]:
    """What a round of the whole fleet takes."""
    behind = args.devices / args.hospitals
    asked = args.cohort or behind
    one = predict(model, asked, args.parameters)
    down, up = packet_bytes(args.parameters)
    answers = asked * args.hospitals
    cpu = {who: one[f"{who}, CPU ms an answer"] / 1e3 * asked for who in ("broker", "hospital")}
    nodes = max(1, ceil(cpu["hospital"] / (BUSY * args.seconds)))
    board = find_profile(args.board)
    idle, busy = board.estimate_watts(0), board.estimate_watts(1)
    if idle is None or busy is None:
        raise UsageError(f"--board {args.board}: its profile names no watts")
    site, cloud = answers * (down + up) / 1e9, args.hospitals * (down + up) / 1e9
    hours = args.hospitals * sum(cpu.values()) / 3600
    return {
        "answers of a round": answers,
        "bytes of a question": down,
        "bytes of an answer": up,
        "GB between devices and hospitals": site,
        "GB between hospitals and the aggregator": cloud,
        "nodes of a hospital": nodes,
        "CPU s of a hospital": cpu["hospital"],
        "CPU s of its broker": cpu["broker"],
        "MB of a hospital": one["hospital, MB"],
        "MB of its broker": one["broker, MB"],
        "disk MB of a hospital": one["hospital, disk MB"],
        "answers to the aggregator": args.hospitals * nodes,
        "core hours": hours,
        "joules of a device": args.training * (busy - idle),
        "price of the cores": hours * args.core,
        "price of the GB to the aggregator": cloud * args.gb,
        "price of the GB of devices": site * args.gb,
    }


def table(found: Mapping[str, Any], args: argparse.Namespace) -> str:
    lines = [f"{'coefficient':30} {'base':>10} {'per 1000 devices':>17} {'per 1000 numbers':>17}"]
    lines += [f"{name:30} {c[0]:>10.4f} {c[1]:>17.4f} {c[2]:>17.4f}" for name, c in found["model"].items()]
    for one in found["checks"]:
        lines.append(f"\n{one['devices']} devices, {one['parameters']} parameters: predicted, measured")
        lines += [f"{name:30} {a:>10.3f} {b:>10.3f}" for name, (a, b) in one["figures"].items()]
    lines.append(f"\n{args.devices} devices in {args.hospitals} hospitals, {args.parameters} parameters, a round")
    lines += [f"{name:42} {value:>14,.3f}" for name, value in found["fleet"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
