"""Bytes beside accuracy where a model is divided: HSGD's messages as floats and as integers of so many bits.

    python benchmarks/bytes.py esr $AUSCULT_DATA/bonn_eeg.npz [--seeds 3] [--rounds 120]

Data and groups are those of benchmarks/hsgd.py: ten hospitals, 100 devices in each, 15 of these in an iteration, one
sample on each device. Rounds are iterations, P = Q = 1. The step is the best of three with floats, by the area under
the ROC curve on validation samples; test samples are of other recordings. Bytes are of encoded messages: between
devices and their hospital, where integers are, as a share of what floats take there; and of all hops together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import hsgd
from benchmarks.protocol import TUNING, Quiet, grid, markdown, mean_sd, tune
from edge_sdk.contract.loopback import ROOT
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from edge_sdk.model.split_model import SplitModel
from edge_sdk.wire.codec.codec import Codec

BITS = (0, 8, 4, 3, 2)
HEAD = ("HSGD", "test AUC", "against floats, in points", "devices up", "devices down", "together", "all hops")


def played(model: SplitModel, path: Path, eta: float, bits: int, rounds: int, seed: int) -> dict[str, Any]:
    """Areas under the ROC curve at the end of a run, and its bytes."""
    data = hsgd.read(path, seed)
    tree = hsgd.tree_of(data, pooled=False)
    settings = Settings(alpha=hsgd.ALPHA, eta=eta, bits=bits)
    envs = hsgd.envs_of(model, data, tree, settings, seed, rounds)
    names = {h: [name for name, _ in devices] for h, devices in tree.items()}
    net = Quiet(HSGD, names, envs, seed=seed, faults=hsgd.CALM)
    net.codec = Codec(HSGD.messages, layout=model.layout)
    net.run()
    theta = net.nodes[ROOT].record.state.theta
    found = {part: hsgd.auc(model, theta, getattr(data, part)) for part in ("validation", "test")}
    return {**found, "hops": dict(net.hops)}


def table(path: Path, seeds: int, rounds: int) -> str:
    """The table, as Markdown."""
    model = SplitModel(hsgd.BUNDLE)

    def judge(trial: Mapping[str, Any]) -> float:
        return float(played(model, path, trial["eta"], 0, rounds, TUNING)["validation"])

    best, _ = tune(grid(eta=hsgd.ETAS), judge)
    runs = {bits: [played(model, path, best["eta"], bits, rounds, seed) for seed in range(seeds)] for bits in BITS}
    return f"step {best['eta']:g}\n" + markdown(HEAD, [row(bits, some, runs[0]) for bits, some in runs.items()])


def row(bits: int, runs: list[dict[str, Any]], floats: list[dict[str, Any]]) -> list[str]:
    found, theirs = ([one["test"] for one in some] for some in (runs, floats))
    against = "" if not bits else mean_sd([a - b for a, b in zip(found, theirs, strict=True)], 1, factor=100)
    near = ("devices up", "devices down")
    shares = [
        share(runs, floats, *hops) for hops in (near[:1], near[1:], near, (*near, "hospitals up", "hospitals down"))
    ]
    name = f"{bits} bits" if bits else "float32"
    return [name, mean_sd(found, 3), against, *(f"{one:.3f}" for one in shares)]


def share(runs: list[dict[str, Any]], floats: list[dict[str, Any]], *hops: str) -> float:
    """Bytes of these hops, as a share of what floats take there."""
    ours, theirs = (sum(one["hops"][hop] for one in some for hop in hops) for some in (runs, floats))
    return float(ours / theirs)
