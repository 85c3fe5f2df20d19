"""A heart rate in bpm, learned by a fleet in Flower and here: the same network, data, steps and rounds.

    make .flower/.ready && .flower/bin/pip install torch
    python benchmarks/flower_task.py --flower .flower/bin/python [--rounds 100] [--devices 6] [--seeds 3]

Recordings are generated (`auscult traces synth --kind heart-rate`); of each device the first three quarters train and
the last one judges. Inputs are powers of the pulse's and the movement's spectra over eight seconds. FedAvg takes five
steps of SGD a round on all samples of a device, in both from the same first model, so that its models must be the same
but for rounding: "apart" is the largest difference of a parameter. Below it stands what the default of `simulate` makes
of the same rounds: a device by itself, the global model, and the personal ones. It keeps a fifth of the windows to
choose by. Errors are means over devices of their mean absolute errors on test windows, with the range over seeds.
Nothing was chosen on these data.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch

import edge_sdk as auscult
from benchmarks.flower_task_peer import FEATURES, make_network
from edge_sdk.cli import main as command
from edge_sdk.data.traces.read import read_trace

RATE, WINDOW, STRIDE, RHYTHMS = 32, 256, 128, range(30, 221, 5)
"""Samples per second; samples of a window, and from one to the next; beats per minute that are looked for."""
LOW, HIGH = 40.0, 180.0
STEP, STEPS, MINUTES = 0.02, 5, 20
Fleet = Mapping[str, tuple[Any, Any, Any, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flower", required=True, help="a Python that has flwr and torch")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--devices", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    rows: dict[str, list[float]] = {}
    apart = list[float]()
    for seed in range(asked.seeds):
        fleet = make_fleet(asked.devices, seed)
        torch.manual_seed(seed)
        network = make_network().eval()
        theirs = play_flower(asked, fleet, network)
        errors, ours = play_here(fleet, network, asked.rounds, seed)
        errors["FedAvg in Flower"] = mean_error({name: theirs for name in fleet}, fleet)
        for name, error in errors.items():
            rows.setdefault(name, []).append(error)
        apart.append(max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True)))
    print(f"{asked.devices} devices, {asked.rounds} rounds, seeds {asked.seeds}; apart {max(apart):.1e}")
    for name, found in rows.items():
        print(f"{name:22} {np.mean(found):6.2f} bpm  {min(found):6.2f} to {max(found):.2f}")


def make_fleet(devices: int, seed: int) -> Fleet:
    """Device -> spectra and heart rates to train on, spectra and heart rates to be judged by."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        asked = ["--kind", "heart-rate", "--devices", str(devices), "--seed", str(seed), "--minutes", str(MINUTES)]
        if command(["traces", "synth", folder, *asked, "--overwrite"]):
            raise SystemExit("no recordings were generated")
        for path in sorted(Path(folder).glob("*.csv")):
            values = read_trace(path, label=None).values
            cut = len(values) * 3 // 4
            found[path.stem] = (*windows_of(values[:cut]), *windows_of(values[cut:]))
    return found


def windows_of(values: Any) -> tuple[Any, Any]:
    """Spectra (N, 156) of windows and their heart rates (N,), float32, of readings (T, 5)."""
    starts = range(0, len(values) - WINDOW + 1, STRIDE)
    x = np.stack([values[start : start + WINDOW, :-1].T for start in starts]).astype(np.float64)
    phase = 2 * math.pi * np.arange(WINDOW)[:, None] / RATE * np.array(RHYTHMS) / 60
    taper = np.hanning(WINDOW)[:, None] / (WINDOW / 4)
    x -= x.mean(2, keepdims=True)
    power = (x @ (np.cos(phase) * taper)) ** 2 + (x @ (np.sin(phase) * taper)) ** 2
    spectra = (np.log(power + 1e-3) / 4).reshape(len(x), FEATURES)
    return spectra.astype(np.float32), np.array([values[s : s + WINDOW, -1].mean() for s in starts], np.float32)


def scaled(y: Any) -> Any:
    """Heart rates as the network has them."""
    return ((y - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2)).astype(np.float32)


def predict(arrays: list[Any], x: Any) -> Any:
    """Heart rates in bpm (N,)."""
    network = make_network()
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), arrays, strict=True):
            parameter.copy_(torch.from_numpy(np.array(value)))
        return network(torch.from_numpy(x))[:, 0].numpy() * (HIGH - LOW) / 2 + (LOW + HIGH) / 2


def mean_error(models: Mapping[str, list[Any]], fleet: Fleet) -> float:
    """Mean over devices of the mean absolute error (bpm) of each one's model."""
    return float(np.mean([np.abs(predict(models[name], x) - y).mean() for name, (_, _, x, y) in fleet.items()]))


def play_flower(asked: argparse.Namespace, fleet: Fleet, network: torch.nn.Module) -> list[Any]:
    """The last model of Flower."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "fleet.npz", Path(folder) / "made.npz"
        arrays = {f"{name}/x": x for name, (x, _, _, _) in fleet.items()}
        arrays |= {f"{name}/y": scaled(y) for name, (_, y, _, _) in fleet.items()}
        arrays |= {f"w{i}": p.detach().numpy() for i, p in enumerate(network.parameters())}
        np.savez(given, **arrays)
        peer = str(Path(__file__).with_name("flower_task_peer.py"))
        said = ["--rounds", str(asked.rounds), "--rate", str(STEP), "--steps", str(STEPS)]
        subprocess.run([asked.flower, peer, str(given), str(made), *said], check=True, stderr=subprocess.DEVNULL)
        found = np.load(made)
        return [found[f"w{i}"] for i in range(len(arrays) - 2 * len(fleet))]


def play_here(fleet: Fleet, network: torch.nn.Module, rounds: int, seed: int) -> tuple[dict[str, float], list[Any]]:
    """Errors of the models of a plain run and of the default one, and the parameters of the plain global model."""
    asked = {"predict": "heart_rate", "unit": "bpm", "range": [(LOW, HIGH)]}
    every, data = auscult.Fleet.from_arrays(fleet, validation=0, **asked), auscult.Fleet.from_arrays(fleet, **asked)
    same = {"eta_l": STEP, "decay": 1.0, "weight_decay": 0.0, "batch": 0, "local_epochs": STEPS}
    plain = auscult.simulate(every, "fedavg", model=network, rounds=rounds, seeds=[seed], settings=same, plain=True)
    told = auscult.simulate(data, model=network, rounds=rounds, seeds=[seed])
    ours = parameters_of(plain, network)
    errors = {"FedAvg here": mean_error(dict.fromkeys(fleet, ours), fleet)}
    errors["default: alone"] = told.scores["local"]["heart_rate"]
    errors["default: global"] = told.scores["global"]["heart_rate"]
    errors["default: personal"] = told.scores["personalised"]["heart_rate"]
    return errors, ours


def parameters_of(run: Any, network: torch.nn.Module) -> list[Any]:
    """The global model of a run as torch's parameters have it."""
    theta, at, found = next(iter(run.devices.values())).working.kept.models["global"], 0, []
    for parameter in network.parameters():
        found.append(np.asarray(theta[at : at + parameter.numel()]).reshape(parameter.shape))
        at += parameter.numel()
    return found


if __name__ == "__main__":
    main()
