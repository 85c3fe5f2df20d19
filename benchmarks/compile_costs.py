"""What a compilation costs: processor seconds and peak memory, each network in a process of its own.

    python benchmarks/compile_costs.py [NAME ...] [--beside CHECKOUT]

NAME is of the zoo, or `cells`: a loop of 64 GRU cells, or `scan`: 64 steps of a selective state space. The last
column says whether the other checkout makes the same bytes. Imports are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from step import ONE_THREAD, ROOT

NAMES = ("mlp", "wrist", "forecaster", "gru2", "transformer", "cells", "scan")
OPTIONS = {
    "forecaster": ["--task", "forecast", "--horizon", "16"],
    "cells": ["--input", "3,64", "--classes", "4"],
    "scan": ["--input", "3,64", "--classes", "4"],
}
LOOPS = {"cells": "Cells", "scan": "Scan"}
COMPILE = """
import argparse, hashlib, json, resource, sys, time
import torch
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.cli import add_parsers, read_module
torch.manual_seed(7)
parser = argparse.ArgumentParser()
add_parsers(parser.add_subparsers())
net, spec = read_module(parser.parse_args(["compile", *sys.argv[1:]]))
start = time.process_time()
made = compile_module(net, spec)
seconds, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([made.parameters, seconds, peak / 1000, hashlib.sha256(made.data).hexdigest()]))
"""


def compile_in(checkout: Path, name: str) -> tuple[int, float, float, str]:
    """Parameters, processor seconds, peak megabytes and SHA-256 of the bundle, by the code of a checkout."""
    loops = Path(__file__).with_name("compile_loops.py")
    module = f"{loops}:{LOOPS[name]}" if name in LOOPS else name
    command = [sys.executable, "-c", COMPILE, module, *OPTIONS.get(name, [])]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=checkout, env=environment)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    parameters, seconds, peak, digest = json.loads(done.stdout.splitlines()[-1])
    return parameters, seconds, peak, digest


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"networks ({' '.join(NAMES)})")
    parser.add_argument("--beside", type=Path, help="another checkout, whose figures come first")
    options = parser.parse_args()
    print(
        f"{'network':<12} {'parameters':>10} {'CPU s':>16} {'peak MB':>14}" + "  bundle" * (options.beside is not None)
    )
    for name in options.names or NAMES:
        checkouts = [*([options.beside.resolve()] if options.beside else []), ROOT]
        found = [compile_in(checkout, name) for checkout in checkouts]
        seconds, peaks = (" -> ".join(f"{one[k]:.{d}f}" for one in found) for k, d in ((1, 1), (2, 0)))
        same = "  the same" if found[0][3] == found[-1][3] else "  another"
        print(f"{name:<12} {found[-1][0]:>10,} {seconds:>16} {peaks:>14}{same * (len(found) > 1)}", flush=True)


if __name__ == "__main__":
    main()
