"""Six methods at ten thousand simulated clients, each killed (kill -9) on its way and resumed, beside one left alone.

    python benchmarks/simulate_methods.py [--clients 10000] [--cohort 100] [--rounds 10] [--ranks 2]

It prints clients per second, memory of the largest rank, disk of the clients' records, and whether the run that was
killed came to the same bytes: the model where there is one, else the whole curve and all accuracies. Figures depend on
what else the machine does, which is printed beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

METHODS: dict[str, list[str]] = {
    "fedslr": [],
    "fedbcd": [],
    "augfl": [],
    "fedal": ["--public", "64"],
    "hsgd": [],
    "fedslr-b+fedal": ["--public", "64", "--bundle", "mlp", "--bundle", "OTHER"],
}
CHECKED = ("accuracy", "bytes", "statistics")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--methods", default=",".join(METHODS), help="with a comma between them")
    args = parser.parse_args()
    print(f"{'':16} {'clients/s':>10} {'s':>6} {'MB':>6} {'disk MB':>8} {'killed at':>10} {'same':>5} {'load':>5}")
    for method in args.methods.split(","):
        with tempfile.TemporaryDirectory() as directory:
            print(line_of(method, Path(directory), args), flush=True)


def line_of(method: str, directory: Path, args: argparse.Namespace) -> str:
    """Plays a method twice, once with a kill in between, and describes it."""
    whole, killed = directory / "whole", directory / "killed"
    finish(launch(method, whole, args))
    stopped = kill_on_the_way(launch(method, killed, args), killed)
    finish(launch(method, killed, args, "--resume"))
    one, other = (json.loads((out / "result.json").read_text()) for out in (whole, killed))
    found, disk = one["simulation"], sum(f.stat().st_blocks * 512 for f in whole.glob("**/clients/*")) / 2**20
    other_keys = [key for key in CHECKED if one[key] != other[key]]
    other_keys += ["curve"] * (scores_of(one) != scores_of(other)) + ["model"] * (model_of(whole) != model_of(killed))
    sizes = f"{found['answers_per_second']:>10.0f} {one['seconds']:>6.0f} {found['peak_memory_mb']:>6.0f} {disk:>8.0f}"
    same = f"NO: {', '.join(other_keys)}" if other_keys else "yes"
    return f"{method:16} {sizes} {f'round {stopped}':>10} {same:>5} {os.getloadavg()[0]:>5.1f}"


def launch(method: str, out: Path, args: argparse.Namespace, *more: str) -> subprocess.Popen[str]:
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.ranks), "-m", "edge_sdk.cli"]
    command = [
        sys.executable,
        *(ranks if args.ranks > 1 else ranks[-2:]),
        "simulate",
        "breast-cancer",
        "--method",
        method,
    ]
    command += ["--clients", str(args.clients), "--cohort", str(args.cohort), "--rounds", str(args.rounds)]
    command += ["--samples", "30", "--judges", "200", "--seed", "7", "--save-every", "1", "--out", str(out)]
    named = [str(other_network(out.parent)) if word == "OTHER" else word for word in METHODS[method]]
    place = {"env": {**os.environ, **ONE_THREAD}, "start_new_session": True, "text": True}
    return subprocess.Popen([*command, *named, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **place)


def other_network(directory: Path) -> Path:
    """A network of another architecture, for devices that have a model of their own."""
    path = directory / "other.bundle"
    if not path.exists():
        options = ["--input", "30", "--classes", "2", "--arg", "hidden=(12,)", "-o", str(path)]
        subprocess.run(
            [sys.executable, "-m", "edge_sdk.models", "compile", "mlp", *options], check=True, capture_output=True
        )
    return path


ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def finish(process: subprocess.Popen[str]) -> None:
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(text[-3000:])


def kill_on_the_way(process: subprocess.Popen[str], out: Path) -> int:
    """Kills launcher and ranks with SIGKILL after a checkpoint and a round; returns the number of rounds that were."""
    while process.poll() is None:
        rounds = rounds_of(out)
        if rounds and (out / "checkpoint.json").exists():
            os.killpg(process.pid, signal.SIGKILL)
            kill_ranks(str(out))
            process.communicate()
            return rounds
        time.sleep(0.005)
    raise SystemExit(f"the run was over before it could be killed: {process.communicate()[0][-2000:]}")


def kill_ranks(word: str) -> None:
    """Ranks are in sessions of their own: torchrun starts them so."""
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if word.encode() in (path / "cmdline").read_bytes().split(b"\0") and int(path.name) != os.getpid():
                os.kill(int(path.name), signal.SIGKILL)


def rounds_of(out: Path) -> int:
    with contextlib.suppress(OSError):
        return sum('"kind": "round"' in line for line in (out / "metrics.jsonl").read_text().splitlines())
    return 0


def scores_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "time"} for line in result["curve"]]


def model_of(out: Path) -> bytes:
    import numpy as np

    if not (out / "model.npz").exists():
        return b""
    with np.load(out / "model.npz") as file:
        return b"".join(file[name].tobytes() for name in sorted(file))


if __name__ == "__main__":
    main()
