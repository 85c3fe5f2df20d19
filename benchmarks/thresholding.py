"""Singular value thresholding of the layers of ResNet-18: full decompositions and aggregator/singular.py, in one run.

    python benchmarks/thresholding.py [--rounds 3] [--share 0.06] [--noise 0.6] [--json]

Each layer is the matrix as FedSLR takes it. The model of before has rank `--share` of the shorter side, with singular
values from 10 down to twice the threshold; a round adds noise with a largest singular value of `--noise` thresholds,
and thresholds. No training lifts the values again: each round they fall by a threshold, so that from the third on some
lie close to it, which is harder. Seconds are CPU seconds, with one thread for torch and for numpy; the last line has
the sums. "off" is the largest difference, in largest singular values, from a decomposition in float64: of full
decompositions in float32, and of the fast way.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from math import prod
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before they are loaded
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch

from aggregator.singular import WAYS, FastSvt, Triplets, thresholded

STAGES = ((64, 64), (64, 128), (128, 256), (256, 512))
THRESHOLD = 0.5


def shapes() -> dict[str, tuple[int, int]]:
    """Layer -> (o * kh, i * kw)."""
    found = {"stem": (64 * 7, 3 * 7), "head": (1000, 512)}
    for stage, (before, width) in enumerate(STAGES, 1):
        found[f"{stage}.a"] = (3 * width, 3 * before)
        found |= {f"{stage}.{name}": (3 * width, 3 * width) for name in "bcd"}
        if before != width:
            found[f"{stage}.skip"] = (width, before)
    return found


def make_layers(random: np.random.Generator, share: float) -> dict[str, np.ndarray]:
    """A model of low rank."""
    found = {}
    for name, (rows, columns) in shapes().items():
        rank = max(1, round(share * min(rows, columns)))
        u, v = (np.linalg.qr(random.standard_normal((n, rank)))[0] for n in (rows, columns))
        found[name] = ((u * np.linspace(10, 2 * THRESHOLD, rank)) @ v.T).astype(np.float32)
    return found


def with_noise(x: np.ndarray, random: np.random.Generator, noise: float) -> np.ndarray:
    rows, columns = x.shape
    found = random.standard_normal(x.shape) / (rows**0.5 + columns**0.5)  # its largest singular value is about 1
    return (x + noise * THRESHOLD * found).astype(np.float32)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = call()
    return time.process_time() - began, found


def full(layers: dict[str, np.ndarray], double: bool = False) -> dict[str, np.ndarray]:
    kind = np.float64 if double else np.float32
    return {name: multiply(decompose(torch.from_numpy(x.astype(kind)))) for name, x in layers.items()}


def decompose(x: torch.Tensor) -> Triplets:
    return thresholded(*torch.linalg.svd(x, full_matrices=False), THRESHOLD)


def multiply(svd: Any) -> np.ndarray:
    a, s, b = (np.asarray(part) for part in svd)
    return np.asarray((a * s) @ b.T)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.06)
    parser.add_argument("--noise", type=float, default=0.6)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    random, svt = np.random.default_rng(0), FastSvt()
    near, found = make_layers(random, args.share), []
    for _ in range(args.rounds):
        layers = {name: with_noise(x, random, args.noise) for name, x in near.items()}
        slow, theirs = timed(lambda layers=layers: full(layers))
        quick, mine = timed(lambda layers=layers, near=near: svt.layers(layers, THRESHOLD, near))
        mine, truth = {name: multiply(svd) for name, svd in mine.items()}, full(layers, double=True)
        off = [max(float(np.abs(one[n] - truth[n]).max()) / 10 for n in truth) for one in (theirs, mine)]
        found.append({"full": slow, "fast": quick, "ratio": slow / quick, "off_full": off[0], "off_fast": off[1]})
        near = theirs
    result = {"layers": len(near), "parameters": sum(prod(s) for s in shapes().values()), "counts": svt.counts}
    if args.json:
        print(json.dumps({**result, "rounds": found}))
        return
    counted = ", ".join(f"{way} {svt.counts[way]}" for way in WAYS)
    print(f"{result['layers']} layers, {result['parameters']} parameters; {counted}")
    print(f"{'full, s':>8} {'fast, s':>8} {'times':>6} {'off, full':>10} {'off, fast':>10}")
    sums = {key: sum(one[key] for one in found) for key in ("full", "fast")}
    worst = {key: max(one[key] for one in found) for key in ("off_full", "off_fast")}
    for one in [*found, {**sums, "ratio": sums["full"] / sums["fast"], **worst}]:
        times = f"{one['full']:>8.2f} {one['fast']:>8.2f} {one['ratio']:>6.2f}"
        print(f"{times} {one['off_full']:>10.1e} {one['off_fast']:>10.1e}")


if __name__ == "__main__":
    main()
