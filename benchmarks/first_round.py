"""Seconds from `auscult replay DIR` to the end of its first round, and what they go to.

    python benchmarks/first_round.py [--devices 4,18] [--blocks 1] [--tree DIR] [--json]

Devices are generated (`auscult traces synth`), the replay does what it does by default: it tries networks, starts a
process for each node, and plays a round. Bundles are compiled before the clock starts. Printed are seconds of the clock
by which each part is over, and processor seconds of all processes together, which other work on the machine changes
less; the median of the blocks. `--tree`: another checkout, to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PARTS = {
    "data are read": re.compile(r"trying networks|\d+ devices in"),
    "a network is chosen": re.compile(r"network: "),
    "processes are begun": re.compile(r"processes are starting"),
    "all are connected": re.compile(r"processes are connected"),
    "first round": re.compile(r"^\s+1\s+\d+\s+[\d.-]+"),
}
"""Part -> how the sentence begins that says that it is over, in this order."""
LAST = "first round"
LONGEST = 300.0
"""Seconds after which a replay is given up."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", default="4,18", help="numbers of devices, with a comma between them")
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--tree", type=Path, default=HERE, help="checkout whose code is timed")
    parser.add_argument("--json", action="store_true", help="print one list: an object for each number of devices")
    args = parser.parse_args()
    all_found = list[dict[str, float]]()
    if not args.json:
        print(f"{'devices':>8} " + " ".join(f"{part:>20}" for part in PARTS) + f" {'processor':>10} {'load':>6}")
    for count in map(int, args.devices.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "traces"
            subprocess.run(
                [*auscult(), "traces", "synth", str(data), "--devices", str(count), "--seed", "7"],
                env=environment(args.tree),
                cwd=args.tree,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            time_replay(data, Path(folder) / "warm", args.tree)  # compiles what is not in the cache
            found = [time_replay(data, Path(folder) / f"out-{k}", args.tree) for k in range(args.blocks)]
        middle = {name: statistics.median(one[name] for one in found) for name in found[0]}
        all_found.append({"devices": count, **middle})
        told = " ".join(f"{middle[part]:>19.1f}s" for part in PARTS)
        if not args.json:
            print(f"{count:>8} {told} {middle['processor']:>9.1f}s {os.getloadavg()[0]:>6.1f}", flush=True)
    if args.json:
        print(json.dumps(all_found))


def auscult() -> list[str]:
    return [sys.executable, "-m", "edge_sdk.cli"]


def environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}


def time_replay(data: Path, out: Path, tree: Path) -> dict[str, float]:
    """Part -> seconds until it was over, and "processor": seconds of all processes until they had ended."""
    began, found = time.monotonic(), dict[str, float]()
    command = [*auscult(), "replay", str(data), "--hospitals", "2", "--seed", "7", "--out", str(out)]
    place = {"env": environment(tree), "cwd": tree, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, text=True, start_new_session=True, **place)  # type: ignore[call-overload]
    assert process.stdout is not None
    said = list[str]()
    for line in process.stdout:
        said.append(line)
        for part, words in PARTS.items():
            if part not in found and words.search(line):
                found[part] = time.monotonic() - began
        if LAST in found or time.monotonic() - began > LONGEST:
            break
    if LAST not in found:
        os.killpg(process.pid, signal.SIGKILL)  # with its nodes, which it started in a session of its own
        raise SystemExit(f"no first round: {''.join(said[-20:])}")
    for part, after in zip(reversed(list(PARTS)[:-1]), reversed(list(PARTS)[1:]), strict=True):
        found.setdefault(part, found[after])  # nothing is said where the next part is over as soon
    os.kill(process.pid, signal.SIGTERM)  # a shell starts commands in the background with SIGINT ignored
    process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    return {**found, "processor": used.ru_utime + used.ru_stime}


if __name__ == "__main__":
    main()
