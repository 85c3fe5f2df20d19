"""HSGD beside JFL, TDCD, C-HSGD and C-TDCD on EEG: what each sends until the held-out AUC has reached a target.

    python benchmarks/hsgd.py ../shared/data/bonn_eeg.npz [--seeds 3] [--rounds 300] [--eta 0.3] [--json FILE]

The paper's arrangement: 80 % of the samples in 10 groups, 76 % of each group of two labels, one sample for each device,
2 % of them in an iteration, P = Q = 1, one step size for all; held out are single samples, as in the paper. The roles
are those of the product, with the kernels of a compiled split model, over the network in memory. Bytes are of one
group: "paper" by the paper's own formula (19), "all hops" by the ledger of every message; compressed messages count
with their true size, indices included, in the latter. In TDCD the groups' raw data are brought together first, which
both count. "HSGD 4" is HSGD with P = Q = 4. Seconds are by the paper's clock: its links, and its computing time of an
iteration on EEG (0.064 s; JFL 0.1 s).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import costs
from edge_sdk.algebra import classification
from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from edge_sdk.methods.shared.draw import round_half_up
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.kernels import split as parties
from edge_sdk.replay import datasets
from edge_sdk.replay.datasets import DATASETS, Vertical

BUNDLE = Path(__file__).parents[1] / "models" / "shipped" / "split-esr.bundle"
TARGETS = (0.8, 0.9)
ALPHA = 0.02
COMPUTING, COMPUTING_PAIRS = 0.064, 0.1  # seconds of an iteration, in the paper's table IV
CALM = NetworkFaults(repeat=0, delay=(0, 0))


@dataclass(frozen=True)
class Scheme:
    """HSGD or one of its baselines.

    Attributes:
        settings: where they differ from HSGD's.
        pooled: all patients are in one group, after their data have been moved there.
    """

    settings: Mapping[str, Any]
    pooled: bool = False


COMPRESSED = {"keep": compression.PAPER_KEEP}
SCHEMES = {
    "HSGD": Scheme({}),
    "JFL": Scheme({"copies": "pair"}),
    "TDCD": Scheme({}, pooled=True),
    "C-HSGD": Scheme(COMPRESSED),
    "C-TDCD": Scheme(COMPRESSED, pooled=True),
    "HSGD 4": Scheme({"P": 4, "Q": 4}),
}


@dataclass(frozen=True)
class Data:
    """Training samples, the rows of each group, test samples."""

    train: Vertical
    groups: Sequence[Any]
    test: Vertical


def read(path: Path, seed: int) -> Data:
    train, test = datasets.prepare(f"esr:{path}", 0.2, seed, by="sample")
    known = DATASETS["esr"]
    return Data(train, datasets.deal_mixed(train.y, known.groups, known.majority, seed), test)


# The run --------------------------------------------------------------------------------------------------------
def tree_of(data: Data, pooled: bool) -> dict[str, list[tuple[str, int]]]:
    """Hospital -> its devices, each with the row of its one sample."""
    groups = {f"h{m}": [(f"d{row:05}", int(row)) for row in rows] for m, rows in enumerate(data.groups)}
    return {"h0": [device for devices in groups.values() for device in devices]} if pooled else groups


def envs_of(model: SplitModel, data: Data, tree: Mapping[str, Any], settings: Settings, seed: int, rounds: int) -> Any:
    common: dict[str, Any] = {"seed": seed, "rounds": rounds, "theta0": model.theta0, "layout": model.layout}
    common |= {"settings": settings, "split": parties.split_of(model)}
    envs = {ROOT: HSGD.env(**common, sizes={h: len(devices) for h, devices in tree.items()})}
    for h, devices in tree.items():
        rows = np.array([row for _, row in devices])
        own = {name: np.array([i]) for i, (name, _) in enumerate(devices)}
        kernels = parties.hospital_kernels(model, data.train.x1[rows], data.train.y[rows], own)
        envs[h] = HSGD.env(**common, sizes=dict.fromkeys(own, 1), **kernels)
        for name, row in devices:
            mine = parties.device_kernels(model, data.train.x2[row : row + 1], data.train.y[row : row + 1])
            envs[name] = HSGD.env(**common, **mine)
    return envs


class Enough(Exception):
    """The last target is reached."""


class Watched(Loopback):
    """Keeps no record of messages, and judges the global model now and then."""

    def begin(self, model: SplitModel, test: Vertical) -> None:
        self.model, self.test = model, test
        self.curve: list[tuple[int, float]] = []

    def commit(self, name: str, done: Any, now: float) -> None:
        super().commit(name, done, now)
        if name != ROOT:
            return
        for record in (
            self.transcript.crossed,
            self.transcript.states,
            self.transcript.closed,
            self.transcript.asked,
            self.transcript.ran,
        ):
            record.clear()
        state = done.node.record.state
        if state.t > (self.curve[-1][0] if self.curve else 0):
            logits = self.model.logits(state.theta, {"hospital": self.test.x1, "device": self.test.x2})
            self.curve.append((state.t, classification.macro_auc(self.test.y, classification.softmax(logits)) or 0.0))
            if self.curve[-1][1] >= TARGETS[-1]:
                raise Enough


def curve(model: SplitModel, data: Data, scheme: Scheme, options: argparse.Namespace, seed: int) -> list[Any]:
    """(iterations, AUC), until the last target or the last round."""
    settings = Settings(**{"eta": options.eta, "alpha": ALPHA, **scheme.settings})
    tree = tree_of(data, scheme.pooled)
    envs = envs_of(model, data, tree, settings, seed, options.rounds)
    names = {h: [name for name, _ in devices] for h, devices in tree.items()}
    network = Watched(HSGD, names, envs, seed=seed, faults=CALM)
    network.begin(model, data.test)
    with contextlib.suppress(Enough):
        network.run()
    return network.curve


# What it has sent -----------------------------------------------------------------------------------------------
def megabytes(model: SplitModel, data: Data, scheme: Scheme, T: int) -> dict[str, float]:
    """Megabytes of one group until iteration T, by the paper's formula and over all hops."""
    split, groups, patients = parties.split_of(model), len(data.groups), sum(len(rows) for rows in data.groups)
    sizes = (
        [(patients, taking_part(patients))] if scheme.pooled else [(len(r), taking_part(len(r))) for r in data.groups]
    )
    traffic = costs.Traffic(split, sizes, pairs=scheme.settings.get("copies") == "pair")
    raw = patients * (data.train.x1[0].size + data.train.x2[0].size) if scheme.pooled else 0
    P, Q = scheme.settings.get("P", 1), scheme.settings.get("Q", 1)
    squeezed = "keep" in scheme.settings
    paper = replace(traffic, ratio=compression.PAPER_KEEP) if squeezed else traffic
    true = replace(traffic, ratio=true_ratio(split)) if squeezed else traffic
    if scheme.pooled:
        counted = costs.pooled_floats(split, sizes[0][1], Q, T, raw, paper.ratio)
    else:
        counted = costs.paper_floats(paper, P, Q, T)
    every = raw + costs.count_floats(costs.list_messages(true, [(P, Q)] * (T // P)))
    return {"paper": counted * costs.BYTES / groups / 1e6, "all hops": every * costs.BYTES / groups / 1e6}


def seconds(model: SplitModel, data: Data, scheme: Scheme, T: int) -> float:
    """Until iteration T, by the paper's clock; what differs from HSGD's there is as `megabytes` counts it."""
    split, patients = parties.split_of(model), sum(len(rows) for rows in data.groups)
    P, Q, links = scheme.settings.get("P", 1), scheme.settings.get("Q", 1), costs.Links()
    ratio = true_ratio(split) if "keep" in scheme.settings else 1.0
    if scheme.pooled:
        t = costs.estimate_times(split, taking_part(patients), links, ratio)
        raw = 8 * costs.BYTES * data.train.x1.size / len(data.groups) / links.fixed_up
        return raw + T / Q * (t.t_l + t.t_e) + T * COMPUTING
    n = taking_part(patients // len(data.groups))
    t = costs.estimate_times(split, n, links, ratio)
    if scheme.settings.get("copies") != "pair":
        return T / P * costs.estimate_round(t, P, Q, COMPUTING)
    copies = 8 * costs.BYTES * (n - 1) * split.s0 / links.fixed_up
    t = costs.Times(n * t.t_g, t.t_l, t.t_e + copies)
    return T / P * costs.estimate_round(t, P, Q, COMPUTING_PAIRS)


def taking_part(patients: int) -> int:
    return max(1, round_half_up(ALPHA * patients))


def true_ratio(split: Any) -> float:
    """Size of a compressed embedding with its indices, to that of a full one."""
    return compression.true_bits(compression.pack(np.ones((1, split.d2), np.float32), compression.PAPER_KEEP)) / (
        32 * split.d2
    )


def spent(model: SplitModel, data: Data, scheme: Scheme, T: int) -> dict[str, float]:
    return {**megabytes(model, data, scheme, T), "seconds": seconds(model, data, scheme, T)}


def reached(points: Sequence[tuple[int, float]], target: float) -> int | None:
    return next((t for t, auc in points if auc >= target), None)


# Table ----------------------------------------------------------------------------------------------------------
def measure(options: argparse.Namespace) -> dict[str, Any]:
    model, found = SplitModel(BUNDLE), {name: [] for name in SCHEMES}
    for seed in range(options.seeds):
        data = read(options.data, seed)
        for name, scheme in SCHEMES.items():
            began = time.monotonic()
            points = curve(model, data, scheme, options, seed)
            row: dict[str, Any] = {"seed": seed, "curve": points, "seconds": round(time.monotonic() - began, 1)}
            for target in TARGETS:
                T = reached(points, target)
                row[str(target)] = {"iterations": T, **(spent(model, data, scheme, T) if T is not None else {})}
            found[name].append(row)
            print(f"{name:8} seed {seed}: {shown(row)}, {row['seconds']} s", file=sys.stderr, flush=True)
    return found


def shown(row: Mapping[str, Any]) -> str:
    best = max(auc for _, auc in row["curve"])
    return ", ".join(f"AUC {t} after {row[str(t)]['iterations']}" for t in TARGETS) + f", best {best:.3f}"


def spread(values: Sequence[float | None], digits: int) -> str:
    there = [v for v in values if v is not None]
    if len(there) < len(values):
        return f"{len(there)} of {len(values)}"
    sd = statistics.stdev(there) if len(there) > 1 else 0.0
    return f"{statistics.mean(there):.{digits}f} ± {sd:.{digits}f}"


def table(found: Mapping[str, Sequence[Any]]) -> str:
    """Mean and standard deviation over the seeds; "k of n" where only k have reached the target."""
    columns = {"iterations": ("iterations", 0), "paper": ("paper MB", 2), "all hops": ("all hops MB", 2)}
    columns["seconds"] = "seconds", 1
    lines = [f"{'AUC':>4}  {'':8}" + "".join(f" {head:>15}" for head, _ in columns.values())]
    for target in map(str, TARGETS):
        for name, rows in found.items():
            cells = (spread([row[target].get(key) for row in rows], digits) for key, (_, digits) in columns.items())
            lines.append(f"{target:>4}  {name:8}" + "".join(f" {cell:>15}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="bonn_eeg.npz")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300, help="most global rounds of a run")
    parser.add_argument("--eta", type=float, default=0.3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options)
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps({"options": vars(options), "runs": found}, default=str, indent=1))


if __name__ == "__main__":
    main()
