"""Traces of electromyograms of the forearm, for `settling.py traces`: eight hand gestures, Myo armband, 200 Hz.

    python benchmarks/armband.py FOLDER DIRECTORY [--people 10] [--session 1]

FOLDER is the repository `myo-readings-dataset` of A. Francic (MIT licence): a folder for each person and session, with
a file for each gesture, in which rest and gesture alternate every five seconds. The files have neither header nor
times; rows come at some 200 Hz, and a new file begins ten seconds after the one before. Taken are the first people in
the order of their numbers, right hand, one session. Channels are divided by 128.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

GESTURES = ("rest", "flexion", "extension", "radial", "ulnar", "pronation", "supination", "fist")
RATE, PAUSE, FULL = 200.0, 10.0, 128.0
CHANNELS = 8


def write_person(folder: Path, out: Path) -> None:
    """One session as a trace.

    Raises:
        ValueError: a file has other columns, or a gesture that has no name.
    """
    at = 0.0
    with out.open("w") as file:
        file.write(",".join(("time", *(f"emg{n + 1}" for n in range(CHANNELS)), "activity")) + "\n")
        for path in sorted(folder.glob("[0-7].txt")):
            rows = np.loadtxt(path, delimiter=",", ndmin=2)
            if rows.shape[1] != CHANNELS + 1 or not np.isin(rows[:, -1], range(len(GESTURES))).all():
                raise ValueError(f"{path}: {rows.shape[1]} columns; expected {CHANNELS} channels and a gesture, 0 to 7")
            for n, row in enumerate(rows.tolist()):
                values = ",".join(f"{value / FULL:.7g}" for value in row[:-1])
                file.write(f"{at + n / RATE:.3f},{values},{GESTURES[int(row[-1])]}\n")
            at += len(rows) / RATE + PAUSE


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path)
    words.add_argument("directory", type=Path)
    words.add_argument("--people", type=int, default=10)
    words.add_argument("--session", type=int, default=1)
    options = words.parse_args()
    found = sorted((options.folder / "_readings_right_hand").glob(f"*-{options.session}"))[: options.people]
    if not found:
        words.error(f"{options.folder}: no folder _readings_right_hand with sessions NUMBER-{options.session}")
    options.directory.mkdir(parents=True, exist_ok=True)
    for folder in found:
        name = folder.name.split("-")[0]
        write_person(folder, options.directory / f"person-{name}.csv")
        print(f"person-{name}")


if __name__ == "__main__":
    main()
