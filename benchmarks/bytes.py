"""Bytes on the wire beside accuracy: uploads and models as floats and as integers of so many bits, on every hop.

    python benchmarks/bytes.py watch [--seconds 2] [--seeds 3] [--rounds 40] [--only METHOD ...] [--json FILE]
        [--plot FILE.svg]
    python benchmarks/bytes.py wrist $AUSCULT_DATA/wrist
    python benchmarks/bytes.py mnist $AUSCULT_DATA/mnist.npz
    python benchmarks/bytes.py esr $AUSCULT_DATA/bonn_eeg.npz   # HSGD, see benchmarks/vertical.py
    python benchmarks/bytes.py cost          # what rotation and rounding take, beside a round

The watches are those of benchmarks/baselines.py (14 wrists, two labelled seconds of each exercise), the wrists the
volunteers with two classes or more and 10 % of their labels, MNIST 20 devices with three digits and 60 images each. A
method's step has three trials with floats, on validation samples; all its rows then have that step. Nothing is chosen
for integers. Accuracy is of test samples, of a device's own model where the method has one, else of the global model,
mean over devices. Bytes are of encoded messages, both hops and both directions, beside those of FedAvg with floats in
as many rounds on the same data; the last evaluation, which shows the model as floats, is no part of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import baselines, holders, protocol, vertical
from benchmarks import fleet as fleets
from benchmarks.fleet import Fleet
from benchmarks.holders import Holder, Part
from benchmarks.protocol import TUNING, Results, by_device, grid, markdown, mean_sd, paired, tune
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.integers.vectors.labels import take_label
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.integers.vectors.rounded import UPWARD, read_vector, round_vector, upward
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.model.model import Model
from edge_sdk.replay import datasets
from edge_sdk.replay.planning.bundles import compile_network

BATCH = {"watch": 0, "wrist": 32, "mnist": 32}
DEVICES, IMAGES, DIGITS, TESTS = 20, 60, 3, 100  # MNIST: devices, images of each, its digits, test images of each
HOPS = ("devices up", "hospitals up", "hospitals down", "devices down")
FLOATS = "float32"
CHANNELS: Mapping[str, Uploads | None] = {
    FLOATS: None,
    "8 bits": Uploads(bits=8),
    "4 bits": Uploads(bits=4),
    "3 bits": Uploads(bits=3),
    "2 bits": Uploads(bits=2),
}
PLAINER: Mapping[str, Uploads] = {
    "4 bits, not rotated": Uploads(bits=4, rotate=False),
    "4 bits, no feedback": Uploads(bits=4, feedback=False),
    "2 bits, not rotated": Uploads(bits=2, rotate=False),
    "2 bits, no feedback": Uploads(bits=2, feedback=False),
}
COMMON = {"decay": 0.995}
Job = tuple[str, dict[str, Any], list[dict[str, Any]]]
"""Method, what is fixed, trials."""
JOBS: Mapping[str, Job] = {
    "FedAvg": ("fedavg", {**COMMON, "local_epochs": 6}, grid(eta_l=(0.02, 0.05, 0.1))),
    "FedSLR": (
        "fedslr",
        {**COMMON, "local_epochs": 6, "personal_epochs": 0, "eta_g": 100.0, "lam": 0.001},
        grid(eta_l=(0.02, 0.05, 0.1)),
    ),
    "AugFL": ("augfl", {"alpha": 0.01, "upload": "u"}, grid(rho=(0.3, 1.0, 3.0))),
    "FedBCD": ("fedbcd", {"local_steps": 6, "draw_steps": False}, grid(eta_x=(0.005, 0.015, 0.04))),
}


# Data -----------------------------------------------------------------------------------------------------------
def fleet_of(data: str, path: Path | None, seconds: float) -> Fleet:
    if data == "watch":
        return baselines.fleet_of(seconds)
    if path is None:
        raise SystemExit(f"{data}: name its files")
    if data == "wrist":
        people = holders.people(path, 0.1, 0)
        classes = 1 + max(int(p.y.max()) for h in people for p in (h.train, h.validation, h.test) if len(p.y))
        return Fleet(network("wrist", f"{people[0].train.x.shape[1]},64", classes), people)
    return Fleet(network("mlp", "784", 10), images(path))


def network(name: str, shape: str, classes: int, *more: str) -> Model:
    return Model(compile_network(name, ["--input", shape, "--classes", str(classes), *more], 0, lambda text: None))


def images(path: Path) -> list[Holder]:
    """Devices with a few digits each, a quarter more of the images for validation, and test images of these digits."""
    table = datasets.load(f"mnist:{path}")
    train, test = datasets.hold_out(table)
    found, count = [], IMAGES + IMAGES // 4
    for i in range(DEVICES):
        random = np.random.default_rng([i, 77])
        digits = random.choice(10, DIGITS, replace=False)
        mine = random.choice(train[np.isin(table.y[train], digits)], count, replace=False)
        tests = random.choice(test[np.isin(table.y[test], digits)], TESTS, replace=False)
        parts = [part(table, rows) for rows in (mine[:IMAGES], mine[IMAGES:], tests)]
        found.append(Holder(f"d{i:02d}", *parts))
    return found


def part(table: datasets.Table, rows: Any) -> Part:
    return Part(table.x[rows].reshape(len(rows), -1), table.y[rows], np.zeros(len(rows), np.int64))


# One method -----------------------------------------------------------------------------------------------------
def tuned(fleet: Fleet, job: Job, rounds: int, batch: int) -> Any:
    name, fixed, trials = job
    return tune(trials, lambda trial: played(fleet, name, {**fixed, **trial}, rounds, TUNING, None, batch)["right"])


def played(
    fleet: Fleet, name: str, settings: Mapping[str, Any], rounds: int, seed: int, uploads: Uploads | None, batch: int
) -> dict[str, Any]:
    """Accuracies and bytes of one run."""
    own = {} if name == "augfl" else {"batch": batch}  # its gradients are of all samples
    p = fleets.play(fleet, name, {**own, **settings}, rounds, seed, uploads=uploads)
    return {
        "right": p.curve[-1].value,
        "test": fleets.test_accuracies(fleet, p.best),
        "hops": p.hops,
        "rank": p.rank,
    }


# The table ------------------------------------------------------------------------------------------------------
HEAD = ("", "numbers", "accuracy", "against floats", *HOPS, "together", "rank")


def row(name: str, channel: str, seeds: Sequence[Any], floats: Sequence[Any], unit: Mapping[str, int]) -> list[str]:
    ours, theirs = (by_device([s["test"] for s in some]) for some in (seeds, floats))
    against = "" if channel == FLOATS else paired(list(ours.values()), [theirs[d] for d in ours])
    shares = [mean([s["hops"][hop] for s in seeds]) / unit[hop] for hop in HOPS]
    return [
        name, channel, mean_sd([mean(s["test"].values()) for s in seeds], factor=100), against,
        *(f"{share:.3f}" for share in shares), f"**{together(seeds, unit):.3f}**",
        f"{mean([s['rank'] for s in seeds]):.0f}",
    ]  # fmt: skip


def together(seeds: Sequence[Any], unit: Mapping[str, int]) -> float:
    """Bytes of all hops and directions, as a share of the unit's."""
    return mean([sum(s["hops"].values()) for s in seeds]) / sum(unit.values())


