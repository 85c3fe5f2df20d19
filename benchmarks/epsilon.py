"""Accuracy beside epsilon: methods whose devices clip their uploads and add noise, with more and less of it.

    python benchmarks/epsilon.py mnist $AUSCULT_DATA/mnist.npz [--devices 480] [--rounds 15] [--seeds 1] [--clips 0.3]
        [--epsilons inf 8 2] [--method fedslr]
    python benchmarks/epsilon.py watch

Epsilon is that of the whole run at delta 1e-5, towards the aggregator, which sees each hospital's sum; a cohort is all
devices of a hospital. MNIST: devices with 100 images each, dealt out evenly to three hospitals, a linear model of 7,850
parameters. The watches: 14 wrists, two labelled seconds of each exercise, the wrist model of 77,543 parameters. For
each row the clip is the best of those given, else of three, on validation samples of the first seed. Accuracy is that
of the global model on test samples, mean over devices; which clip is best is not counted into epsilon.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import baselines
from benchmarks import fleet as fleets
from benchmarks.bytes import network, part
from benchmarks.fleet import Fleet
from benchmarks.holders import Holder
from benchmarks.protocol import markdown, mean_sd
from edge_sdk.methods.integers.vectors.privacy import NOISY, Privacy
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.replay import datasets

EPSILONS = (inf, 16.0, 8.0, 4.0, 2.0)
CLIPS: Mapping[str, tuple[float, ...]] = {"mnist": (0.3, 1.0, 3.0), "watch": (0.1, 0.5, 2.5)}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "mnist": {"eta_l": 0.1, "batch": 25, "local_epochs": 2, "weighting": "uniform"},
    "watch": {"eta_l": 0.05, "batch": 0, "local_epochs": 6, "decay": 0.995, "weighting": "uniform"},
}
FEDSLR: Mapping[str, Any] = {"personal_epochs": 0, "lam": 0.0001, "eta_g": 10.0}
"""What FedSLR has beside FedAvg's settings: no personal component, so that what is judged is what is told."""
IMAGES, TESTS = 100, 20


def fleet_of(data: str, path: Path | None, devices: int) -> Fleet:
    if data == "watch":
        return baselines.fleet_of(2.0)
    if path is None:
        raise SystemExit(f"{data}: name its file")
    return Fleet(network("mlp", "784", 10, "--arg", "hidden=[]"), images(path, devices))


def images(path: Path, devices: int) -> list[Holder]:
    """Devices with images of all digits, a few more for validation, and test images."""
    table = datasets.load(f"mnist:{path}")
    train, test = (np.random.default_rng(5).permutation(rows) for rows in datasets.hold_out(table))
    each, found = IMAGES + TESTS, []
    for i in range(devices):
        mine, tests = train[each * i : each * (i + 1)], test[TESTS * i : TESTS * (i + 1)]
        found.append(Holder(f"d{i:03d}", *(part(table, rows) for rows in (mine[:IMAGES], mine[IMAGES:], tests))))
    return found


def settings_of(method: str, data: str) -> dict[str, Any]:
    """Settings of a method on some data."""
    given = dict(SETTINGS[data])
    if method == "fedslr":
        given.pop("weighting")
        given |= FEDSLR
    return given


def played(fleet: Fleet, method: str, data: str, epsilon: float, clip: float, rounds: int, seed: int) -> Any:
    cohort = min(len(some) for some in fleet.tree.values())
    privacy = None if epsilon == inf else Privacy(clip=clip, epsilon=epsilon, cohort=cohort)
    uploads = None if privacy is None else Uploads(**NOISY)
    return fleets.play(fleet, method, settings_of(method, data), rounds, seed, uploads=uploads, privacy=privacy)


def row(
    fleet: Fleet, method: str, data: str, epsilon: float, rounds: int, seeds: int, clips: Sequence[float]
) -> list[str]:
    clips = clips if epsilon < inf else (inf,)
    first = {clip: played(fleet, method, data, epsilon, clip, rounds, 0) for clip in clips}
    clip = max(clips, key=lambda c: first[c].curve[-1].value)
    runs = [first[clip], *(played(fleet, method, data, epsilon, clip, rounds, seed) for seed in range(1, seeds))]
    reached = [float(np.mean(list(fleets.test_accuracies(fleet, p.shared).values()))) for p in runs]
    z = "" if epsilon == inf else f"{Privacy(clip=clip, epsilon=epsilon).multiplier(rounds):.2f}"
    told = "none: no noise" if epsilon == inf else f"{epsilon:g}"
    return [told, z, "" if clip == inf else f"{clip:g}", mean_sd(reached, factor=100)]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("data", choices=tuple(SETTINGS))
    options.add_argument("path", nargs="?", type=Path)
    options.add_argument("--method", choices=("fedavg", "fedslr"), default="fedavg")
    options.add_argument("--devices", type=int, default=480)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--clips", type=float, nargs="+")
    options.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    given = options.parse_args()
    fleet, began = fleet_of(given.data, given.path, given.devices), time.monotonic()
    clips = given.clips or CLIPS[given.data]
    rows = [
        row(fleet, given.method, given.data, epsilon, given.rounds, given.seeds, clips) for epsilon in given.epsilons
    ]
    size = fleet.model.layout.size
    print(f"{given.method}, {given.data}: {len(fleet.holders)} devices, {size} parameters, {given.rounds} rounds")
    print(markdown(("epsilon", "noise of a sum, in clips", "clip", "accuracy"), rows))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
