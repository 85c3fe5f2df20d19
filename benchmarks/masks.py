"""Cost of secret sums: what masks take of a round, and how long the aggregator takes to open large sums.

    python benchmarks/masks.py [--devices 10000] [--size 100000] [--among 50 500]

A round is one of FedAvg with 10 devices and 100,000 parameters at one hospital, every message encoded and decoded, all
nodes on one core. Training in it is as good as none (five steps on a gradient that is proportional to theta), so the
share that masks have of a round is the largest that they can have. The same is played in the clear, where hospitals
open no upload either. Opening is of one sum, of 8 bits, by an aggregator that meets these devices for the first time.

"Among devices" is a round in which a hospital's devices open the sum: what its four further questions cost each device
and the hospital, in time and bytes, where all answer and where one in twenty is missing when answers are masked.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.protocol import markdown
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.neighbours import degree
from edge_sdk.algebra.vectors import Vector, layout_of
from edge_sdk.contract.environment.masks import TAG
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.contract.method import UP, Method, NodeEnv, Role, Send
from edge_sdk.contract.round import Policy
from edge_sdk.contract.run import Run
from edge_sdk.methods.integers.vectors.labels import take_label
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.integers.vectors.settings import AMONG
from edge_sdk.methods.secret.messages.among_messages import (
    Agreement,
    Confirmed,
    Covered,
    Dealt,
    Participants,
    PassedShares,
    Revealed,
    Survivors,
    Withdrawn,
)
from edge_sdk.methods.secret.messages.masking import put_on, take_off
from edge_sdk.methods.secret.messages.messages import MaskedSum
from edge_sdk.methods.secret.messages.upload_form import UploadKind
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.secrets.masks import RunMasks
from edge_sdk.nodes.secrets.secret_sharing import DeviceSecrets, mask_reader
from edge_sdk.wire.codec.codec import Codec

BITS, SAMPLES, ROUNDS = 8, 160, 5
DOWN, UPWARD = (Participants, PassedShares, Survivors, Agreement), (Dealt, Covered, Confirmed, Revealed)
KIND = UploadKind({Sum: ("total",)})


def run_of(secret: bool | None, rounds: int) -> Run:
    """A short run of FedAvg, with secret sums or in the clear; None: with floats."""
    how = {"secret": True} if secret else {"unopened": True}
    uploads = {} if secret is None else {"bits": BITS, **how}
    return Run(id="r", method="fedavg", settings={"local_epochs": 1}, rounds=rounds, uploads=uploads)


def keys_of(devices: int) -> tuple[RunMasks, list[RunMasks]]:
    """Keystreams of an aggregator, and of so many devices."""
    above, below = X25519PrivateKey.generate(), [X25519PrivateKey.generate() for _ in range(devices)]
    public = {f"d{i}": key.public_key().public_bytes_raw() for i, key in enumerate(below)}
    of_above = {UP: above.public_key().public_bytes_raw()}
    return RunMasks(above, lambda: public, "r"), [RunMasks(key, lambda: of_above, "r") for key in below]


# A round --------------------------------------------------------------------------------------------------------
def envs_of(run: Run, method: Method, devices: int, size: int) -> dict[str, NodeEnv]:
    """Envs of one hospital with so many devices."""
    layout = layout_of(("w", (size,), "linear"))
    theta0 = np.random.default_rng(0).normal(size=size).astype(np.float32)
    common: dict[str, Any] = dict(layout=layout, theta0=theta0, settings=settings_of(run), rounds=run.rounds)
    above, below = keys_of(devices)
    names = [f"d{i}" for i in range(devices)]

    def gradient(theta: Vector, indices: Any = None) -> tuple[float, Vector]:
        return 0.0, np.float32(0.01) * theta

    envs = {"aggregator": method.env(**common, sizes={"h": devices}, masks=above)}
    envs["h"] = method.env(**common, sizes=dict.fromkeys(names, 1))
    made = dict(grad_fn=gradient, samples=SAMPLES)
    return envs | {name: method.env(**common, **made, masks=masks) for name, masks in zip(names, below, strict=True)}


def time_rounds(secret: bool | None, devices: int, size: int, rounds: int = ROUNDS) -> float:
    """Seconds of one core for a round, without the first one."""
    taken = []
    for count in (1, 1 + rounds):
        run = run_of(secret, count)
        method = method_of(run)
        envs = envs_of(run, method, devices, size)
        codec = Codec(method.messages, layout=envs["h"].layout)
        through: Callable[[Any], Any] = lambda m, codec=codec: codec.decode(codec.encode(m))  # noqa: E731
        tree = {"h": [name for name in envs if name not in ("h", "aggregator")]}
        faults = NetworkFaults(repeat=0.0)
        net = Loopback(method, tree, envs, {"aggregator": Policy(quorum=1)}, faults=faults, through=through)
        began = time.process_time()
        net.run()
        taken.append(time.process_time() - began)
    return (taken[1] - taken[0]) / rounds


# Opening --------------------------------------------------------------------------------------------------------
def time_masks(devices: int, size: int) -> tuple[float, float]:
    """Seconds of one core to put masks on the answers of so many devices, and to take them off their sum. Keys are used
    for the first time."""
    above, below = keys_of(devices)
    rng, terms = np.random.default_rng(0), devices
    packed = rounding.pack(rng.integers(0, 255, size).astype(np.uint32), BITS)
    upload = Integers(take_label(Sum(np.zeros(size), 1.0), ("total",)), ("total",), size, BITS, 1.0, 1, 1.0, packed)
    width = rounding.width(BITS, terms)
    names, parts = sorted(f"d{i}" for i in range(devices)), []
    steps = words = None
    put = 0.0
    for name in names:
        began = time.process_time()
        m = put_on(NodeEnv(me=name, masks=below[int(name[1:])]), KIND, 1, terms, upload)
        put += time.process_time() - began
        mine = rounding.unpack(m.steps, KIND.lengths(m.form)[0], width)
        steps = mine if steps is None else (steps + mine) & np.uint32((1 << width) - 1)
        words = m.words if words is None else words + m.words
        parts.append(m.tag)
    assert steps is not None and words is not None and len(parts[0]) == TAG
    total = MaskedSum(1, tuple(names), np.concatenate(parts), m.form, width, rounding.pack(steps, width), words)
    began = time.process_time()
    flat = take_off(NodeEnv(me="aggregator", masks=replace(above, keys={})), KIND, total)
    taken = time.process_time() - began
    expected = upload.steps.astype(np.int64) * devices
    assert (flat.steps[:size] == expected).all()
    return put, taken


# Among devices --------------------------------------------------------------------------------------------------
@dataclass
class ExchangeCost:
    """Cost of one exchange among the devices of a hospital.

    Attributes:
        device: seconds of one core, the mean of a device.
        hospital: seconds of one core.
        up, down: bytes, the mean of a device.
        upload: bytes of its upload in the clear.
        counted: devices in the sum.
    """

    device: float = 0.0
    hospital: float = 0.0
    up: float = 0.0
    down: float = 0.0
    upload: float = 0.0
    counted: int = 0


def time_exchange(devices: int, size: int, missing: int = 0) -> ExchangeCost:
    """Play two rounds with all roles and count what the second one's exchange costs: in the first one uploads have 16
    bits. `missing`: so many withdraw when they are to mask."""
    run = Run(id="r", method="fedavg", settings={"local_epochs": 1}, rounds=2, uploads={"bits": BITS, "secret": AMONG})
    method, costs = method_of(run), defaultdict[int, ExchangeCost](ExchangeCost)  # by how many rosters there were
    keys = {f"d{i}": X25519PrivateKey.generate() for i in range(devices)}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    envs = envs_of(run, method, devices, size)
    envs["h"] = replace(envs["h"], reader=mask_reader())
    envs |= {d: replace(envs[d], masks=None, secrets=DeviceSecrets(keys[d], lambda: public, "r")) for d in keys}
    codec = Codec(method.messages, layout=envs["h"].layout)
    gone, rosters = {f"d{i}" for i in range(missing)}, set[int]()

    def timed(role: Role, tier: str) -> Role:
        def receive(env: Any, s: Any, sender: str, m: Any) -> Any:
            if tier == "device" and isinstance(m, PassedShares) and env.me in gone:
                return s, [Send(UP, Withdrawn())]
            began = time.process_time()
            done, cost = role.receive(env, s, sender, m), costs[len(rosters)]
            if tier == "hospital" or isinstance(m, DOWN):
                setattr(cost, tier, getattr(cost, tier) + time.process_time() - began)
            return done

        def close(env: Any, s: Any) -> Any:
            began = time.process_time()
            done = role.close(env, s)
            costs[len(rosters)].hospital += time.process_time() - began
            return done

        return replace(role, receive=receive, close=close)

    def through(m: Any) -> Any:
        if isinstance(m, Participants):
            rosters.add(m.ticket)
        cost = costs[len(rosters)]
        cost.up += len(codec.encode(m)) if isinstance(m, UPWARD) else 0
        cost.down += len(codec.encode(m)) if isinstance(m, DOWN) else 0
        if isinstance(m, Integers):
            cost.counted, cost.upload = m.terms, m.size * BITS / 8
        return m

    played = replace(method, device=timed(method.device, "device"), hospital=timed(method.hospital, "hospital"))
    policy = {"aggregator": Policy(quorum=1)}
    Loopback(played, {"h": tuple(keys)}, envs, policy, faults=NetworkFaults(repeat=0.0), through=through).run()
    cost = costs[2]
    for name in ("device", "up", "down"):
        setattr(cost, name, getattr(cost, name) / devices)
    return cost


def rows_of_exchange(devices: int, size: int) -> list[tuple[str, ...]]:
    """Rows of a table: all answer, and one in twenty is missing."""
    rows = []
    for missing in (0, max(1, devices // 20)):
        c = time_exchange(devices, size, missing)
        times = (f"{1000 * c.device:.0f} ms", f"{c.hospital:.2f} s")
        sizes = (f"{c.up / 1000:.0f} kB", f"{c.down / 1000:.0f} kB", f"{c.upload / 1000:.0f} kB")
        rows.append((f"{devices}, {missing} missing", str(c.counted), str(degree(devices)), *times, *sizes))
    return rows


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--devices", type=int, default=10_000)
    words.add_argument("--size", type=int, default=100_000)
    words.add_argument("--among", type=int, nargs="*", default=[50, 500])
    options = words.parse_args()
    clear, secret = (min(time_rounds(kind, 10, options.size) for _ in range(3)) for kind in (False, True))
    masks = min(sum(time_masks(10, options.size)) for _ in range(5))  # the least: others use this machine, too
    opening = time_masks(options.devices, options.size)[1]
    rows = [
        (f"a round in the clear, 10 x {options.size:,}", f"{1000 * clear:.0f} ms"),
        ("the same with secret sums", f"{1000 * secret:.0f} ms"),
        ("masks, put on and taken off", f"{1000 * masks:.1f} ms, {100 * masks / secret:.1f} % of it"),
        (f"opening a sum of {options.devices:,} x {options.size:,}", f"{opening:.2f} s"),
    ]
    print(markdown(("secret sums", "one core"), rows))
    exchanges = [row for devices in options.among for row in rows_of_exchange(devices, options.size)]
    head = ("devices", "in the sum", "neighbours", "a device", "the hospital", "up", "down", "bare upload")
    print(markdown(head, exchanges))


if __name__ == "__main__":
    main()
