"""Our baselines beside PFLlib's own code: how far the models are apart after the same steps on the same samples.

    git clone https://github.com/TsingZ0/PFLlib PFLLIB       # Apache-2.0
    python -m venv .pfllib && .pfllib/bin/pip install torch h5py scikit-learn matplotlib
    python benchmarks/pfllib.py PFLLIB --python .pfllib/bin/python
        [--devices 5] [--samples 40] [--rounds 5] [--seeds 5] [--only fedavg ...] [--json]

Every step is on all samples of a device, so nothing is drawn, and two implementations of one algorithm reach one model
but for rounding. "apart" is ||ours - theirs|| / ||theirs - first model||: of the global model, and the largest of the
devices' personal ones, for several sets of samples. Both sides count in float32, and where rounding takes a sample
across a kink of ReLU or max-pooling a set is 1e-4 to 1e-2 apart. An algorithm that differs does so in every set: the
least distance decides, and the median stands beside it.

Ours are the roles of the product over the network in memory, with the compiled bundle; theirs train in torch. One
thread each. Seconds are of all rounds of one set, median.

Where the two are apart, DIFFERENT says where PFLlib departs from the paper (its commit d832e76). With the square put
into its clientdyn.py FedDyn agrees too (4e-05).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.assembly import make_env, method_of, settings_of
from edge_sdk.nodes.kernels import plain
from edge_sdk.nodes.kernels.family import DeviceParts

RATE, EPOCHS = 0.02, 3
CLASSES = tuple(str(k) for k in range(14))
LAST = {"personal_slots": "head.2"}
TRAINING = {"eta_l": RATE, "batch": 0, "local_epochs": EPOCHS, "weight_decay": 0.0, "decay": 1.0}

METHODS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "fedavg": ("fedavg", {}, {}),
    "fedprox": ("fedavg", {"proximal": 0.5}, {"mu": 0.5}),
    "ditto": ("ditto", {"nearness": 0.5, "personal_epochs": 2}, {"mu": 0.5, "plocal_epochs": 2}),
    "scaffold": ("scaffold", {"local_steps": EPOCHS, "eta_g": 1.0}, {"server_learning_rate": 1.0}),
    "feddyn": ("feddyn", {"alpha": 0.1}, {"alpha": 0.1}),
    "fedper": ("fedper", LAST, {}),
    "fedrep": ("fedrep", {**LAST, "head_epochs": 2}, {"plocal_epochs": 2}),
    "fedbabu": ("fedbabu", {**LAST, "fine_tune_epochs": 0}, {"fine_tuning_epochs": 0}),
    "apfl": ("apfl", {"alpha": 0.5}, {"alpha": 0.5}),
    "fedala": ("fedala", {"share": 1.0}, {"eta": 1.0, "rand_percent": 100, "layer_idx": 2}),
}
"""Row -> our method, our settings, PFLlib's arguments; beside those that all have."""

DIFFERENT = {
    "feddyn": "PFLlib pulls with alpha/2 ||v - w||, where the paper has the square of the norm",
    "apfl": "PFLlib takes v's gradient at v, the paper at the mixture; and it mixes v itself at the end of a round",
}
"""Row -> why the two cannot agree."""

PART = ("fedper", "fedrep", "fedbabu")  # PFLlib's server has the shared part only
ROUNDING = 1e-4


def draw_samples(devices: int, samples: int, seed: int = 0) -> dict[str, Any]:
    """Device k's windows xk (samples, 3, 64) and classes yk: a frequency for each class, in a mix of its own."""
    random, found = np.random.default_rng(seed), dict[str, Any]()
    t = np.arange(64) / 32
    for k in range(devices):
        y = random.choice(14, samples, p=random.dirichlet(np.full(14, 0.5)))
        phase = random.uniform(0, 2 * np.pi, (samples, 3, 1))
        wave = np.sin(2 * np.pi * (0.5 + y[:, None, None]) * t + phase)
        found[f"x{k}"] = (wave + 0.3 * random.standard_normal((samples, 3, 64))).astype(np.float32)
        found[f"y{k}"] = y.astype(np.int64)
    return found


