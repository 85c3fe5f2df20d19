"""Small simulations of a data set that ships; as a program: one that stops after some rounds, to be killed there.

python -m tests.simulation.jobs DIRECTORY METHOD ROUNDS
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from edge_sdk.replay.planning.plan import Replay
from edge_sdk.simulation.processes.ranks import OneRank
from edge_sdk.simulation.runs.job import simulate
from edge_sdk.simulation.runs.plan import Simulation

SMALL = {
    "data": "breast-cancer",
    "hospitals": 2,
    "rounds": 6,
    "seed": 3,
    "preset": "stated",
    "local_only": False,
    "neighbours": 0,
}


def no_kernels(env):
    """The methods' own ones, in numpy."""
    return {}


def job_of(out: Path, clients: int = 0, cohort: int = 0, more=None, **replay) -> Simulation:
    options = {"samples": 20} if clients else {"devices": 2}
    run = {**SMALL, "out": out, "method": "fedslr", "options": options, **replay}
    return Simulation(replay=Replay(**run), clients=clients, cohort=cohort, **(more or {}))


def play(job: Simulation, rank=None, progress=lambda line: None, say=lambda text: None, kernels=no_kernels):
    return simulate(job, rank or OneRank(), kernels, progress, say)


def stop_after(rounds: int):
    """A listener that keeps the run from going on."""

    def progress(line) -> None:
        if line["kind"] == "round" and line["round"] == rounds:
            print("stopped", flush=True)
            threading.Event().wait()

    return progress


if __name__ == "__main__":
    job = job_of(Path(sys.argv[1]), clients=40, cohort=8, method=sys.argv[2], more={"save_every": 1e-9})
    play(job, progress=stop_after(int(sys.argv[3])))
