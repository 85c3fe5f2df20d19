"""A day of three axes at 100 Hz, imported as a trace: processor seconds and peak memory, beside polars.

    python benchmarks/importing.py [--hours 24] [--actigraphs] [--parquet]

--actigraphs: as a file of an ActiGraph, a GENEActiv and an Axivity, too. --parquet: as one of Parquet, too.

Each runs in a process of its own. Polars (if it is installed) only reads the same CSV file and writes it again, on one
thread: it looks at no time, label or gap.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.actigraphs import SECTOR, write_cwa, write_geneactiv, write_gt3x

T = TypeVar("T")
RATE, BLOCK = 100, 360_000
OURS = "import sys; from edge_sdk.cli import main; sys.exit(main(['traces', 'import', sys.argv[1], sys.argv[2]]))"
POLARS = "import sys, polars; polars.read_csv(sys.argv[1]).write_csv(sys.argv[2])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--actigraphs", action="store_true")
    parser.add_argument("--parquet", action="store_true")
    options = parser.parse_args()
    hours = options.hours
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "day.csv"
        write_day(file, hours)
        print(f"{hours * BLOCK:,} rows, {file.stat().st_size / 1e6:.0f} MB")
        print(measure("auscult traces import", OURS, file, Path(folder) / "traces"))
        if find_spec("polars") is not None:
            print(measure("polars, one thread", POLARS, file, Path(folder) / "copy.csv"))
        others = elsewhere(write_actigraphs, Path(folder), hours) if options.actigraphs else []
        others += [elsewhere(write_parquet, file)] if options.parquet else []
        for path in others:
            name = f"{path.suffix}, {path.stat().st_size / 1e6:.0f} MB"
            print(measure(name, OURS, path, Path(folder) / path.suffix[1:]))


def write_day(file: Path, hours: int) -> None:
    """Writes an hour with each of four labels in turns, one of them none."""
    random = np.random.default_rng(1)
    with file.open("w") as out:
        out.write("time,ax,ay,az,activity\n")
        for hour in range(hours):
            rows = np.empty((BLOCK, 4))
            rows[:, 0] = 1.7e9 + np.arange(hour * BLOCK, (hour + 1) * BLOCK) / RATE
            rows[:, 1:] = random.normal(size=(BLOCK, 3))
            label = ("walk", "sit", "", "lie")[hour % 4]
            out.write((f"%.2f,%.4f,%.4f,%.4f,{label}\n") * BLOCK % tuple(rows.ravel()))


def write_actigraphs(folder: Path, hours: int) -> list[Path]:
    """Writes a day in each of three formats."""
    values = np.random.default_rng(1).normal(scale=0.3, size=(hours * BLOCK, 3)).clip(-1.9, 1.9)
    parts = {
        n: [(1.7e9 + at / RATE, values[at : at + n]) for at in range(0, len(values), n)] for n in (100, 300, SECTOR)
    }
    return [
        write_gt3x(folder / "day.gt3x", [(int(at), own) for at, own in parts[100]], RATE),
        write_geneactiv(folder / "day.bin", [(at, own, 20.0, 30.0) for at, own in parts[300]], RATE),
        write_cwa(folder / "day.cwa", [(at, own, 3, 30.0) for at, own in parts[SECTOR]]),
    ]


def elsewhere(do: Callable[..., T], *args: Any) -> T:
    """What a function returns in a process of its own: one that is measured counts what its parent ever held."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(do, *args).result()


def write_parquet(file: Path) -> Path:
    """Writes a day that is a CSV file as one of Parquet, and returns that."""
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv(file), file.with_suffix(".parquet"))
    return file.with_suffix(".parquet")


def measure(name: str, code: str, *paths: Path) -> str:
    """Runs a program, and says what it took."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, paths)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{name} failed")
    return f"{name:<24} {used.ru_utime + used.ru_stime:6.1f} s of processor {used.ru_maxrss / 1000:6.0f} MB at most"


if __name__ == "__main__":
    main()
