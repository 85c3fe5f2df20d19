"""A device with a budget on a laid-out machine whose battery is empty after so many mini-batches of this process.

python -m tests.system.night_device DIRECTORY BROKER ROOT STEPS      0 steps: it does not run empty
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np

from edge_sdk.data.samples import Samples
from edge_sdk.nodes.device import pace
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import DevicePolicy
from edge_sdk.nodes.policy.budget import TrainingBudget
from tests.nodes.device.test_pace import lay_battery

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
CLASSES = ("rest", "walk")
BUDGET = TrainingBudget(min_battery=0.3, calm=0.0)


def samples() -> Samples:
    random, codes = np.random.default_rng(5), np.arange(24) % 2
    x = random.normal(size=(24, 3, 64)).astype(np.float32) * (0.2 + codes).reshape(-1, 1, 1).astype(np.float32)
    return Samples(x, tuple(CLASSES[code] for code in codes))


def make_device(directory: Path, broker: str, budget: TrainingBudget | None = None) -> Device:
    device = Device(
        "watch",
        hospital="north",
        broker=broker,
        bundle=BUNDLE,
        directory=directory / "watch",
        policy=DevicePolicy(budget=budget),
    )
    device.train_on(samples(), held_out=samples())
    return device


def main(directory: str, broker: str, root: str, steps: str) -> None:
    logging.basicConfig(level=logging.INFO)
    pace.LOOK, pace.NAP = 0.0, 0.02
    device, made = make_device(Path(directory), broker, BUDGET), 0
    assert device.part.pace is not None
    device.part.pace.root = Path(root)
    asked = device.part.must_give_way

    def count() -> bool:
        nonlocal made
        if asked():
            return True
        made += 1
        with open(Path(directory) / "steps", "ab") as file:
            file.write(b".")
        if made == int(steps):
            lay_battery(Path(root), 18)
        return False

    device.part.must_give_way = count  # type: ignore[method-assign]
    device.run(until=lambda: device.finished.is_set() and device.runtime.delivered)


if __name__ == "__main__":
    main(*sys.argv[1:])
