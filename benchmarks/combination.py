"""What each step adds where all of them are in one training: prox, private model, other architectures, discriminator,
consensus between hospitals. Each row is a whole `auscult replay` over a broker, with a switch more than the row above.

    python benchmarks/combination.py TRACES [--rounds 30] [--seeds 7] [--rows 1 2 ...] [--json]

The same devices in every row: of the traces, one person's windows are the public inputs, and the last person's are the
aggregator's own, on which its private model is trained; nobody else sees these. Of the devices every fourth has a
bundle of another architecture (a depthwise-separable network), the others the shipped wrist bundle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WRIST = ROOT / "models" / "shipped" / "wrist.bundle"

# as `make demo` has them
SHARED = {"eta_l": 0.05, "decay": 0.9, "eta_g": 30.0, "mu": 0.00003, "personal_epochs": 4, "settle_epochs": 6}
SHARED |= {"lam": 0.001}
OUTPUTS = {"tau": 5, "public_batch": 64, "batch": 32, "eta_l": 0.002}

Switches = dict[str, Any]
ROWS: tuple[tuple[str, str, Switches], ...] = (
    ("apart: the two cohorts, no prox", "fedslr+fedal", {"shared.global_penalty": "none", "outputs.al": 0.0}),
    ("+ nuclear prox", "fedslr+fedal", {"outputs.al": 0.0}),
    ("+ private pretrained model", "fedslr+fedal", {"outputs.al": 0.0, "private": True}),
    ("+ outputs of the companions", "fedslr+fedal", {"outputs.al": 0.0, "private": True, "into": 0.0003}),
    ("+ discriminator", "fedslr+fedal", {"outputs.al": 1.0, "private": True, "into": 0.0003}),
    (
        "+ first-B consensus",
        "fedslr-b+fedal",
        {
            "outputs.al": 1.0,
            "private": True,
            "into": 0.0003,
            "shared.cloud": "first-b",
            "shared.ready": 2,
            "shared.cloud_step": 3.0,
        },
    ),
)


def auscult(*words: object) -> str:
    command = [sys.executable, "-m", "edge_sdk.cli", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def prepared(traces: Path, base: Path) -> tuple[Path, Path, Path]:
    """The companions' bundle, and the private model with and without its weight."""
    other, on, off = base / "separable.bundle", base / "private", base / "without.toml"
    command = [sys.executable, "-m", "models", "compile", "separable", "-o", str(other), "--seed", "7"]
    classes = json.loads(auscult("pretrain", traces, "-o", on, "--persons", 1, "--architecture", "wrist",
                                 "--regulariser", "kd", "--weight", 0.0003, "--epochs", 15, "--json"))  # fmt: skip
    print(f"the private model is right on {100 * classes['accuracy']:.1f}% of its own held-out windows", flush=True)
    subprocess.run([*command, "--input", "3,64", "--classes", "14"], check=True, capture_output=True, cwd=ROOT)
    off.write_text("weight = 0.0\nreserved = 1\n")
    return other, on / "private.toml", off


def row(traces: Path, out: Path, method: str, switches: Switches, args: argparse.Namespace, seed: int) -> Any:
    switches = dict(switches)
    private = args.on if switches.pop("private", False) else args.off
    settings = {f"shared.{k}": v for k, v in SHARED.items()} | {f"outputs.{k}": v for k, v in OUTPUTS.items()}
    pairs = [word for k, v in (settings | switches).items() for word in ("--set", f"{k}={v}")]
    bundles = [word for path in (WRIST, WRIST, WRIST, args.other) for word in ("--bundle", path)]
    fixed = ["--hospitals", 3, "--rounds", args.rounds, "--seed", seed, "--public", 256, "--private", private]
    return json.loads(auscult("replay", traces, "--method", method, *fixed, *bundles, *pairs, "--out", out, "--json"))


def mean(values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    spread = f" +- {100 * statistics.stdev(known):.1f}" if len(known) > 1 else ""
    return f"{100 * statistics.mean(known):.1f}{spread}" if known else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path, help="a folder of traces")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[7])
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(1, len(ROWS) + 1)))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        traces = args.traces.resolve()
        args.other, args.on, args.off = prepared(traces, Path(base))
        print(f"{'':34} {'global':>12} {'personalised':>14} {'companions':>14} {'rank':>6} {'MB up':>6} {'s':>5}")
        for i in args.rows:
            name, method, switches = ROWS[i - 1]
            found = [row(traces, Path(base) / f"{i}-{s}", method, switches, args, s) for s in args.seeds]
            kinds = [mean([f["accuracy"].get(k) for f in found]) for k in ("global", "personalised", "companion")]
            ranks = statistics.mean(sum(f["model"]["ranks"].values()) for f in found)
            up = statistics.mean(f["bytes"]["device_to_hospital"] for f in found) / 1e6
            seconds = statistics.mean(f["seconds"] for f in found)
            print(
                f"{name:34} {kinds[0]:>12} {kinds[1]:>14} {kinds[2]:>14} {ranks:6.0f} {up:6.1f} {seconds:5.0f}",
                flush=True,
            )
            if args.json:
                print(json.dumps([{k: f[k] for k in ("accuracy", "bytes", "seconds", "seed")} for f in found]))


if __name__ == "__main__":
    main()
