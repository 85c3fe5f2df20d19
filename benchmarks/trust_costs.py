"""What integers, masks and noise take of a round in which devices train: time on the processor, on all nodes together.

    python benchmarks/trust_costs.py [--devices 10] [--size 100000]

A round is one of FedAvg with floats, in which each device makes five passes over 160 windows of the wrist model; the
other messages, encoded and decoded, are those of benchmarks/masks.py, and no process, store or broker is counted. The
parts are timed by themselves: the median of 30 calls for each node, times the number of such nodes. Sums over hospitals
are of three of them. No run has these and noise, so the last line, of what one run can have at most, is without them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks import bytes as integers
from benchmarks.bytes import milliseconds, network
from benchmarks.masks import BITS, KIND, SAMPLES, time_masks, time_rounds
from benchmarks.protocol import markdown
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.discrete import draw_gaussian
from edge_sdk.contract.environment.masks import TAG
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.integers.vectors.privacy import NOISY, Privacy, noise_of
from edge_sdk.methods.secret.messages.messages import MaskedSum, SumForm
from edge_sdk.methods.secret.messages.plan import SecretPlan
from edge_sdk.methods.secret.messages.pool_messages import PoolQuestion
from edge_sdk.methods.secret.over_hospitals.pool_hospital import masked
from edge_sdk.nodes.secrets.masks import RunMasks

PASSES, HOSPITALS, ROUNDS = 5, 3, 40
BETWEEN = f"masks between {HOSPITALS} hospitals"
PRIVACY = Privacy(clip=1.0, epsilon=8.0, cohort=10)


def time_training() -> float:
    """Milliseconds of a device's passes over its windows."""
    model = network("wrist", "6,64", 14)
    x = np.random.default_rng(0).normal(size=(SAMPLES, 6, 64)).astype(np.float32)
    gradient = model.grad_fn(x, np.arange(SAMPLES) % 14)
    return PASSES * milliseconds(lambda: gradient(model.theta0))


def time_integers(size: int, devices: int) -> float:
    """Milliseconds of all that rotation and rounding add at all nodes; the hospital reads a change as devices do."""
    parts = integers.costs(size, devices)
    reads = (devices + 1) * parts[integers.READS]
    return reads + devices * (parts[integers.ROUNDS_UP] + parts[integers.ADDS]) + parts[integers.OPENS]


def time_noise(size: int, devices: int) -> float:
    """Milliseconds in which devices draw noise for a vector of that size."""
    noise = noise_of(PRIVACY, ROUNDS, NOISY["bits"], True, size)
    return devices * milliseconds(lambda: draw_gaussian(noise.variance, size, os.urandom))


def time_pool(size: int, hospitals: int = HOSPITALS) -> float:
    """Milliseconds in which hospitals put the masks that they share on their sums."""
    names = tuple(f"h{i}" for i in range(hospitals))
    keys = {name: X25519PrivateKey.generate() for name in names}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    masks = {h: RunMasks(keys[h], lambda h=h: {n: k for n, k in public.items() if n != h}, "r") for h in names}
    nonces = np.zeros(TAG * hospitals, np.uint8)
    question, plan = PoolQuestion(1, names, nonces, (10,) * hospitals), SecretPlan(2, {}, {"Sum": KIND}, hospitals)
    mine = sum_of(size, tuple(f"d{i}" for i in range(10)))
    return sum(milliseconds(lambda env=env: masked(env, plan, mine, question)) for env in envs_of(masks))


def envs_of(masks: Mapping[str, Any]) -> list[NodeEnv]:
    return [NodeEnv(me=name, masks=keys) for name, keys in masks.items()]


def sum_of(size: int, devices: tuple[str, ...]) -> MaskedSum:
    """A hospital's sum of masked uploads, as long as a real one."""
    form = SumForm("Sum", ("total",), size, BITS, 1.0)
    (steps, words), width = KIND.lengths(form), KIND.width(form, len(devices))
    packed = rounding.pack(np.zeros(steps, np.uint32), width)
    return MaskedSum(
        1, devices, np.zeros(TAG * len(devices), np.uint8), form, width, packed, np.zeros(words, np.uint64)
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--devices", type=int, default=10)
    words.add_argument("--size", type=int, default=100_000)
    options = words.parse_args()
    size, devices = options.size, options.devices
    training = devices * time_training()
    whole = training + 1000 * min(time_rounds(None, devices, size) for _ in range(3))
    masks = min(sum(time_masks(devices, size)) for _ in range(5))
    parts = {
        "integers: rotation and rounding, both directions": time_integers(size, devices),
        "masks of devices, put on and taken off": 1000 * masks,
        BETWEEN: time_pool(size),
        "noise": time_noise(size, devices),
    }
    rows = [(f"a round with floats, {devices} x {size:,}, of which training {training:.0f} ms", f"{whole:.0f}", "")]
    parts["integers, masks of devices and noise together"] = sum(parts.values()) - parts[BETWEEN]
    rows += [(name, f"{ms:.1f}", f"{100 * ms / (whole + ms):.1f} %") for name, ms in parts.items()]
    print(markdown(("one core, all nodes together", "ms", "of a round with it"), rows))


if __name__ == "__main__":
    main()