def ours(row: str, model: Model, arrays: Mapping[str, Any], devices: int, rounds: int) -> dict[str, Any]:
    """Our global model, the devices' models (devices, parameters), and seconds."""
    name, own, _ = METHODS[row]
    settings = {**TRAINING, **own}
    run = Run(id="race", method=name, settings=settings, rounds=rounds, seed=0, bundle=model.sha256, classes=CLASSES)
    names, common = [f"d{k}" for k in range(devices)], (run, model.layout, model.theta0)
    envs = {ROOT: make_env(*common, sizes={"h": devices}), "h": make_env(*common, sizes=dict.fromkeys(names, 1))}
    for k, d in enumerate(names):
        own_samples = (arrays[f"x{k}"], arrays[f"y{k}"])
        parts = DeviceParts(
            run=run,
            settings=settings_of(run),
            whose=d,
            model=model,
            x=own_samples[0],
            y=own_samples[1],
            held_out=own_samples,
            validation=None,
        )
        envs[d] = make_env(*common, **plain.for_device(parts))
    method = method_of(run)
    policies = method.policies(envs[ROOT].settings, envs[ROOT].sizes, 1e9, 1e8, 0)
    net = Loopback(method, {"h": tuple(names)}, envs, policies, faults=NetworkFaults(repeat=0.0))
    began = time.perf_counter()
    told = {node: m for node, m in net.run().told if isinstance(m, Models)}
    seconds = time.perf_counter() - began
    own_models = [told[d].models.get("personal", told[d].models["global"]) for d in names]
    return {"global": told[names[0]].models["global"], "devices": np.stack(own_models), "seconds": seconds}


def theirs(checkout: Path, python: str, arrays: Mapping[str, Any], options: argparse.Namespace) -> Any:
    """What pfllib_peer.py has written."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        common = {
            "num_classes": 14,
            "num_clients": options.devices,
            "global_rounds": options.rounds,
            "batch_size": options.samples,
            "local_learning_rate": RATE,
            "local_epochs": EPOCHS,
        }
        job = {
            "input": [3, 64],
            "classes": 14,
            "devices": options.devices,
            "rounds": options.rounds,
            "common": common,
            "methods": {row: METHODS[row][2] for row in options.only},
        }
        (work / "job.json").write_text(json.dumps(job))
        np.savez(work / "arrays.npz", **arrays)
        command = [python, str(Path(__file__).with_name("pfllib_peer.py")), str(checkout), str(work)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
        with np.load(work / "result.npz") as found:
            return dict(found)


def apart(mine: Any, other: Any, first: Any) -> float:
    return float(np.linalg.norm(mine - other) / np.linalg.norm(other - first))


def race(model: Model, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Distances and seconds of every row on one set of samples."""
    arrays = {**draw_samples(options.devices, options.samples, seed), "theta0": model.theta0}
    other, rows = theirs(options.checkout, options.python, arrays, options), []
    for row in options.only:
        mine = ours(row, model, arrays, options.devices, options.rounds)
        found = {"s": mine["seconds"], "PFLlib s": float(other[f"{row}/seconds"])}
        if row not in PART:
            found["global apart"] = apart(mine["global"], other[f"{row}/global"], model.theta0)
        if row != "fedala":
            pairs = zip(mine["devices"], other[f"{row}/devices"], strict=True)
            found["devices apart"] = max(apart(a, b, model.theta0) for a, b in pairs)
        rows.append(found)
    return rows


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("checkout", type=Path)
    words.add_argument("--python", default=sys.executable)
    words.add_argument("--devices", type=int, default=5)
    words.add_argument("--samples", type=int, default=40)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--only", nargs="+", choices=list(METHODS), default=list(METHODS))
    words.add_argument("--json", action="store_true")
    options = words.parse_args()
    model = Model(Path(__file__).parents[1] / "models" / "shipped" / "wrist.bundle")
    sets = [race(model, seed, options) for seed in range(options.seeds)]
    rows = {row: [found[k] for found in sets] for k, row in enumerate(options.only)}
    print(json.dumps(rows) if options.json else "\n".join(to_line(*item) for item in rows.items()))


def to_line(row: str, sets: Sequence[Mapping[str, float]]) -> str:
    """One row of the table."""
    keys = [k for k in ("global apart", "devices apart") if k in sets[0]]
    least = {k: min(found[k] for found in sets) for k in keys}
    middle = {k: float(np.median([found[k] for found in sets])) for k in ("s", "PFLlib s", *keys)}
    cells = [f"{k} {least[k]:.0e} (median {middle[k]:.0e})" for k in keys]
    says = "the same" if max(least.values()) < ROUNDING else DIFFERENT.get(row, "NOT THE SAME")
    return f"{row:9s} {', '.join(cells):68s} {middle['s']:.1f} s, PFLlib {middle['PFLlib s']:.1f} s  {says}"


if __name__ == "__main__":
    main()
