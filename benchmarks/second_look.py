"""What a device's second look costs (edge_sdk/methods/settling/own_line.py): seconds and peak memory of its last step.

    python benchmarks/second_look.py

A wrist of settling.py's watches, with two labelled seconds of each exercise, labels its windows, settles, makes its own
models and compares, once with one look and once with two; each in a process of its own, one thread. The global model
is a stand-in: the wrist's own after 300 steps. Printed are medians over processes; seconds are of the processor, for
labelling and all that follows, and the memory is by how much the process grows on the way (on Linux, where its peak can
be set back before).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import subprocess
import sys
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.holders import watch
from benchmarks.poisoned_labels import CLASSES, SECONDS, run_of
from benchmarks.settling_runs import Job, env_of
from edge_sdk.methods.robust.settings import NONE
from edge_sdk.methods.settling import labelling, method, own_line
from edge_sdk.methods.settling.equations import local_model
from edge_sdk.methods.settling.settings import NETWORK, TAUGHT_FOREST, Candidate, Settling
from edge_sdk.methods.standardising.equations import by_itself
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.replay.planning.bundles import compile_network

REPEATS = 5
CHOSEN, ALONE = Candidate(50, 0, 0.25, TAUGHT_FOREST), Candidate(0, 300, 1.0, NETWORK)
LABELS_BY = (0.5, 0.8)
"""Weight of the forest and threshold by which windows are labelled."""


def look(looks: int) -> None:
    """One device's last step, and what it cost."""
    bundle = compile_network("features", ["--input", "6,64", "--classes", str(CLASSES)], 0, lambda line: None)
    model, holder = Model(bundle), watch(SECONDS)[0]
    run = run_of(model, NONE, 0)
    s = from_mapping(Settling, run.settle, "run.settle")
    env, _ = by_itself(replace(env_of(Job(run, model, [holder]), holder), me=holder.name))
    (w,) = local_model(env, s, (300,))
    env = env if looks > 1 else replace(env, swapped=None)
    network = s.candidates.index(ALONE)
    told = method.Chosen(None, s.candidates.index(CHOSEN), network, network)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was needed to get here is no room for what follows
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    before, began = memory("VmRSS"), time.process_time()
    with mock.patch.multiple(own_line, FAR_AHEAD=inf, SURE=inf):  # whatever is seen, both looks are taken
        taught = labelling.taught_by(env, s, w, labelling.options(s).index(LABELS_BY))
        method.chosen_models(taught, s, {"global": w}, told)
    print(f"{time.process_time() - began} {memory('VmHWM') - before}")


def memory(key: str) -> float:
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--looks", type=int, choices=(1, 2), help=argparse.SUPPRESS)
    looks = words.parse_args().looks
    if looks:
        return look(looks)
    rows = {}
    for n in (1, 2):
        told = [
            subprocess.run([sys.executable, __file__, "--looks", str(n)], capture_output=True, text=True, check=True)
            for _ in range(REPEATS)
        ]
        every = [[float(value) for value in one.stdout.split()[-2:]] for one in told]
        rows[n] = [median(column) for column in zip(*every, strict=True)]
        print(f"{n} look{'s' * (n > 1)}: {rows[n][0]:.2f} s, {rows[n][1]:.1f} MB more")
    print(f"the second look: {rows[2][0] - rows[1][0]:+.2f} s, {rows[2][1] - rows[1][1]:+.1f} MB")


if __name__ == "__main__":
    main()