def mean(values: Any) -> float:
    every = list(values)
    return float(sum(every) / len(every))


# The plot -------------------------------------------------------------------------------------------------------
COLOURS = ("#1f6feb", "#d29922", "#2da44e", "#cf222e")
WIDE, HIGH, EDGE = 640, 400, 56


def plot(points: Mapping[str, Sequence[tuple[str, float, float]]]) -> str:
    """SVG: share of FedAvg's bytes (logarithmic) across, accuracy up; a line for each method."""
    shares = [share for line in points.values() for _, share, _ in line]
    found = [accuracy for line in points.values() for _, _, accuracy in line]
    low, high = min(found) - 1, max(found) + 1
    left, right = np.log2(min(shares) / 1.2), np.log2(max(shares) * 1.2)

    def at(share: float, accuracy: float) -> tuple[float, float]:
        x = EDGE + (np.log2(share) - left) / (right - left) * (WIDE - 2 * EDGE)
        return float(x), float(HIGH - EDGE - (accuracy - low) / (high - low) * (HIGH - 2 * EDGE))

    parts = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDE} {HIGH}' font-family='sans-serif'>"]
    parts += [f"<rect width='{WIDE}' height='{HIGH}' fill='white'/>"]
    parts += [text(WIDE / 2, HIGH - 12, "bytes, both hops and directions (FedAvg with float32: 1)", "middle")]
    parts += [text(12, 20, "accuracy on test samples, %", "start")]
    for exponent in range(int(np.ceil(left)), int(np.floor(right)) + 1):
        x, _ = at(2.0**exponent, low)
        parts += [line(x, EDGE, x, HIGH - EDGE, "#ddd")]
        parts += [text(x, HIGH - EDGE + 16, "1" if not exponent else f"1/{2**-exponent}", "middle")]
    for step in range(int(np.ceil(low)), int(high) + 1, max(1, round((high - low) / 6))):
        _, y = at(2.0**right, step)
        parts += [line(EDGE, y, WIDE - EDGE, y, "#ddd"), text(EDGE - 6, y + 4, str(step), "end")]
    for k, (name, dots) in enumerate(points.items()):
        places = [at(share, accuracy) for _, share, accuracy in dots]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts += [f"<polyline points='{path}' fill='none' stroke='{COLOURS[k]}' stroke-width='1.5'/>"]
        for (channel, _, _), (x, y) in zip(dots, places, strict=True):
            parts += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{COLOURS[k]}'/>"]
            parts += [text(x, y - 7, channel.removesuffix(" bits"), "middle", 10)]
        parts += [f"<text x='{WIDE - EDGE + 4}' y='{EDGE + 16 * k}' font-size='12' fill='{COLOURS[k]}'>{name}</text>"]
    return "\n".join([*parts, "</svg>\n"])


