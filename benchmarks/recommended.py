"""FedSLR's recommended settings beside the paper's and two others, on four kinds of data, judged on validation samples.

    auscult traces watch runs/watch-traces
    auscult traces synth runs/synth-traces --devices 9 --seed 7
    python benchmarks/recommended.py wrist=$AUSCULT_DATA/wrist watch=runs/watch-traces synth=runs/synth-traces

Whole runs of 30 rounds in memory, with a replay's roles, kernels and samples (as `auscult tune` plays them), without
settling. Mean accuracy over devices, each with its personal model; the test part is not read. About half an hour of one
core for two seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.tuning.memory import play, prepare
from edge_sdk.replay.tuning.worker import find_kernels

SETTINGS = {
    "recommended": {"eta_l": 0.05, "local_epochs": 5, "decay": 0.998},
    "paper": {"eta_l": 0.1, "local_epochs": 2, "decay": 0.998},
    "fewer epochs, faster decay": {"eta_l": 0.05, "local_epochs": 2, "decay": 0.99},
    "faster decay": {"eta_l": 0.05, "local_epochs": 5, "decay": 0.99},
}
CUTS: dict[str, list[dict[str, Any]]] = {
    "wrist": [{"labelled": 10.0}, {"labelled": 30.0}],
    "watch": [{"labelled": 2.0, "stride": 16}],
    "synth": [{"labelled": 30.0}],
}
"""Kind of data -> how its traces are cut: labelled seconds of each class to train on, and the stride."""


def judge(kind: str, folder: str, cut: dict[str, Any], seed: int) -> dict[str, float]:
    """Accuracy of each of the settings on validation samples of one data set."""
    with tempfile.TemporaryDirectory() as temporary:
        job = Replay(data=folder, out=Path(temporary), method="fedslr", seed=seed, options=cut, preset="stated")
        fleet = prepare(job, find_kernels(), lambda text: None)
        return {name: play(fleet, {**given, "personal_epochs": 1}).accuracy for name, given in SETTINGS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+", metavar="KIND=DIR", help=f"traces; kinds: {', '.join(CUTS)}")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    print("| data | " + " | ".join(SETTINGS) + " |\n" + "|---" * (len(SETTINGS) + 1) + "|")
    every: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for kind, folder in (text.split("=", 1) for text in args.data):
        for cut in CUTS[kind]:
            found = [judge(kind, folder, cut, seed) for seed in range(args.seeds)]
            cells = [", ".join(f"{100 * one[name]:.1f}" for one in found) for name in SETTINGS]
            print(f"| {kind}, {cut['labelled']:.0f} labelled seconds | " + " | ".join(cells) + " |", flush=True)
            for name in SETTINGS:
                every[name] += [one[name] for one in found]
    print("| mean | " + " | ".join(f"{100 * np.mean(every[name]):.1f}" for name in SETTINGS) + " |")


if __name__ == "__main__":
    main()