def text(x: float, y: float, words: str, anchor: str, size: int = 12) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' fill='#444'>{words}</text>"


def line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f"<line x1='{x:.1f}' y1='{y:.1f}' x2='{to_x:.1f}' y2='{to_y:.1f}' stroke='{colour}'/>"


# What it costs --------------------------------------------------------------------------------------------------
def costs(size: int = 100_000, devices: int = 10, bits: int = 4) -> dict[str, float]:
    """Milliseconds of one core for each part of a round of so many uploads of so many numbers."""
    env, settings = NodeEnv(me="d", seed=1), Uploads(bits=bits)
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    how = upward(env, settings, 1, bits)
    one = round_vector(how, x, 0.0, env.random(1, UPWARD))
    packed, width = rounding.pack(one.steps, bits), rounding.width(bits, devices)
    total = one.steps * np.uint32(devices)
    summed = rounding.pack(total, width)
    upload = Integers(take_label(Sum(x, 1.0), ("total",)), ("total",), size, bits, one.half, 1, one.spread, packed)

    def add() -> Any:
        m = replace(upload)
        m.check(layout_of(("x", (size,), "linear")))
        return m.measure(), total + m.steps

    parts: dict[str, Callable[[], Any]] = {
        READS: lambda: read_vector(how, rounding.unpack(packed, size, bits), 1.0, 1, x),
        ROUNDS_UP: lambda: rounding.pack(round_vector(how, x, 1.0, env.random(1, UPWARD)).steps, bits),
        ADDS: add,
        OPENS: lambda: read_vector(how, rounding.unpack(summed, size, width), 1.0, devices, x),
    }
    return {name: milliseconds(f) for name, f in parts.items()}


READS, ROUNDS_UP = "device: reads a change of the model", "device: rounds an upload, keeps what is left"
ADDS, OPENS = "hospital: reads, measures and adds an upload", "aggregator: opens a sum"


def milliseconds(f: Callable[[], Any], times: int = 30) -> float:
    """Time on the processor, the median of so many calls."""
    taken = []
    for _ in range(times):
        began = time.thread_time()
        f()
        taken.append(time.thread_time() - began)
    return 1000 * float(np.median(taken))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("data", choices=("watch", "wrist", "mnist", "esr", "cost"))
    words.add_argument("path", type=Path, nargs="?")
    words.add_argument("--seconds", type=float, default=2.0)
    words.add_argument("--seeds", type=int, default=3)
    words.add_argument("--rounds", type=int, default=40)
    words.add_argument("--only", nargs="+", choices=list(JOBS), default=list(JOBS), metavar="METHOD")
    words.add_argument("--channels", nargs="+", choices=list(CHANNELS), default=list(CHANNELS), metavar="BITS")
    words.add_argument("--plainer", action="store_true", help="FedAvg also without rotation, and without feedback")
    words.add_argument("--json", type=Path, help="results are kept there, and not computed again")
    words.add_argument("--plot", type=Path, help="an SVG file to be written")
    options = words.parse_args()
    if options.data == "cost":
        print(markdown(("100,000 numbers", "ms"), [(name, f"{ms:.1f}") for name, ms in costs().items()]))
        return
    if options.data == "esr":
        print(vertical.table(options.path, options.seeds, options.rounds))
        return
    protocol.check_budgets({name: job[2] for name, job in JOBS.items()})
    kept, batch = Results(options.json), BATCH[options.data]
    fleet = cache(lambda: fleet_of(options.data, options.path, options.seconds))

    def seeds_of(name: str, channel: str, uploads: Uploads | None) -> list[Any]:
        method, fixed, _ = JOBS[name]
        chosen, _ = kept.get(f"{name}: trials", lambda: tuned(fleet(), JOBS[name], options.rounds, batch))
        settings = {**fixed, **chosen}
        return [
            kept.get(
                f"{name}, {channel}: {seed}",
                lambda seed=seed: played(fleet(), method, settings, options.rounds, seed, uploads, batch),
            )
            for seed in range(options.seeds)
        ]

    unit = {hop: round(mean([s["hops"][hop] for s in seeds_of("FedAvg", FLOATS, None)])) for hop in HOPS}
    rows, points = [], dict[str, list[tuple[str, float, float]]]()
    for name in options.only:
        floats = seeds_of(name, FLOATS, None)
        chosen = {channel: CHANNELS[channel] for channel in CHANNELS if channel in (FLOATS, *options.channels)}
        channels = {**chosen, **(PLAINER if options.plainer and name == "FedAvg" else {})}
        for channel, uploads in channels.items():
            seeds = seeds_of(name, channel, uploads)
            rows.append(row(name, channel, seeds, floats, unit))
            print(markdown(HEAD, rows[-1:]), flush=True)
            if channel in CHANNELS:
                accuracy = 100 * mean([mean(s["test"].values()) for s in seeds])
                points.setdefault(name, []).append((channel, together(seeds, unit), accuracy))
    print(f"\n{markdown(HEAD, rows)}")
    if options.plot:
        options.plot.write_text(plot(points))


if __name__ == "__main__":
    main()
